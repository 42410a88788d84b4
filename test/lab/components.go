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
	runcVersion           = "1.4.3"
	cniVersion            = "1.9.1"
	corednsVersion        = "1.15.0"
	provisionerVersion    = "0.0.30"
	metacontrollerVersion = "1.5.20" // the newest that the Go module proxy serves
	certManagerVersion    = "1.21.2"
	expandableVersion     = "2.2.0" // of external-resizer, with which our driver is built; 2.3 is for Kubernetes 1.37
	s3Version             = "1.8.0" // of versitygw
	fakeGCSVersion        = "1.56.1"
	pauseVersion          = "3.10" // the one containerd asks for; the binary is ours
)

var etcdVersions = []string{"3.5.35", "3.6.16", "3.7.3"}

// controlPlaneEtcd is the release that holds the cluster's own state.
const controlPlaneEtcd = "3.6.16"

// component is one thing that `lab build` makes out of one module folder.
type component struct {
	name     string // what `lab build NAME` calls it
	version  string
	source   string // folder under src; the name, when empty
	binaries []binary
	links    []string // further names of the first binary
	ldflags  string
	tags     string
	cgo      bool
	file     moduleFile
	optional bool // built by name, or by the command that needs it
}

// binary is one main package and where its binary goes, relative to bin/.
type binary struct{ path, pkg string }

// moduleFile is a file of a module, or several in one, that is kept beside the binaries.
type moduleFile struct {
	module string
	from   string // a pattern, as filepath.Glob takes it
	to     string
}

func components() []component {
	all := []component{
		{
			name: "kubernetes", version: kubernetesVersion,
			binaries: []binary{{"kubernetes", "."}},
			links:    []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"},
			ldflags:  kubernetesLDFlags(kubernetesVersion),
		},
		{
			name: "containerd", version: containerdVersion,
			binaries: []binary{
				{"containerd", "github.com/containerd/containerd/v2/cmd/containerd"},
				{"containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"},
				{"ctr", "github.com/containerd/containerd/v2/cmd/ctr"},
			},
			ldflags: "-X github.com/containerd/containerd/v2/version.Version=v" + containerdVersion,
		},
		{
			// runc's first stage is C, so it needs cgo and libseccomp. Debian's
			// crun would save the compiler, but refuses containerd 2's spec.
			name: "runc", version: runcVersion,
			binaries: []binary{{"runc", "github.com/opencontainers/runc"}},
			ldflags:  "-X main.version=" + runcVersion + " -linkmode external -extldflags -static",
			tags:     "seccomp netgo osusergo",
			cgo:      true,
		},
		{
			name: "cni", version: cniVersion,
			binaries: []binary{
				{"cni/bridge", "github.com/containernetworking/plugins/plugins/main/bridge"},
				{"cni/loopback", "github.com/containernetworking/plugins/plugins/main/loopback"},
				{"cni/host-local", "github.com/containernetworking/plugins/plugins/ipam/host-local"},
				{"cni/portmap", "github.com/containernetworking/plugins/plugins/meta/portmap"},
			},
			ldflags: "-X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=v" + cniVersion,
		},
		{
			name: "coredns", version: corednsVersion,
			binaries: []binary{{"coredns", "."}},
		},
		{
			name: "local-path-provisioner", version: provisionerVersion,
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
			binaries: []binary{{"cert-manager-" + certManagerVersion + "/cert-manager", "."}},
			file: moduleFile{
				module: "github.com/cert-manager/cert-manager",
				from:   "deploy/crds/*.yaml",
				to:     "cert-manager-" + certManagerVersion + "/crds.yaml",
			},
		},
		{
			name: "expandable", version: expandableVersion, optional: true,
			binaries: []binary{{"expandable", "."}},
		},
		{
			// An S3 server whose buckets are folders.
			name: "s3", version: s3Version, optional: true,
			binaries: []binary{{"versitygw", "github.com/versity/versitygw/cmd/versitygw"}},
		},
		{
			// Speaks Google's storage, over a folder or memory.
			name: "fake-gcs-server", version: fakeGCSVersion, optional: true,
			binaries: []binary{{"fake-gcs-server", "github.com/fsouza/fake-gcs-server"}},
		},
		{name: "pause", version: pauseVersion, binaries: []binary{{"pause", "."}}},
	}
	for _, version := range etcdVersions {
		all = append(all, etcd(version))
	}
	return all
}

func etcd(version string) component {
	dir := "etcd-" + version + "/"
	return component{
		name: "etcd-" + version, version: version,
		source: "etcd-" + version[:strings.LastIndex(version, ".")],
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
