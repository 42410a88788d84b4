package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	for name, want := range map[string]int{"etcd": len(etcdVersions), "etcd-3.6.16": 1, "kubernetes": 1} {
		chosen, err := choose([]string{name})
		if err != nil || len(chosen) != want {
			t.Errorf("%s: %d components, %v; want %d", name, len(chosen), err, want)
		}
	}
	if _, err := choose([]string{"etc"}); err == nil || !strings.Contains(err.Error(), "etcd-3.6.16") {
		t.Errorf("an unknown name should be answered with the known ones: %v", err)
	}
}

// The module folders pin the very versions that the table tells.
func TestVersionsArePinned(t *testing.T) {
	modules := map[string]string{
		"kubernetes": "k8s.io/kubernetes", "containerd": "github.com/containerd/containerd/v2", "runc": "github.com/opencontainers/runc",
		"cni": "github.com/containernetworking/plugins", "coredns": "github.com/coredns/coredns",
		"local-path-provisioner": "github.com/rancher/local-path-provisioner", "metacontroller": "metacontroller",
		"cert-manager": "github.com/cert-manager/cert-manager", "expandable": "github.com/kubernetes-csi/external-resizer/v2",
		"fake-gcs-server": "github.com/fsouza/fake-gcs-server",
	}
	l := &lab{source: sourceFolder()}
	for _, c := range components() {
		if c.name == "pause" {
			continue
		}
		module := modules[c.name]
		if strings.HasPrefix(c.name, "etcd-") {
			module = "go.etcd.io/etcd/server/v3"
		}
		text, err := os.ReadFile(filepath.Join(l.moduleFolder(c), "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), module+" v"+c.version) {
			t.Errorf("%s: its go.mod does not have %s at v%s", c.name, module, c.version)
		}
	}
}

func TestInputsNoticeChanges(t *testing.T) {
	l := &lab{source: t.TempDir()}
	folder := filepath.Join(l.source, "src", "thing")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	note := func(what string, c component) {
		hash, err := l.inputs(c)
		if err != nil {
			t.Fatal(err)
		}
		if seen[hash] {
			t.Errorf("%s does not change the inputs", what)
		}
		seen[hash] = true
	}
	c := component{name: "thing"}
	note("nothing", c)
	if err := os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module thing\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	note("go.mod", c)
	c.ldflags = "-X main.version=2"
	note("a linker flag", c)
}
