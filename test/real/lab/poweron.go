//go:build linux

package main

import "fmt"

// powerOn boots a node that was powered off, with what is on its disk. What was
// in memory, such as emptyDirs of medium Memory, is gone, and so are processes
// that were started by `lab start`.
func (n node) powerOn() error {
	if n.poweredOn() {
		return fmt.Errorf("%s runs", n)
	}
	// Its network went with its power, but the kernel may take its time over that.
	n.lab.netSwitch().setNetwork("link del " + n.port())
	if err := n.boot(); err != nil {
		return err
	}
	if err := n.plugIn(); err != nil {
		return err
	}
	// Its API server can't run before an etcd does that may be on this node: who starts that starts it `again`.
	if selfHosted := len(n.lab.etcdServers) > 0; selfHosted {
		if err := n.startContainerd(); err != nil {
			return err
		}
		return n.startAgents()
	}
	if n.id == 1 {
		if err := n.lab.startControlPlane(); err != nil {
			return err
		}
		if err := n.lab.startAddons(); err != nil {
			return err
		}
	}
	if err := n.startContainerd(); err != nil {
		return err
	}
	if err := n.startAgents(); err != nil {
		return err
	}
	if err := n.lab.awaitNodes([]node{n}); err != nil {
		return err
	}
	if n.lab.hasExpandable() {
		return n.installExpandable()
	}
	return nil
}
