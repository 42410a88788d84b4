//go:build unix && releases

package etcdproc

import (
	"os"
	"strings"
	"testing"
)

// Versions that the tests run against: the newest patch of each minor version that Quorate supports, or those in
// QUORATE_ETCD, such as 3.8.0, with the programs in bin/etcd-3.8.0 of the lab's folder.
var Versions = versions()

func versions() []string {
	if others := os.Getenv("QUORATE_ETCD"); others != "" {
		return strings.Split(others, ",")
	}
	return []string{"3.5.35", "3.6.16", "3.7.3"}
}

// Main is for members that are linked; these are not.
func Main() {}

// memberProgram is the released program of this version, in the environment of the test.
func memberProgram(t testing.TB, version string) (path string, environment []string) {
	t.Helper()
	return Program(t, version, "etcd"), nil
}
