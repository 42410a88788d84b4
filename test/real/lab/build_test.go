package main

import (
	"os"
	"path/filepath"
	"slices"
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
		"kubernetes": "k8s.io/kubernetes", "containerd": "github.com/containerd/containerd/v2",
		"coredns":                "github.com/coredns/coredns",
		"local-path-provisioner": "github.com/rancher/local-path-provisioner", "metacontroller": "metacontroller",
		"cert-manager": "github.com/cert-manager/cert-manager",
		"expandable":   "github.com/kubernetes-csi/external-resizer/v2",
		"s3":           "github.com/versity/versitygw", "fake-gcs-server": "github.com/fsouza/fake-gcs-server",
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
		if got := required(t, l.moduleFolder(c))[module]; got != "v"+c.version {
			t.Errorf("%s: its go.mod has %s at %q, not at v%s", c.name, module, got, c.version)
		}
	}
}

// What a cluster is made of has the libraries of Quorate in Quorate's versions, so that they are compiled
// once. Kubernetes and etcd have versions of their own, with what belongs to them.
func TestVersionsAreShared(t *testing.T) {
	theirs := map[string]bool{
		// newer ones of containerd and CoreDNS
		"github.com/pelletier/go-toml/v2": true, "github.com/quic-go/quic-go": true,
		"cel.dev/expr": true, // Quorate does not compile it
		// Only `make try` does, for etcdctl 3.7.
		"github.com/cheggaaa/pb/v3": true, "github.com/fatih/color": true,
		"github.com/mattn/go-runewidth": true, "github.com/olekukonko/tablewriter": true,
		// Only its tests do, for the etcd that is linked into them.
		"github.com/gorilla/websocket": true, "go.opentelemetry.io/otel/exporters/otlp/otlptrace": true,
		"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc": true,
	}
	ours := required(t, filepath.Join(sourceFolder(), "..", "..", ".."))
	for module, version := range required(t, filepath.Join(sourceFolder(), "src", cluster)) {
		if strings.Contains(module, "k8s.io/") || strings.HasPrefix(module, "go.etcd.io/") || theirs[module] {
			continue
		}
		if want := ours[module]; want != "" && want != version {
			t.Errorf("%s is compiled twice, in %s and in Quorate's %s: go get -C test/real/lab/src/%s %[1]s@%[3]s",
				module, version, want, cluster)
		}
	}
}

// required reads the versions that a go.mod requires.
func required(t *testing.T, folder string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	must(t, err)
	versions := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "require ")
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], "v") {
			versions[fields[0]] = fields[1]
		}
	}
	return versions
}

// Components of one module are built by one command, if they can be loaded together.
func TestGroups(t *testing.T) {
	l := &lab{source: sourceFolder(), bin: t.TempDir()}
	groups, err := l.outdated(l.needed(components()), false)
	must(t, err)
	var got []string
	for _, group := range groups {
		var names []string
		for _, c := range group {
			names = append(names, c.name)
		}
		got = append(got, strings.Join(names, " "))
	}
	want := []string{"kubernetes containerd coredns pause etcd-" + controlPlaneEtcd,
		"local-path-provisioner", "metacontroller"}
	if !slices.Equal(got, want) {
		t.Errorf("groups are %q, want %q", got, want)
	}
}

func TestNamesOfBinaries(t *testing.T) {
	for pkg, want := range map[string]string{
		"quorate.lab/cluster/kubernetes": "kubernetes", "go.etcd.io/etcd/server/v3": "server",
		"metacontroller": "metacontroller",
		"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2": "containerd-shim-runc-v2",
	} {
		if got := (binary{pkg: pkg}).made(); got != want {
			t.Errorf("%s is made as %s, want %s", pkg, got, want)
		}
	}
}

func TestInputsNoticeChanges(t *testing.T) {
	l := &lab{source: t.TempDir()}
	folder := filepath.Join(l.source, "src", "thing")
	must(t, os.MkdirAll(folder, 0o755))
	seen := map[string]bool{}
	note := func(what string, c component) {
		hash, err := l.inputs(c)
		must(t, err)
		if seen[hash] {
			t.Errorf("%s does not change the inputs", what)
		}
		seen[hash] = true
	}
	c := component{name: "thing"}
	note("nothing", c)
	must(t, os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module thing\n"), 0o644))
	note("go.mod", c)
	must(t, os.MkdirAll(filepath.Join(folder, "main"), 0o755))
	must(t, os.WriteFile(filepath.Join(folder, "main", "main.go"), []byte("package main\n"), 0o644))
	note("a file below it", c)
	c.links = []string{"other"}
	note("a further name", c)
}

// must fails the test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
