//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// startSwitch boots node 0 with the bridge.
func (l *lab) startSwitch() error {
	if err := l.netSwitch().boot(); err != nil {
		return err
	}
	return l.netSwitch().setNetwork("link add bridge0 type bridge", "link set lo up", "link set bridge0 up")
}

// plugIn joins a node that has booted to the switch.
func (n node) plugIn() error {
	pid, err := n.initPID()
	if err != nil {
		return err
	}
	// Only the network of the switch: the pid is meant as this machine sees it.
	// The hardware address is the same at every boot: else the others would send
	// to the former one till their ARP entries expire, half a minute later.
	err = n.lab.netSwitch().setNetwork(
		fmt.Sprintf("link add %s type veth peer name eth0 address 02:00:00:00:00:%02x netns %d", n.port(), n.id, pid),
		fmt.Sprintf("link set %s master bridge0 up", n.port()))
	if err != nil {
		return err
	}
	setup := []string{"link set lo up", "link set eth0 up"}
	for _, network := range n.networks() {
		setup = append(setup, "addr add "+network+" dev eth0")
	}
	for _, services := range n.lab.serviceCIDRs() {
		// A host process's packet to a Service needs some route, to get as far
		// as kube-proxy's translation.
		setup = append(setup, "route add "+services+" dev eth0")
	}
	for id := 1; id <= n.lab.nodes; id++ {
		if other := n.lab.node(id); id != n.id {
			for i, pods := range other.podCIDRs() {
				setup = append(setup, fmt.Sprintf("route add %s via %s", pods, other.ips()[i]))
			}
		}
	}
	return n.setNetwork(setup...)
}

// port is the switch's end of the node's cable.
func (n node) port() string { return "port" + strconv.Itoa(n.id) }

// setNetwork runs ip(8) once, with these commands, in the node's network namespace.
func (n node) setNetwork(commands ...string) error {
	pid, err := n.initPID()
	if err != nil {
		return err
	}
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := insideNetwork(pid, cmd.Start); err != nil {
		return fmt.Errorf("network of %s: %w", n, err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("network of %s: ip: %w: %s", n, err, strings.TrimSpace(output.String()))
	}
	return nil
}
