package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Set by the linker: -X main.version=v1.2.3 -X main.commit=0123abc456de. Without, Go's own record of the build is asked.
var version, commit string

func init() {
	info, _ := debug.ReadBuildInfo()
	version, commit = built(version, commit, info)
}

// built is the version and the commit of a build: what the linker was told, or else what Go has recorded, as `go install ...@v1.2.3` and
// a plain `go build` in a clone do. Info may be nil.
func built(version, commit string, info *debug.BuildInfo) (string, string) {
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
	return version, commit
}

// pseudo is the commit in a version that Go made for a commit without a tag, such as v0.1.1-0.20261122093000-0123abc456de; else empty.
func pseudo(version string) string {
	version, _, _ = strings.Cut(version, "+")
	parts := strings.Split(version, "-")
	if last := parts[len(parts)-1]; len(parts) > 2 && len(last) == 12 {
		return last
	}
	return ""
}

// versionLine is what `quorate version` prints.
func versionLine() string {
	return fmt.Sprintf("quorate %s (commit %s, %s, %s/%s)\n", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
