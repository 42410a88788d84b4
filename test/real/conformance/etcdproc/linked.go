//go:build unix && !releases

package etcdproc

import (
	"os"
	"testing"

	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/etcdmain"
)

// Versions that the tests run against: the one etcd that go.mod names. Build tag releases takes the released programs
// instead.
var Versions = []string{version.Version}

// envMember tells the program of a test that it is a member.
const envMember = "QUORATE_TEST_MEMBER"

// Main comes first in a TestMain: members are processes of the test's own program, and in those it does not return.
func Main() {
	if os.Getenv(envMember) != "" {
		etcdmain.Main(os.Args)
		os.Exit(0)
	}
	mainCalled = true
}

var mainCalled bool // without it, a member would run the tests again

// memberProgram is the program of a member of this version, and what it finds in its environment.
func memberProgram(t testing.TB, of string) (path string, environment []string) {
	t.Helper()
	path, err := os.Executable()
	switch {
	case err != nil:
		t.Fatal(err)
	case !mainCalled:
		t.Fatal("TestMain does not call etcdproc.Main")
	case of != version.Version:
		t.Fatalf("etcd %s is not linked; run with -tags releases, after `make etcd-binaries`", of)
	}
	return path, append(os.Environ(), envMember+"=1")
}
