package cluster

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRulesAreFunctionsOfTheirNames: who reads a STATUS finds the function that says it.
func TestRulesAreFunctionsOfTheirNames(t *testing.T) {
	file, err := parser.ParseFile(gotoken.NewFileSet(), "modes.go", nil, 0)
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
		if want != "Recover" { // recover is Go's own
			assert.Equal(t, strings.ToLower(want[:1])+want[1:], function.Name)
		}
		return true
	})
	assert.Len(t, Rules(), named)
}
