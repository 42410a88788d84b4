package kubectl

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestComplete: the last word of each line, after a bar, is completed by what there is.
func TestComplete(t *testing.T) {
	const three = "orders-0 orders-1 orders-2"
	for line, want := range map[string]string{
		"|st":                                "status :4",
		"|s":                                 "size snapshot status suspend :4",
		"bogus |":                            ":4",
		"status |":                           "orders :4",
		"status orders |":                    ":4",
		"status -o |":                        "json text wide yaml :4",
		"status -o=|w":                       "wide :4",
		"status --all|":                      "--all-namespaces :4",
		"status -A |":                        "orders :4",
		"status --context prod |o":           "orders :4",
		"status --context |":                 ":0",
		"status -n |":                        "shop web :4",
		"fence |":                            "orders " + three + " :4",
		"fence orders |":                     three + " :4",
		"fence orders orders-1 |":            ":4",
		"fence others |":                     ":4",
		"fence --duration |":                 ":0",
		"recover --dry-run orders |From":     "FromSnapshot FromSurvivor :4",
		"restore --snapshot |":               "nightly-1 nightly-2 :4",
		"restore orders --snapshot=|n":       "nightly-1 nightly-2 :4",
		"restore --no-such=|":                ":4",
		"snapshot --from-schedule |":         "nightly of-others :4",
		"env others --etcd-user |":           "root :4",
		"env orders --etcd-user |":           "root shop :4",
		"env --etcd-user |":                  "root shop :4",
		"adopt |":                            ":4",
		"adopt taken |":                      "data-0 :4",
		"adopt taken data-0 |":               "data-0 :4",
		"completion |":                       "bash fish zsh :4",
		"size |":                             ":4",
		"check --metacontroller-namespace |": ":0",
	} {
		k := steady(t)
		k.backedUp()
		within(k.cluster, "spec")["auth"] = map[string]any{"users": []any{map[string]any{"name": "shop"}}}
		k.says["get "+snapshots] = `{"items":[` + aSnapshot("nightly-1", "") + `,` + aSnapshot("nightly-2", "") + `]}`
		k.says["get namespaces"] = `{"items":[{"metadata":{"name":"shop"}},{"metadata":{"name":"web"}}]}`
		k.says["get pvc"] = `{"items":[{"metadata":{"name":"data-0"}}]}`
		before, last, _ := strings.Cut(line, "|")
		words := strings.Fields(before)
		if strings.HasSuffix(before, "=") {
			last = words[len(words)-1] + last
			words = words[:len(words)-1]
		} else if before != "" && !strings.HasSuffix(before, " ") {
			last = words[len(words)-1]
			words = words[:len(words)-1]
		}
		code, out, errs := k.runs(healthy(), append(append([]string{Completing}, words...), last)...)
		assert.Zero(t, code)
		assert.Empty(t, errs)
		assert.Equal(t, want, strings.Join(strings.Fields(out), " "), line)
	}

	k := steady(t)
	k.fails[""] = "nothing works"
	code, out, errs := k.runs(healthy(), Completing, "fence", "")
	assert.Zero(t, code)
	assert.Equal(t, ":4\n", out, "what can't be read is not offered, and nothing is said")
	assert.Empty(t, errs)
	_, out, _ = steady(t).runs(healthy(), Completing)
	assert.Equal(t, ":4\n", out)
}

// TestCompletionInShells: each shell that is here offers what the plugin says, by what completion prints.
func TestCompletionInShells(t *testing.T) {
	bin := t.TempDir()
	const fake = "#!/bin/sh\nshift\nfor last; do :; done\ncase \"$*\" in\n" +
		"st) printf 'status\\n:4\\n';;\n'fence '*) printf 'demo-0\\ndemo-1\\n:4\\n';;\n" +
		"'status -o=y') printf 'yaml\\n:4\\n';;\n*) printf ':0\\n';;\nesac\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "kubectl-quorate"), []byte(fake), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(bin, "a-file"), nil, 0o600))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for shell, asks := range map[string]string{
		"bash": `COMP_LINE="kubectl-quorate $line"; COMP_POINT=${#COMP_LINE}; _kubectl_quorate; echo "${COMPREPLY[@]}"`,
		"fish": `complete -C "kubectl-quorate $line"`,
	} {
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		_, script, _ := steady(t).runs(healthy(), "completion", shell)
		set := "line='%'\n"
		if shell == "fish" {
			set = "set line '%'\n"
		}
		for line, want := range map[string]string{"st": "status", "fence ": "demo-0 demo-1", "status -o=y": "yaml",
			"report -o a-f": "a-file"} {
			cmd := exec.Command(shell, "-c", script+strings.Replace(set, "%", line, 1)+asks)
			cmd.Dir = bin
			out, err := cmd.Output()
			require.NoError(t, err)
			got := strings.ReplaceAll(strings.Join(strings.Fields(string(out)), " "), "-o=", "")
			assert.Equal(t, want, got, "%s: %q", shell, line)
		}
	}
}
