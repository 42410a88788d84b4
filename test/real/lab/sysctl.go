//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// kubelet sets these for the whole machine, whatever namespaces it is in. The
// first lab on a machine remembers what they were and the last puts them back;
// both facts are in /run, as a reboot resets the settings anyway.
var machineSysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom",
	"kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

const (
	sysctlFolder = "/run/quorate-labs"
	sysctlSaved  = sysctlFolder + "/sysctls.json"
	sysctlUsers  = sysctlFolder + "/running"
)

// holdSysctls notes that this lab runs.
func (l *lab) holdSysctls() error {
	if err := os.MkdirAll(sysctlUsers, 0o755); err != nil {
		return err
	}
	if !exists(sysctlSaved) {
		saved := map[string]string{}
		for _, name := range machineSysctls {
			if value, err := os.ReadFile(filepath.Join("/proc/sys", name)); err == nil {
				saved[name] = strings.TrimSpace(string(value))
			}
		}
		if err := os.WriteFile(sysctlSaved, encode(saved), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(sysctlUsers, l.name), nil, 0o644)
}

// releaseSysctls notes that this lab has ended.
func (l *lab) releaseSysctls() error {
	os.Remove(filepath.Join(sysctlUsers, l.name))
	others, _ := os.ReadDir(sysctlUsers)
	if len(others) > 0 || !exists(sysctlSaved) {
		return nil
	}
	text, err := os.ReadFile(sysctlSaved)
	if err != nil {
		return err
	}
	var saved map[string]string
	if err := json.Unmarshal(text, &saved); err != nil {
		return fmt.Errorf("%s: %w", sysctlSaved, err)
	}
	for name, value := range saved {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644); err != nil {
			return fmt.Errorf("putting %s back to %s: %w", name, value, err)
		}
	}
	return os.RemoveAll(sysctlFolder)
}
