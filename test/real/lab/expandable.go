//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const expandableDriver = "expandable.quorate.lab"

// installExpandable builds the driver of volumes that grow, if need be, starts it on every node, and makes the
// StorageClass expandable. It may be repeated: pods do not notice that their driver is restarted.
func installExpandable(l *lab, _ []string) error {
	if err := needRoot(); err != nil {
		return err
	}
	if _, err := l.running(); err != nil {
		return err
	}
	say := stopwatch()
	if err := needPackages(expandablePackages); err != nil {
		return err
	}
	if err := l.build([]string{"expandable"}); err != nil {
		return err
	}
	manifest, err := conf("expandable.yaml", nil)
	if err != nil {
		return err
	}
	if err := all(
		func() error { return l.kubectl(manifest, "apply", "-f", "-") },
		func() error { return each(l.allNodes(), node.installExpandable) },
	); err != nil {
		return err
	}
	say("StorageClass expandable is ready")
	return nil
}

// hasExpandable says whether the running lab was given the driver, and so every node that gets power again.
func (l *lab) hasExpandable() bool { return l.node(1).process("expandable").PID != 0 }

// installExpandable returns when the kubelet knows the driver.
func (n node) installExpandable() error {
	if !n.poweredOn() {
		return nil // powerOn does this
	}
	if n.process("expandable").alive() {
		if err := n.stop("expandable", unix.SIGTERM); err != nil {
			return err
		}
	}
	if err := n.start("expandable", n.expandableArgs()...); err != nil {
		return err
	}
	return n.awaitExpandable()
}

// expandableArgs: the cluster needs one controller that answers claims, and it is where the others are.
func (n node) expandableArgs() []string {
	return []string{
		filepath.Join(n.lab.bin, "expandable"), "-node=" + n.String(),
		"-kubeconfig=" + n.lab.pki("local-path-provisioner.kubeconfig"), fmt.Sprintf("-resize=%t", n.id == 1),
		"-snapshots=" + filepath.Join(n.lab.run, "snapshots"),
	}
}

func (n node) awaitExpandable() error {
	client, err := n.lab.newAPIClient()
	if err != nil {
		return err
	}
	return waitFor("the kubelet of "+n.String()+" to know the driver", 30*time.Second, func() error {
		if !n.process("expandable").alive() {
			return fmt.Errorf("the driver has ended; see %s", n.logFile("expandable"))
		}
		known, err := client.get("/apis/storage.k8s.io/v1/csinodes/" + n.String())
		if err == nil && !strings.Contains(string(known), expandableDriver) {
			err = fmt.Errorf("not yet; see %s", n.logFile("expandable"))
		}
		return err
	})
}
