//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func downCommand(l *lab, _ []string) error {
	if err := needRoot(); err != nil {
		return err
	}
	unlock, err := l.lockRun()
	if err != nil {
		return err
	}
	defer unlock()
	if !exists(l.run) {
		fmt.Println("no lab runs")
		return nil
	}
	l.running() // a folder without a shape is cleared as well as can be
	if err := l.down(os.Getenv("KEEP") != ""); err != nil {
		return err
	}
	fmt.Println("down")
	return nil
}

// down ends everything and verifies that nothing is left.
func (l *lab) down(keepFolder bool) error {
	networks := l.networkNamespaces()
	l.endProcesses()
	left := l.awaitGone(networks)
	if left == nil {
		left = l.clearMachine()
	}
	if left != nil {
		return fmt.Errorf("the lab in %s is not wholly down: %w", l.run, left)
	}
	if keepFolder {
		// Without its shape the folder counts as no lab, and the next up clears it.
		return os.Remove(l.shapeFile())
	}
	return os.RemoveAll(l.run)
}

// endProcesses kills the forwarder, and of each node the first process: the
// kernel ends the rest with it.
func (l *lab) endProcesses() {
	files, _ := filepath.Glob(filepath.Join(l.run, "*", "init.json"))
	for _, file := range append(files, l.forwarderFile()) {
		if p := readProcess(file); p.alive() {
			unix.Kill(p.PID, unix.SIGKILL)
		}
	}
}

// awaitGone waits until no process is left in the lab's groups or networks.
func (l *lab) awaitGone(networks map[string]bool) error {
	groups, err := readCgroups()
	if err != nil {
		return err
	}
	return waitFor("all processes to end", powerOffTime, func() error {
		pids := append(groups.processes(l.name), processesIn(networks)...)
		if len(pids) == 0 {
			return nil
		}
		return fmt.Errorf("still there: %s", describe(pids))
	})
}

func (l *lab) clearMachine() error {
	groups, err := readCgroups()
	if err != nil {
		return err
	}
	return errors.Join(groups.remove(l.name), l.releaseSysctls(), l.leftMounts())
}

// leftMounts: the nodes' mounts are private to them, so there should be none.
func (l *lab) leftMounts() error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, l.run+"/") {
			return fmt.Errorf("still mounted: %s", strings.TrimSpace(line))
		}
	}
	return nil
}

// networkNamespaces are those of the nodes that run, as "net:[4026531840]".
func (l *lab) networkNamespaces() map[string]bool {
	networks := map[string]bool{}
	files, _ := filepath.Glob(filepath.Join(l.run, "*", "init.json"))
	for _, file := range files {
		if p := readProcess(file); p.alive() {
			if name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.PID)); err == nil {
				networks[name] = true
			}
		}
	}
	return networks
}

// processesIn finds also those that someone started there by other means.
func processesIn(networks map[string]bool) []int {
	var pids []int
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil && networks[name] {
			if pid, err := strconv.Atoi(strings.Split(link, "/")[2]); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func describe(pids []int) string {
	var names []string
	for _, pid := range pids {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		names = append(names, fmt.Sprintf("%d (%s)", pid, strings.TrimSpace(string(name))))
	}
	return strings.Join(names, ", ")
}
