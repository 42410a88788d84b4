//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// node is one machine of the lab: a set of namespaces (mount, network, pid,
// uts, ipc, cgroup) held open by its first process. Killing that one ends all
// other processes of the node, and with them its mounts and its network.
//
// Node 0 is no Kubernetes node but the switch: only its network is used, for
// the bridge that joins the others. So any node, the first too, can be powered
// off or cut off without harm to the rest.
type node struct {
	lab *lab
	id  int
}

func (l *lab) node(id int) node { return node{l, id} }
func (l *lab) netSwitch() node  { return node{l, 0} }

func (n node) String() string {
	if n.id == 0 {
		return "switch"
	}
	return fmt.Sprintf("node%d", n.id)
}

func (n node) group() string { return n.lab.name + "/" + n.String() }

// path is a file of the node's own folder, and disk one of the file systems
// that outlive its power.
func (n node) path(name ...string) string {
	return filepath.Join(append([]string{n.lab.run, n.String()}, name...)...)
}
func (n node) disk(path string) string { return n.path("disk", path) }

// diskFolders are where a node keeps what it must find again after a reboot.
var diskFolders = []string{
	"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/log/pods", "/var/log/containers",
	"/etc/cni/net.d", "/etc/kubernetes/manifests", "/opt/local-path-provisioner",
}

// poweredOn says whether the node's first process lives.
func (n node) poweredOn() bool { return readProcess(n.path("init.json")).alive() }

func (n node) initPID() (int, error) {
	p := readProcess(n.path("init.json"))
	if !p.alive() {
		return 0, fmt.Errorf("%s is not running", n)
	}
	return p.PID, nil
}

// boot makes the namespaces. The folder of the node is there already.
func (n node) boot() error {
	groups, err := readCgroups()
	if err != nil {
		return err
	}
	if err := groups.create(n.group()); err != nil {
		return err
	}
	if err := n.writeFiles(); err != nil {
		return err
	}
	pid, err := n.startInit(groups)
	if err != nil {
		return fmt.Errorf("%s does not boot: %w", n, err)
	}
	return writeProcess(n.path("init.json"), pid)
}

func (n node) writeFiles() error {
	for _, dir := range diskFolders {
		if err := os.MkdirAll(n.disk(dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"processes", "logs", "conf"} {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			return err
		}
	}
	hosts := "127.0.0.1 localhost\n::1 localhost\n"
	for id := 1; id <= n.lab.nodes; id++ {
		for _, ip := range n.lab.node(id).ips() {
			hosts += fmt.Sprintf("%s %s\n", ip, n.lab.node(id))
		}
	}
	if err := os.WriteFile(n.path("hosts"), []byte(hosts), 0o644); err != nil {
		return err
	}
	if err := n.writeConf(); err != nil {
		return err
	}
	resolv := "nameserver " + strings.Join(n.lab.dnsServiceIPs(), "\nnameserver ") +
		"\nsearch svc.lab.internal lab.internal\noptions ndots:5\n"
	return os.WriteFile(n.path("resolv.conf"), []byte(resolv), 0o644)
}

// bootOrder is what `lab node-init` is told.
type bootOrder struct {
	Hostname string
	Folder   string // of the node
	Disk     []string
	Cgroups  []bootCgroup
	V2       bool
	Pause    string
}

type bootCgroup struct{ Folder, Option string }

// startInit starts this program again as `lab node-init`, the first process of
// new namespaces. It waits there till its control groups are set, because the
// root of its cgroup namespace is the group it is in when it makes that one.
func (n node) startInit(groups cgroups) (int, error) {
	order := bootOrder{Hostname: n.String(), Folder: n.path(), Disk: diskFolders, V2: groups.v2,
		Pause: filepath.Join(n.lab.bin, "pause")}
	for _, h := range groups.hierarchies {
		order.Cgroups = append(order.Cgroups, bootCgroup{h.folder(), h.mountOption()})
	}
	goOn, start, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer start.Close()
	failure, report, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer failure.Close()
	cmd := exec.Command("/proc/self/exe", "node-init")
	cmd.Stdin, cmd.ExtraFiles = goOn, []*os.File{report}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	err = cmd.Start()
	goOn.Close()
	report.Close()
	if err != nil {
		return 0, err
	}
	if err = groups.addProcess(n.group(), cmd.Process.Pid); err == nil {
		err = json.NewEncoder(start).Encode(order)
	}
	start.Close()
	// The report closes when node-init becomes pause, or has said why not.
	said, _ := io.ReadAll(failure)
	if err == nil && len(said) > 0 {
		err = fmt.Errorf("%s", strings.TrimSpace(string(said)))
	}
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return 0, err
	}
	return cmd.Process.Pid, nil
}

// powerOff ends the node at once, as if its plug were pulled.
func (n node) powerOff() error {
	pid, err := n.initPID()
	if err != nil {
		return err
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return fmt.Errorf("%s: %w", n, err)
	}
	first := readProcess(n.path("init.json"))
	return waitFor(n.String()+" to end", powerOffTime, func() error {
		if first.alive() {
			return fmt.Errorf("process %d is still there", pid)
		}
		return nil
	})
}
