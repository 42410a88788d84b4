package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/decision"
)

// TestEveryRuleHasAnOutlook: tools that wait know what to make of each.
func TestEveryRuleHasAnOutlook(t *testing.T) {
	for _, r := range All() {
		for _, o := range r.Outlooks {
			assert.Contains(t, []decision.Outlook{decision.Works, decision.Waits, decision.Rests, decision.Aside}, o, r.Name)
			assert.False(t, o == decision.Aside && len(r.Outlooks) > 1, "%s: what other rules tell, a plan can't", r.Name)
		}
	}
	for _, m := range Modes {
		last := m.Rules[len(m.Rules)-1]
		assert.False(t, slices.Contains(last.Outlooks, decision.Aside), "mode %s: nothing comes after rule %s", m.Name,
			last.Name)
	}
}

// TestRulesAreFunctionsOfTheirNames: who reads a STATUS finds the function that says it.
func TestRulesAreFunctionsOfTheirNames(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "modes.go", nil, 0)
	require.NoError(t, err)
	named := 0
	ast.Inspect(file, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is || len(call.Args) < 3 {
			return true
		}
		status, isText := call.Args[0].(*ast.BasicLit)
		function, isName := call.Args[2].(*ast.Ident)
		if !isText || !isName {
			return true
		}
		named++
		want, err := strconv.Unquote(status.Value)
		require.NoError(t, err)
		if want == "Recover" { // recover is Go's own
			return true
		}
		assert.Equal(t, strings.ToLower(want[:1])+want[1:], function.Name)
		return true
	})
	assert.Len(t, All(), named)
}
