package command

import (
	"bytes"
	"errors"
	"flag"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNoValueOfAFlagIsRepeated: one that can't be read may be a secret that was meant for another flag.
func TestNoValueOfAFlagIsRepeated(t *testing.T) {
	for _, c := range []struct{ arg, says string }{
		{"--number=SECRET", "the value of --number can't be read"},
		{`--number=SECRET" for flag -other: `, "the value of --number can't be read"},
		{"--number=" + "SECRET\n\\\"", "the value of --number can't be read"},
		{"--really=SECRET", "the value of --really can't be read"},
		{"--no-such-flag=SECRET", "flag provided but not defined: -no-such-flag"},
		{"--no such flag SECRET=x", "a flag can't be read"},
		{"---=SECRET", "a flag can't be read"},
		{"SECRET", "takes flags, and no other arguments"},
		{"--number", "flag needs an argument: -number"},
		{"-h", "how many"},
	} {
		var said bytes.Buffer
		flags := flag.NewFlagSet("program", flag.ContinueOnError)
		flags.SetOutput(&said)
		flags.Int("number", 0, "how many")
		flags.Bool("really", false, "whether")
		err := Parse(flags, []string{c.arg})
		require.Error(t, err)
		if !errors.Is(err, ErrUsage) {
			said.WriteString(err.Error())
		}
		assert.NotContains(t, said.String(), "SECRET", c.arg)
		assert.Contains(t, said.String(), c.says)
	}
}
