//go:build linux

package main

import (
	"io/fs"
	"strings"
	"testing"
)

// Every template is filled in by the code's own values, so that a misspelled
// name shows here and not when a lab starts.
func TestConfFiles(t *testing.T) {
	l := &lab{bin: "/bin-folder", run: t.TempDir(), nodes: 2}
	n := l.node(2)
	if err := n.writeFiles(); err != nil {
		t.Fatal(err)
	}
	values := map[string]map[string]any{
		"base.yaml":           {"DNS": dnsServiceIP, "IP": "172.30.0.1"},
		"cert-manager.yaml":   {"Image": "x:y", "Content": "sha256:0"},
		"metacontroller.yaml": {"Image": "x:y", "Content": "sha256:0", "Args": metacontroller{version: "4.17.2"}.args()},
	}
	files, err := fs.ReadDir(confFiles, "conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := conf(file.Name(), values[file.Name()])
		if err != nil && values[file.Name()] != nil {
			t.Error(err)
		}
		if strings.Contains(string(text), "<no value>") {
			t.Errorf("%s lacks a value:\n%s", file.Name(), text)
		}
	}
}

func TestMetacontrollerFlagsFollowTheVersion(t *testing.T) {
	for version, want := range map[string]string{"1.5.20": "--debug-addr", "4.17.2": "--metrics-address"} {
		if args := strings.Join(metacontroller{version: version}.args(), " "); !strings.Contains(args, want) {
			t.Errorf("version %s: %s lacks %s", version, args, want)
		}
	}
}
