package main

import (
	"fmt"
	"slices"
	"strings"
)

// The versions below work together; each is pinned by src/<source>/go.mod.
const (
	kubernetesVersion     = "1.36.3"
	containerdVersion     = "2.3.7"
	corednsVersion        = "1.14.7" // the last one with the libraries of a Kubernetes before 1.37
	provisionerVersion    = "0.0.30"
	metacontrollerVersion = "1.5.20" // the newest that the Go module proxy serves
	certManagerVersion    = "1.21.2"
	expandableVersion     = "2.2.0" // of external-resizer, with which our driver is built; 2.3 is for Kubernetes 1.37
	s3Version             = "1.8.0" // of versitygw
	fakeGCSVersion        = "1.56.1"
	pauseVersion          = "3.10" // the one containerd asks for; the binary is ours
)

var etcdVersions = []string{"3.5.35", controlPlaneEtcd, "3.7.3"}

// controlPlaneEtcd is the release that holds the cluster's own state. Its image is the one that every lab has.
const controlPlaneEtcd = "3.6.16"

// cluster is the folder of all that a cluster is made of: one module, so that
// they have each library in one version, which is compiled once for them all.
const cluster = "cluster"

// stores is the folder of the servers that stand for clouds' stores.
const stores = "stores"

// component is one thing that `lab build` makes.
type component struct {
	name     string // what `lab build NAME` calls it
	version  string
	source   string // folder under src, with a go.mod; the name, when empty
	binaries []binary
	links    []string // further names of the first binary
	alone    bool     // what it imports can't be loaded together with the rest of its module
	file     moduleFile
	optional bool // built by name, or by the command that needs it
}

func (c component) String() string {
	return strings.TrimSuffix(c.name, "-"+c.version) + " " + c.version
}

// binary is one main package and where its binary goes, relative to bin/.
type binary struct{ path, pkg string }

// moduleFile is a file of a module, or several in one, that is kept beside the binaries.
type moduleFile struct {
	module string
	from   string // a pattern, as filepath.Glob takes it
	to     string
}

// settings are how all of a module is built.
type settings struct{ ldflags, tags, gcflags string }

var modules = map[string]settings{
	cluster: {
		ldflags: kubernetesLDFlags(kubernetesVersion) +
			" -X github.com/containerd/containerd/v2/version.Version=v" + containerdVersion,
		tags: "no_devmapper no_tracing no_zfs nri_no_wasm", // parts of containerd
		// No debugger's tables, which the linker would drop, and no inlining: without both, Kubernetes compiles in half
		// the time. All else is compiled as Quorate is, and so only once.
		gcflags: "k8s.io/...=-dwarf=false -l",
	},
}

func components() []component {
	all := []component{
		{
			name: "kubernetes", version: kubernetesVersion, source: cluster,
			// kubectl by itself: stories start it often, and it starts faster so.
			binaries: []binary{{"kubernetes", "quorate.lab/cluster/kubernetes"}, {"kubectl", "k8s.io/kubernetes/cmd/kubectl"}},
			links:    []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"},
		},
		{
			name: "containerd", version: containerdVersion, source: cluster,
			binaries: []binary{
				{"containerd", "github.com/containerd/containerd/v2/cmd/containerd"},
				{"containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"},
				{"ctr", "github.com/containerd/containerd/v2/cmd/ctr"},
			},
		},
		{
			name: "coredns", version: corednsVersion, source: cluster,
			binaries: []binary{{"coredns", "quorate.lab/cluster/coredns"}},
		},
		{
			name: "pause", version: pauseVersion, source: cluster,
			binaries: []binary{{"pause", "quorate.lab/cluster/pause"}},
		},
		{
			// It and others import the same logger by names that differ in case.
			name: "local-path-provisioner", version: provisionerVersion, source: cluster, alone: true,
			binaries: []binary{{"local-path-provisioner", "github.com/rancher/local-path-provisioner"}},
		},
		{
			// Its own go.mod says `module metacontroller`; ours replaces that
			// name with the path under which the proxy serves it.
			name: "metacontroller", version: metacontrollerVersion,
			binaries: []binary{{"metacontroller-" + metacontrollerVersion + "/metacontroller", "metacontroller"}},
			file: moduleFile{
				module: "metacontroller",
				from:   "manifests/production/metacontroller-crds-v1.yaml",
				to:     "metacontroller-" + metacontrollerVersion + "/crds.yaml",
			},
		},
		{
			name: "cert-manager", version: certManagerVersion, optional: true,
			binaries: []binary{{"cert-manager-" + certManagerVersion + "/cert-manager",
				"github.com/cert-manager/cert-manager/lab"}},
			file: moduleFile{
				module: "github.com/cert-manager/cert-manager",
				from:   "deploy/crds/*.yaml",
				to:     "cert-manager-" + certManagerVersion + "/crds.yaml",
			},
		},
		{
			name: "expandable", version: expandableVersion, optional: true,
			binaries: []binary{{"expandable", "quorate.lab/expandable"}},
		},
		{
			// An S3 server whose buckets are folders.
			name: "s3", version: s3Version, source: stores, optional: true,
			binaries: []binary{{"versitygw", "github.com/versity/versitygw/cmd/versitygw"}},
		},
		{
			// Speaks Google's storage, over a folder or memory.
			name: "fake-gcs-server", version: fakeGCSVersion, source: stores, optional: true,
			binaries: []binary{{"fake-gcs-server", "github.com/fsouza/fake-gcs-server"}},
		},
	}
	for _, version := range etcdVersions {
		all = append(all, etcd(version))
	}
	return all
}

func etcd(version string) component {
	dir := "etcd-" + version + "/"
	source := "etcd-" + version[:strings.LastIndex(version, ".")]
	if version == controlPlaneEtcd {
		source = cluster
	}
	return component{
		name: "etcd-" + version, version: version, source: source, optional: version != controlPlaneEtcd,
		binaries: []binary{
			{dir + "etcd", "go.etcd.io/etcd/server/v3"},
			{dir + "etcdctl", "go.etcd.io/etcd/etcdctl/v3"},
			{dir + "etcdutl", "go.etcd.io/etcd/etcdutl/v3"},
		},
	}
}

// kubernetesLDFlags sets the version in both places that hold it: with one
// alone, servers and clients disagree about who they are.
func kubernetesLDFlags(version string) string {
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, set := range []string{
			"gitVersion=v" + version,
			"gitMajor=1",
			"gitMinor=" + strings.Split(version, ".")[1],
			"gitTreeState=clean",
			"gitCommit=gomodule",
			"buildDate=2026-01-01T00:00:00Z", // fixed, so that builds repeat
		} {
			flags = append(flags, "-X "+pkg+"."+set)
		}
	}
	return strings.Join(flags, " ")
}

// choose returns the components of these names; without names, all but the optional. "etcd" means every release.
func choose(names []string) ([]component, error) {
	all := components()
	if len(names) == 0 {
		return slices.DeleteFunc(all, func(c component) bool { return c.optional }), nil
	}
	var chosen []component
	for _, name := range names {
		before := len(chosen)
		for _, c := range all {
			if c.name == name || strings.HasPrefix(c.name, name+"-") {
				chosen = append(chosen, c)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("no component is called %q; there are %s", name, componentNames())
		}
	}
	return chosen, nil
}

func componentNames() string {
	var names []string
	for _, c := range components() {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}
