package kubectl

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/test/static/docs"
)

// rights are pairs such as "list pods".
type rights map[string]bool

func (r rights) add(resource string, verbs ...string) {
	for _, verb := range verbs {
		r[verb+" "+resource] = true
	}
}

// plural is a resource as the API server names it, of one of the ways in which kubectl is told of it.
func plural(resource string) string {
	resource, _, _ = strings.Cut(resource, ".")
	if resource == "pvc" {
		return "persistentvolumeclaims"
	}
	if !strings.HasSuffix(resource, "s") {
		return resource + "s"
	}
	return resource
}

// takes is what a call of kubectl takes, and whether that is in the cluster's namespace.
func takes(call string) (r rights, inside bool) {
	words := strings.Fields(call)
	r, inside = rights{}, strings.Contains(call+" ", " -n shop ")
	var plain []string
	for i := 1; i < len(words); i++ {
		switch {
		case slices.Contains([]string{"-n", "-l", "-o", "-c"}, words[i]):
			i++
		case !strings.HasPrefix(words[i], "-"):
			plain = append(plain, words[i])
		}
	}
	switch words[0] {
	case "logs":
		r.add("pods", "get")
		r.add("pods/log", "get")
	case "exec":
		r.add("pods", "get")
		r.add("pods/exec", "create")
	case "port-forward":
		r.add("pods", "get")
		r.add("pods/portforward", "create")
	case "create":
		r.add(plural(plain[0]), "create")
	case "patch": // kubectl reads it first
		r.add(plural(plain[0]), "get", "patch")
	case "get":
		verb := "list"
		if len(plain) > 1 {
			verb = "get"
		}
		for resource := range strings.SplitSeq(plain[0], ",") {
			r.add(plural(resource), verb)
		}
		if plural(plain[0]) == "etcdclusters" { // without a namespace: that of the context
			inside = !slices.Contains(words, "-A")
		}
	}
	return r, inside
}

// everything is shop/orders with whatever else a command may look at: pods of Quorate and Metacontroller, certificates,
// snapshots and their schedule.
func everything(t *testing.T) []*kube {
	plain, certified := steady(t), steady(t)
	pod := string(listOf(plain.child("Pod orders-0")))
	plain.says["get pods -n quorate-system"], plain.says["get pods -n metacontroller"] = pod, pod
	certified.says["get pods -n quorate-system"] = pod
	within(certified.cluster, "spec")["tls"] = map[string]any{"mode": "CertManager",
		"certManager": map[string]any{"issuerRef": map[string]any{"name": "theirs"}}}
	certified.says["get compositecontrollers"] = strings.Replace(plain.says["get compositecontrollers"],
		`{"apiVersion":"v1","resource":"pods"}`,
		`{"apiVersion":"v1","resource":"pods"},{"apiVersion":"cert-manager.io/v1","resource":"certificates"}`, 1)
	within(certified.cluster, "status")["internal"] = map[string]any{"awaited": []any{map[string]any{
		"kind": "Pod", "name": "orders-2", "requestTime": "2026-03-01T11:59:00Z"}}}
	for _, k := range []*kube{plain, certified} {
		k.backedUp()
		k.filled()
		k.connected()
		k.says[execJournal] = journalOf(t, noon)
		k.says["get pvc"] = `{"items":[{"metadata":{"name":"data-etcd-0"}}]}`
		k.says["get "+operations+" orders-"] = `{"status":{"phase":"Succeeded"}}`
		k.says["get "+snapshots+" orders-snapshot-"] = `{"status":{"phase":"Succeeded"}}`
	}
	return []*kube{plain, certified}
}

// told are rights in words: each resource with its verbs.
func told(r rights) string {
	verbs := map[string][]string{}
	for right := range r {
		verb, resource, _ := strings.Cut(right, " ")
		verbs[resource] = append(verbs[resource], verb)
	}
	var clauses []string
	for _, resource := range slices.Sorted(maps.Keys(verbs)) {
		slices.Sort(verbs[resource])
		clauses = append(clauses, "`"+resource+"` "+strings.Join(verbs[resource], ", "))
	}
	return cmp.Or(strings.Join(clauses, "; "), "none")
}

// variants are lines that take other rights than the example of their command.
var variants = map[string][]string{"status": {"status -A"}, "top": {"top --live"},
	"suspend": {"suspend --schedule=nightly"},
	"resume":  {"resume --schedule=nightly"}, "adopt": {"adopt taken -l=app=former --dry-run --etcd-version=3.6.16"}}

// TestTheRightsInTheDocument: docs/reference/lists.md has what each command takes, those with the same rights in one
// row. check has a list of its own.
func TestTheRightsInTheDocument(t *testing.T) {
	file, err := filepath.Abs("../../docs/reference/lists.md")
	require.NoError(t, err)
	t.Setenv("TMPDIR", t.TempDir())
	var rows []string
	of := map[string]string{}
	for _, c := range commands {
		here, elsewhere := rights{}, rights{}
		lines := append([]string{c.example, strings.Replace(c.example+" ", " orders ", " ", 1)}, variants[c.name]...)
		for _, line := range lines {
			if c.waits {
				line = strings.ReplaceAll(line, "--dry-run", "") + " --wait"
			}
			for _, k := range everything(t) {
				t.Chdir(t.TempDir()) // for reports
				k.runs(healthy(), append(strings.Fields(line), "-n", "shop")...)
				for _, call := range slices.Concat(k.calls, k.forwards) {
					if r, inside := takes(call); inside {
						maps.Copy(here, r)
					} else {
						maps.Copy(elsewhere, r)
					}
				}
			}
		}
		row := told(here) + " | " + told(elsewhere) + " |\n"
		if c.name == "check" || len(here)+len(elsewhere) == 0 {
			continue
		}
		if of[row] == "" {
			rows = append(rows, row)
			of[row] = "`" + c.name + "`"
		} else {
			of[row] += ", `" + c.name + "`"
		}
	}
	table := "| Command | In the namespace of the cluster | Elsewhere, if you have them |\n| --- | --- | --- |\n"
	for _, row := range rows {
		table += "| " + of[row] + " | " + row
	}
	require.NoError(t, docs.Keep(file, "generated: begin rights", "generated: end", table))
}
