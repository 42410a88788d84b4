package kubectl

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

var quoted = regexp.MustCompile("`([^`]+)`")

// documented are the rights in a cell of the table: verbs, and resources in backticks; or those of another command.
func documented(table map[string][]string, command string, column int) rights {
	r := rights{}
	cell := regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(table[command][column], "")
	for clause := range strings.SplitSeq(cell, ";") {
		if strings.Contains(clause, "those of ") {
			maps.Copy(r, documented(table, quoted.FindStringSubmatch(clause)[1], column))
			continue
		}
		var verbs []string
		told := false
		for _, word := range regexp.MustCompile("`[^`]+`|[a-z]+").FindAllString(clause, -1) {
			switch {
			case strings.HasPrefix(word, "`"):
				r.add(strings.Trim(word, "`"), verbs...)
				told = true
			case slices.Contains([]string{"get", "list", "create"}, word):
				if told {
					verbs, told = nil, false
				}
				verbs = append(verbs, word)
			}
		}
	}
	return r
}

func TestTheRightsInTheDocument(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/cli.md")
	require.NoError(t, err)
	table := map[string][]string{}
	_, rest, _ := strings.Cut(string(page), "| Command | Rights")
	rest, _, _ = strings.Cut(rest, "\n\n")
	for line := range strings.Lines(rest) {
		if cells := strings.Split(line, "|"); strings.HasPrefix(line, "| `") {
			name, _, _ := strings.Cut(strings.Trim(cells[1], " `"), "`")
			table[name] = cells[2:4]
		}
	}
	for command, args := range map[string][]string{
		"status": nil, "explain": nil, "defrag": {"--wait"}, "version": nil,
		"report": {"-o", filepath.Join(t.TempDir(), "r.tar.gz")},
		"adopt":  {"taken", "-l=app=former", "--dry-run", "--etcd-version=3.6.16"},
	} {
		t.Run(command, func(t *testing.T) {
			taken := []rights{{}, {}}
			for _, name := range []string{"", "orders"} {
				if command == "version" || command == "adopt" {
					name = ""
				}
				for _, k := range everything(t) {
					k.runs(healthy(), slices.Concat([]string{command, "-n", "shop"},
						slices.DeleteFunc([]string{name}, func(n string) bool { return n == "" }), args)...)
					for _, call := range slices.Concat(k.calls, k.forwards) {
						r, inside := takes(call)
						column := 1
						if inside {
							column = 0
						}
						maps.Copy(taken[column], r)
					}
				}
			}
			for column := range taken {
				assert.Equal(t, slices.Sorted(maps.Keys(documented(table, command, column))),
					slices.Sorted(maps.Keys(taken[column])), "docs/reference/cli.md, column %d", column+1)
			}
		})
	}
}
