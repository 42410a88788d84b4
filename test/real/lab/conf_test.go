//go:build linux

package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every template is filled in by the code's own values, so that a misspelled
// name shows here and not when a lab starts.
func TestConfFiles(t *testing.T) {
	for _, f := range []families{v4, v6, dual} {
		t.Run(string(f), func(t *testing.T) { confFilesOf(t, f) })
	}
}

func confFilesOf(t *testing.T, f families) {
	l := &lab{bin: "/bin-folder", run: t.TempDir(), nodes: 2, families: f}
	n := l.node(2)
	must(t, n.writeFiles())
	values := map[string]map[string]any{
		"base.yaml":         {"DNS": n.lab.dnsServiceIPs(), "Families": n.lab.names(), "IPs": n.ips()},
		"cert-manager.yaml": {"Image": "x:y", "Content": "sha256:0"},
		"metacontroller.yaml": {"Image": "x:y", "Content": "sha256:0", "Args": metacontroller{version: "4.17.2"}.args(),
			"Old": false},
	}
	files, err := fs.ReadDir(confFiles, "conf")
	must(t, err)
	for _, file := range files {
		text, err := conf(file.Name(), values[file.Name()])
		if err != nil && values[file.Name()] != nil {
			t.Error(err)
		}
		if strings.Contains(string(text), "<no value>") {
			t.Errorf("%s lacks a value:\n%s", file.Name(), text)
		}
	}
	conflist, err := os.ReadFile(filepath.Join(n.disk("/etc/cni/net.d"), "10-lab.conflist"))
	must(t, err)
	var network struct {
		Plugins []struct {
			IPAM struct {
				Ranges [][]struct{ Subnet string }
				Routes []struct{ Dst string }
			}
		}
	}
	must(t, json.Unmarshal(conflist, &network))
	ipam := network.Plugins[0].IPAM
	for i, subnet := range n.podCIDRs() {
		if ipam.Ranges[i][0].Subnet != subnet || ipam.Routes[i].Dst != l.everywhere()[i]+"/0" {
			t.Errorf("a pod of %s gets %+v", f, ipam)
		}
	}
}

func TestFamilies(t *testing.T) {
	t.Setenv("QUORATE_LAB_IP", "v5")
	if _, err := newLab(); err == nil || !strings.Contains(err.Error(), "v4, v6 or dual") {
		t.Errorf("v5: %v", err)
	}
	n := node{&lab{families: dual}, 3}
	if got := strings.Join(n.ips(), " "); got != "172.30.0.3 fd00:172:30::3" {
		t.Errorf("node3 has %s", got)
	}
	n.lab.families = v6
	if got := n.at(6443); got != "[fd00:172:30::3]:6443" {
		t.Errorf("node3 is at %s", got)
	}
}

func TestMetacontrollerFlagsFollowTheVersion(t *testing.T) {
	for version, want := range map[string]string{"1.5.20": "--debug-addr", "4.17.2": "--metrics-address"} {
		if args := strings.Join(metacontroller{version: version}.args(), " "); !strings.Contains(args, want) {
			t.Errorf("version %s: %s lacks %s", version, args, want)
		}
	}
}

// The lab takes the newest release of Metacontroller that lies ready, unless it is told.
func TestChooseMetacontroller(t *testing.T) {
	l := &lab{bin: t.TempDir()}
	chosen := func() string {
		t.Helper()
		m, err := l.chooseMetacontroller()
		must(t, err)
		return m.version
	}
	for _, name := range []string{"METACONTROLLER", "METACONTROLLER_VERSION", "METACONTROLLER_CRDS"} {
		t.Setenv(name, "")
	}
	if got := chosen(); got != metacontrollerVersion || !l.builtMetacontroller() {
		t.Errorf("without any, %s is run, which is not the one that is built", got)
	}
	source, static := filepath.Join(t.TempDir(), "main.go"), filepath.Join(t.TempDir(), "static")
	must(t, os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o644))
	build := exec.Command("go", "build", "-o", static, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	binary, err := os.ReadFile(static)
	must(t, err)
	for _, version := range []string{"4.9.0", "4.17.2", "4.18.0-half"} {
		m := l.metacontrollerIn(version)
		os.MkdirAll(filepath.Dir(m.binary), 0o755)
		os.WriteFile(m.binary, binary, 0o755)
		if version != "4.18.0-half" {
			os.WriteFile(m.crds, nil, 0o644)
		}
	}
	if got := chosen(); got != "4.17.2" || l.builtMetacontroller() {
		t.Errorf("%s was chosen; 4.17.2 is the newest that is whole", got)
	}
	t.Setenv("METACONTROLLER_VERSION", "v"+metacontrollerVersion)
	if got := chosen(); got != metacontrollerVersion {
		t.Errorf("%s was chosen, and %s asked for", got, metacontrollerVersion)
	}
	t.Setenv("METACONTROLLER_VERSION", "4.18.0")
	if _, err := l.chooseMetacontroller(); err == nil {
		t.Error("a release that is not there was chosen")
	}
	t.Setenv("METACONTROLLER_VERSION", "")
	t.Setenv("METACONTROLLER", static)
	if _, err := l.chooseMetacontroller(); err == nil || !strings.Contains(err.Error(), "METACONTROLLER_VERSION") {
		t.Errorf("a binary without its version: %v", err)
	}
}
