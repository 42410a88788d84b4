package kubelet

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestExpandIsTheKubelets(t *testing.T) {
	// Cases of expand_test.go in third_party/forked/golang/expansion.
	env := map[string]string{"VAR_A": "A", "VAR_B": "B", "VAR_C": "C", "VAR_REF": "$(VAR_A)", "VAR_EMPTY": ""}
	find := func(name string) (string, bool) { value, is := env[name]; return value, is }
	for in, want := range map[string]string{
		"$(VAR_A)": "A", "___$(VAR_B)___": "___B___", "$(VAR_A)-1": "A-1", "$(VAR_REF)": "$(VAR_A)",
		"%%$(VAR_REF)--$(VAR_REF)%%": "%%$(VAR_A)--$(VAR_A)%%",
		"foo$(VAR_EMPTY)bar":         "foobar", "$$(VAR_A)": "$(VAR_A)", "$$$(VAR_A)": "$A", "$$$$(VAR_A)": "$$(VAR_A)",
		"$(VAR_A$(VAR_B)": "$(VAR_A$(VAR_B)",
		"$VAR_A":          "$VAR_A", "$": "$", "$$": "$", "\\$(VAR_A)": "\\A", "$(foo)": "$(foo)", "f$(VAR_A": "f$(VAR_A",
		"()": "()",
	} {
		assert.Equal(t, want, expand(in, find), fmt.Sprintf("%q", in))
	}
}
