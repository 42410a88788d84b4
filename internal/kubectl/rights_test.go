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
	case "port-forward":
		r.add("pods", "get")
		r.add("pods/portforward", "create")
	case "create":
		r.add(plural(plain[0]), "create")
	case "get":
		verb := "list"
		if len(plain) > 1 {
			verb = "get"
		}
		for resource := range strings.SplitSeq(plain[0], ",") {
			r.add(plural(resource), verb)
		}
		inside = inside || plural(plain[0]) == "etcdclusters" // without a namespace: that of the context
	}
	return r, inside
}

// everything is shop/orders with whatever else a command may look at: pods of Quorate and Metacontroller, and
// certificates.
func everything(t *testing.T) []*kube {
	plain, certified := steady(t), steady(t)
	pod := string(listOf(plain.child("Pod orders-0")))
	plain.says["get pods -n quorate-system"], plain.says["get pods -n metacontroller"] = pod, pod
	within(certified.cluster, "spec")["tls"] = map[string]any{"mode": "CertManager",
		"certManager": map[string]any{"issuerRef": map[string]any{"name": "theirs"}}}
	certified.says["get compositecontrollers"] = strings.Replace(plain.says["get compositecontrollers"],
		`{"apiVersion":"v1","resource":"pods"}`,
		`{"apiVersion":"v1","resource":"pods"},{"apiVersion":"cert-manager.io/v1","resource":"certificates"}`, 1)
	within(certified.cluster, "status")["internal"] = map[string]any{"awaited": []any{map[string]any{
		"kind": "Pod", "name": "orders-2", "requestTime": "2026-03-01T11:59:00Z"}}}
	for _, k := range []*kube{plain, certified} {
		k.says["get pvc"] = `{"items":[{"metadata":{"name":"data-former-0"}}]}`
		k.says["get "+operations+" orders-defrag"] = `{"status":{"phase":"Succeeded"}}`
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

// TestTheRightsInTheDocument: docs/reference/lists.md has what each command takes.
func TestTheRightsInTheDocument(t *testing.T) {
	table := "| Command | In the namespace of the cluster | Elsewhere, if you have them |\n| --- | --- | --- |\n"
	for _, c := range []struct {
		command string
		args    []string
	}{
		{"status", nil}, {"explain", nil}, {"defrag", []string{"--wait"}}, {"version", nil},
		{"report", []string{"-o", filepath.Join(t.TempDir(), "r.tar.gz")}},
		{"adopt", []string{"taken", "-l=app=former", "--dry-run", "--etcd-version=3.6.16"}},
	} {
		here, elsewhere := rights{}, rights{}
		for _, name := range []string{"", "orders"} {
			if c.command == "version" || c.command == "adopt" {
				name = ""
			}
			for _, k := range everything(t) {
				k.runs(healthy(), slices.Concat([]string{c.command, "-n", "shop"},
					slices.DeleteFunc([]string{name}, func(n string) bool { return n == "" }), c.args)...)
				for _, call := range slices.Concat(k.calls, k.forwards) {
					if r, inside := takes(call); inside {
						maps.Copy(here, r)
					} else {
						maps.Copy(elsewhere, r)
					}
				}
			}
		}
		table += "| `" + c.command + "` | " + told(here) + " | " + told(elsewhere) + " |\n"
	}
	require.NoError(t, docs.Keep("../../docs/reference/lists.md", "generated: begin rights", "generated: end", table))
}
