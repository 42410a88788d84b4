package command

import (
	"bytes"
	"errors"
	"flag"
	"runtime"
	"runtime/debug"
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

// TestBuilt: however the binary was built, it says its version and commit, as far as they are known.
func TestBuilt(t *testing.T) {
	info := func(version string, settings ...string) *debug.BuildInfo {
		b := &debug.BuildInfo{Main: debug.Module{Version: version}}
		for i := 0; i < len(settings); i += 2 {
			b.Settings = append(b.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return b
	}
	const hash = "0123abc456def7890123abc456def7890123abc4"
	for _, c := range []struct {
		way, version, commit string
		info                 *debug.BuildInfo
		wantVersion, want    string
	}{
		{"make build", "v1.2.3", "0123abc456de", info("(devel)"), "v1.2.3", "0123abc456de"},
		{"make build outside of a clone", "v0.1.0", "unknown", info("(devel)"), "v0.1.0", "unknown"},
		{"the linker wins", "v1.2.3", "0123abc456de", info("v9.9.9", "vcs.revision", "ffff"), "v1.2.3", "0123abc456de"},
		{"go install of a tag", "", "", info("v1.2.3"), "v1.2.3", "unknown"},
		{"go install of a commit", "", "", info("v0.1.1-0.20261122093000-0123abc456de"),
			"v0.1.1-0.20261122093000-0123abc456de", "0123abc456de"},
		{"go install of a commit before any tag", "", "", info("v0.0.0-20261122093000-0123abc456de"),
			"v0.0.0-20261122093000-0123abc456de", "0123abc456de"},
		{"a release candidate", "", "", info("v1.2.3-rc.1"), "v1.2.3-rc.1", "unknown"},
		{"go build in a clone", "", "",
			info("v0.1.1-0.20261122093000-0123abc456de+dirty", "vcs.revision", hash, "vcs.modified", "true"),
			"v0.1.1-0.20261122093000-0123abc456de+dirty", "0123abc456de-dirty"},
		{"go build -buildvcs=false", "", "", info("(devel)"), "devel", "unknown"},
		{"nothing recorded", "", "", nil, "devel", "unknown"},
	} {
		assert.Equal(t, Build{c.wantVersion, c.want}, built(c.version, c.commit, c.info), c.way)
	}
	assert.Equal(t, "quorate v1.2.3 (commit 0123, "+runtime.Version()+", "+runtime.GOOS+"/"+runtime.GOARCH+")\n",
		Build{"v1.2.3", "0123"}.Line("quorate"))
}
