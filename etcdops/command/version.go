package command

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Build is what a program was built from.
type Build struct{ Version, Commit string }

// Built is the build of this program: what the linker was told (-X main.version=v1.2.3 -X main.commit=0123abc456de),
// or else what Go has recorded.
func Built(version, commit string) Build {
	info, _ := debug.ReadBuildInfo()
	return built(version, commit, info)
}

// String is what the programs call themselves to others.
func (b Build) String() string { return fmt.Sprintf("%s (commit %s)", b.Version, b.Commit) }

// Line is what the command version prints.
func (b Build) Line(program string) string {
	return fmt.Sprintf("%s %s (commit %s, %s, %s/%s)\n", program, b.Version, b.Commit, runtime.Version(), runtime.GOOS,
		runtime.GOARCH)
}

// built is the version and the commit of a build: what the linker was told, or else what Go has recorded, as `go
// install ...@v1.2.3` and a plain `go build` in a clone do. Info may be nil.
func built(version, commit string, info *debug.BuildInfo) Build {
	recorded := map[string]string{}
	if info != nil {
		recorded["version"] = info.Main.Version
		for _, s := range info.Settings {
			recorded[s.Key] = s.Value
		}
	}
	if version == "" {
		version = "devel"
		if v := recorded["version"]; v != "" && v != "(devel)" {
			version = v
		}
	}
	if commit == "" {
		commit = "unknown"
		if c := recorded["vcs.revision"]; c != "" {
			commit = c[:min(len(c), 12)]
			if recorded["vcs.modified"] == "true" {
				commit += "-dirty"
			}
		} else if c := pseudo(version); c != "" {
			commit = c
		}
	}
	return Build{version, commit}
}

// pseudo is the commit in a version that Go made for a commit without a tag, such as
// v0.1.1-0.20261122093000-0123abc456de; else empty.
func pseudo(version string) string {
	version, _, _ = strings.Cut(version, "+")
	parts := strings.Split(version, "-")
	if last := parts[len(parts)-1]; len(parts) > 2 && len(last) == 12 {
		return last
	}
	return ""
}
