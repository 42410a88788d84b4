//go:build unix && releases

package etcdproc

import (
	"os"
	"path/filepath"
	"testing"
)

// envLab names the environment variable for the folder that holds bin/etcd-<version>/etcd. Without it, the folder is
// quorate-lab in the user's cache.
const envLab = "QUORATE_LAB"

// Program is etcd, etcdctl or etcdutl of a version. A missing one fails the test.
func Program(t testing.TB, version, name string) string {
	t.Helper()
	path := filepath.Join(lab(t), "bin", "etcd-"+version, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("etcd %s is missing (%v): run `make etcd-binaries`, or set %s", version, err, envLab)
	}
	return path
}

// Tool is another program that the lab has built. A missing one fails the test.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(lab(t), "bin", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is missing (%v): run `make store-servers`, or set %s", name, err, envLab)
	}
	return path
}

func lab(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(envLab); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "quorate-lab")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatalf("no home directory: %v", err)
	}
	return filepath.Join(home, ".cache", "quorate-lab")
}
