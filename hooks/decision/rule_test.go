package decision

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheFirstThatAppliesDecides(t *testing.T) {
	over := func(most int, says string) func(int) string {
		return func(n int) string {
			if n <= most {
				return ""
			}
			return says
		}
	}
	list := Rules[int, string]{NewRule("Many", "", over(10, "many")), NewRule("Some", "", over(0, "some")),
		NewRule("None", "", over(-1, "none"))}
	for n, want := range map[int]string{11: "Many many", 1: "Some some", 0: "None none"} {
		at, says := list.First(n)
		assert.Equal(t, want, list[at].Name+" "+says)
	}
	assert.Empty(t, list[0].Ask(10))
	assert.Panics(t, func() { list.First(-1) }, "a list whose last rule does not apply")
}
