package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ours begins the path of each package of this module.
const ours = "github.com/quorate-dev/quorate"

// layers are the packages of the product from the bottom to the top: imports run down and never up. A package uses
// those that its line names (hooks/ is all below hooks), and those before it on its own line if the line says "own".
var layers = []struct{ packages, uses, because string }{
	{"hooks/api/v1beta1", "", "the API is the ground"},
	{"hooks/contents hooks/objects hooks/timetable hooks/users", "hooks/api/", "a leaf uses the API types alone"},
	{"hooks/stores hooks/record hooks/record/recordtest", "own hooks/api/ hooks/objects",
		"it uses leaves that decide nothing"},
	{"hooks/decision hooks/observation hooks/defaults", "own hooks/api/ hooks/objects hooks/record hooks/stores " +
		"hooks/timetable hooks/users", "what goes in and comes out knows no rule"},
	{"hooks/snapshot", "hooks/api/ hooks/decision hooks/objects hooks/stores",
		"what becomes of a snapshot knows neither clusters' rules nor schedules"},
	{"hooks/operation", "hooks/api/ hooks/decision hooks/objects", "its cluster does an operation: here it is told of"},
	{"hooks/mirror", "hooks/api/ hooks/decision hooks/objects hooks/snapshot hooks/stores",
		"a mirror does not know clusters' rules"},
	{"hooks/schedule", "hooks/api/ hooks/decision hooks/objects hooks/snapshot hooks/stores hooks/timetable",
		"a schedule does not know clusters' rules"},
	{"hooks/facts", "hooks/api/ hooks/decision hooks/defaults hooks/objects hooks/observation hooks/record " +
		"hooks/snapshot hooks/stores hooks/users", "facts judge nothing"},
	{"hooks/rules", "hooks/api/ hooks/decision hooks/defaults hooks/facts hooks/objects hooks/observation " +
		"hooks/record hooks/users", "a rule plans by the facts, and makes no object"},
	{"hooks/answer", "hooks/api/ hooks/decision hooks/defaults hooks/facts hooks/objects hooks/observation " +
		"hooks/record hooks/rules hooks/stores hooks/users", "an answer carries a plan out: no oracle"},
	{"hooks/safety", "hooks/api/ hooks/decision hooks/defaults hooks/facts hooks/objects hooks/observation " +
		"hooks/record hooks/stores hooks/timetable", "the oracle has the facts in common with the rules, and no judgement"},
	{"hooks/journal", "hooks/api/ hooks/decision hooks/observation hooks/users",
		"it writes down what was observed and decided, and decides nothing"},
	{"hooks", "hooks/answer hooks/api/ hooks/decision hooks/facts hooks/observation hooks/rules hooks/safety hooks/users",
		"one call asks the rules and the oracle"},

	{"etcdops/command etcdops/datadir", "", "commands use it, and it uses none of ours"},
	{"etcdops/prepare", "etcdops/command etcdops/datadir hooks/", "it runs before etcd, and talks to none"},
	{"etcdops/trim", "etcdops/command", "it runs beside etcd, and talks to none"},
	{"etcdops/quorate-trim", "etcdops/trim", "Go's own library is all that it needs"},
	{"etcdops/reach etcdops/token etcdops/pki etcdops", "own hooks/", "imports run one way: server -> etcdops -> hooks"},
	{"etcdops/backup/pages", "", "the pages of a database are bytes: it knows neither etcd nor us"},
	{"etcdops/backup/lone etcdops/backup/archive etcdops/backup/stream etcdops/backup/mirror etcdops/backup/seed",
		"own etcdops/backup/pages etcdops/reach etcdops/token hooks/",
		"imports run one way: seed, mirror -> stream -> archive -> lone, pages; flags are for etcdops/backup/snapshot"},
	{"etcdops/backup/rescue etcdops/backup/snapshot etcdops/quorate-snapshot",
		"own etcdops/backup/ etcdops/command etcdops/datadir etcdops/reach etcdops/token hooks/",
		"the program quorate-snapshot knows no server and installs nothing"},

	{"manifests", "", "manifests are files"},
	{"internal/ui", "", "a page knows what it shows, and not where that comes from"},
	{"internal/kubectl/check internal/kubectl", "own internal/ui etcdops hooks/ manifests",
		"the plugin is a client: it knows nothing of the server, and no store of snapshots"},
	{"internal/install", "etcdops/command hooks/ manifests internal/kubectl", "it prints, and calls kubectl"},
	{"server/metrics", "hooks/", "imports run one way: server -> metrics -> hooks"},
	{"server/wire", "etcdops/pki hooks/", "it is the format of calls: it asks no etcd and knows no route"},
	{"server", "etcdops etcdops/pki hooks/ server/metrics server/wire",
		"the server installs nothing, knows no plugin, and stores are for quorate-snapshot"},
	{"internal/journal", "etcdops/command hooks/ server", "it asks a server, and decides by the hooks"},
	{".", "etcdops etcdops/command etcdops/prepare hooks/ internal/install internal/journal internal/kubectl server " +
		"server/metrics server/wire", "the program quorate links no store of snapshots: docs/decisions/0031-two-programs.md"},
}

// byTests is what the tests of some packages use besides.
var byTests = []struct{ tests, use string }{
	{"hooks/", "test/simulated/kubelet"},
	{"hooks/", "hooks/record/recordtest"},
	{".", "test/static/docs"},
	{"internal/", "test/static/docs"},
	{"server/", "test/static/docs"},
	{"server/", "test/certtest"},
	{"etcdops/", "test/certtest"},
	{"internal/", "test/certtest"},
	{"hooks", "hooks/"},
	{"internal/kubectl", "server/wire"},
}

const (
	clouds = "etcdops/backup/archive etcdops/backup/mirror etcdops/backup/rescue etcdops/backup/seed " +
		"etcdops/backup/pages etcdops/backup/snapshot etcdops/backup/stream etcdops/quorate-snapshot"
	noClouds = "the program quorate, which is the plugin too, links no cloud and no etcd server"
)

// modules are what is not ours, and the packages that may use it. What is on no line is used by no package. Tests take
// what they like, except what no package may use.
var modules = []struct{ modules, by, because string }{
	{"k8s.io/api k8s.io/apimachinery", ". etcdops/pki etcdops/backup/rescue hooks/ internal/ server/",
		"the rest of etcdops knows etcd, and no Kubernetes"},
	{"k8s.io/client-go sigs.k8s.io/controller-runtime", "", "Quorate never calls the Kubernetes API"},
	{"sigs.k8s.io/yaml", "etcdops/backup/rescue internal/install internal/kubectl/", "objects are JSON on the wire"},
	{"github.com/robfig/cron/v3", "hooks/defaults hooks/timetable", "what a schedule says"},
	{"github.com/gin-gonic/gin", "server", "HTTP's routes are the server's"},
	{"github.com/prometheus", "server/metrics", "package metrics counts"},
	{"go.opentelemetry.io github.com/go-logr/logr", "server", "the server traces, and others hear of no span"},
	{"github.com/go-json-experiment/json", "hooks/journal hooks/objects hooks/record server/wire",
		"calls are read by wire, single objects by objects.Read, records by record.Read, and journals by journal.Read"},
	{"go.etcd.io/etcd/api go.etcd.io/etcd/client go.uber.org/zap google.golang.org/grpc google.golang.org/protobuf",
		"etcdops etcdops/token " + clouds, "etcdops alone talks to etcd"},
	{"gocloud.dev cloud.google.com github.com/aws github.com/Azure google.golang.org/api golang.org/x/oauth2 " +
		"golang.org/x/crypto filippo.io/age github.com/klauspost/compress", clouds, noClouds},
	{"go.etcd.io/bbolt go.etcd.io/etcd/server go.etcd.io/raft golang.org/x/sys", clouds, noClouds},
}

// std are packages of Go's own that some of ours do without, and whatever is below them. net is itself alone: net/url
// and net/netip only take strings apart.
var std = []struct{ packages, notBy, because string }{
	{"net net/http os syscall io/ioutil", "hooks/", "hooks does no I/O: what it needs to know is in the Observation"},
	{"math/rand crypto/rand", "hooks/", "a decision is deterministic"},
	{"log", "hooks/", "a decision says why in Because; the edge logs it"},
}

// imported is an import in a file of the product, as file:line.
type imported struct {
	place, by, path string
	test            bool
}

func TestImports(t *testing.T) {
	for _, i := range imports(t, ".") {
		if because := forbidden(i); because != "" {
			t.Errorf("%s: %s uses %s: %s", i.place, i.by, strings.TrimPrefix(i.path, ours+"/"), because)
		}
	}
	var below []string
	for _, l := range layers {
		for used := range strings.FieldsSeq(l.uses) {
			known := used == "own" || slices.ContainsFunc(below, func(p string) bool { return covers(used, p) })
			assert.True(t, known, "%s: %s is not in a layer below", l.packages, used)
		}
		below = append(below, strings.Fields(l.packages)...)
	}
}

// TestForbiddenImports: each rule above refuses what it is for.
func TestForbiddenImports(t *testing.T) {
	for _, c := range []struct {
		by, path, because string
		test              bool
	}{
		{"hooks/users", ours + "/hooks/objects", "a leaf", false},
		{"hooks/answer", ours + "/hooks/safety", "no oracle", false},
		{"hooks/rules", ours + "/hooks/answer", "makes no object", false},
		{"hooks/safety", ours + "/hooks/rules", "no judgement", true},
		{"hooks/facts", ours + "/test/simulated/kubelet", "does not know its tests", false},
		{"hooks", ours + "/etcdops", "one call", false},
		{"etcdops", ours + "/server", "imports run one way", true},
		{"etcdops/backup/archive", ours + "/etcdops/backup/stream", "imports run one way", false},
		{"server", ours + "/etcdops/backup/archive", "stores", false},
		{"server/wire", ours + "/etcdops", "asks no etcd", false},
		{"internal/kubectl", ours + "/server", "client", false},
		{"server/metrics", ours + "/test/simulated/kubelet", "does not know its tests", true},
		{"server/other", ours + "/hooks", "in no layer", false},
		{"server", ours + "/test/simulated/world", "does not know its tests", true},
		{"hooks/facts", "os/exec", "no I/O", false},
		{"hooks", "net", "no I/O", false},
		{"hooks/decision", "math/rand/v2", "deterministic", false},
		{"hooks/rule", "log/slog", "the edge logs", false},
		{"hooks/objects", "sigs.k8s.io/yaml", "JSON", false},
		{"hooks/objects", "example.com/other", "no line of modules", false},
		{"server", "k8s.io/client-go/kubernetes", "never calls", true},
		{"etcdops", "gocloud.dev/blob", noClouds, false},
		{"server", "github.com/prometheus/client_golang/prometheus", "metrics counts", false},
		{"server/wire", "github.com/gin-gonic/gin", "routes", false},
		{"etcdops", "go.opentelemetry.io/otel/trace", "hear of no span", false},
		{"etcdops/datadir", "k8s.io/api/core/v1", "no Kubernetes", false},
	} {
		assert.Contains(t, forbidden(imported{"", c.by, c.path, c.test}), c.because, "%s uses %s", c.by, c.path)
	}
	for _, c := range [][2]string{{"hooks/endpoints", "net/netip"}, {"hooks/rule", "slices"}, {"server", "net"},
		{"etcdops/prepare", ours + "/hooks/objects"}, {"server/wire", ours + "/hooks"}} {
		assert.Empty(t, forbidden(imported{by: c[0], path: c[1]}), c)
	}
}

// forbidden says why a package must not have an import, or nothing.
func forbidden(i imported) string {
	within, own := strings.CutPrefix(i.path, ours+"/")
	first, _, _ := strings.Cut(i.path, "/")
	switch {
	case i.test && forTests(i.by, within):
		return ""
	case own && covers("test/", within):
		return "the product does not know its tests"
	case own:
		return upwards(i, within)
	case strings.Contains(first, "."):
		return external(i)
	}
	for _, s := range std {
		for p := range strings.FieldsSeq(s.packages) {
			is := i.path == p || p != "net" && covers(p+"/", i.path)
			if is && listed(s.notBy, i.by) && !i.test {
				return s.because
			}
		}
	}
	return ""
}

// upwards is about packages of ours.
func upwards(i imported, within string) string {
	for _, l := range layers {
		packages := strings.Fields(l.packages)
		at := slices.Index(packages, i.by)
		if at < 0 {
			continue
		}
		before := strings.Join(packages[:at], " ")
		if listed(l.uses, within) {
			return ""
		}
		if listed(l.uses, "own") && listed(before, within) || i.test && forTests(i.by, within) {
			return ""
		}
		return l.because
	}
	return i.by + " is in no layer of imports_test.go"
}

func forTests(by, within string) bool {
	for _, b := range byTests {
		if covers(b.tests, by) && covers(b.use, within) {
			return true
		}
	}
	return by == within // a test beside its package
}

// external is about modules that are not ours.
func external(i imported) string {
	for _, m := range modules {
		for module := range strings.FieldsSeq(m.modules) {
			switch {
			case !covers(module+"/", i.path):
			case listed(m.by, i.by), i.test && m.by != "":
				return ""
			default:
				return m.because
			}
		}
	}
	if i.test {
		return ""
	}
	return i.path + " is on no line of modules in imports_test.go"
}

// listed: one of these names covers the path.
func listed(names, path string) bool {
	return slices.ContainsFunc(strings.Fields(names), func(name string) bool { return covers(name, path) })
}

// covers: name is the path, or name ends in a slash and the path is it or below it.
func covers(name, path string) bool {
	above, folder := strings.CutSuffix(name, "/")
	return path == above || folder && strings.HasPrefix(path, name)
}

// imports are those of every file of the product, for whatever system and with whatever tags it is compiled.
func imports(t *testing.T, root string) (all []imported) {
	t.Helper()
	files := token.NewFileSet()
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := name != "." && strings.HasPrefix(d.Name(), ".")
		if d.IsDir() && (hidden || slices.Contains([]string{"bin", "docs", "test"}, name)) {
			return fs.SkipDir
		}
		if d.IsDir() || path.Ext(name) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(files, filepath.Join(root, name), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			line := fmt.Sprintf("%s:%d", name, files.Position(spec.Pos()).Line)
			quoted := strings.Trim(spec.Path.Value, `"`)
			all = append(all, imported{line, path.Dir(name), quoted, strings.HasSuffix(name, "_test.go")})
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(all), 500)
	return all
}
