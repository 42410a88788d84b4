//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// nodeInit is the first process of a node: it lays out the file systems that a
// node expects and then becomes pause, which reaps. It runs on the main thread,
// which is the one whose namespaces others see as the process's.
func nodeInit(_ *lab, _ []string) error {
	report := os.NewFile(3, "report")
	unix.CloseOnExec(3)
	var order bootOrder
	if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
		return fmt.Errorf("node-init is for `lab up` alone: %w", err)
	}
	err := order.layOut()
	if err == nil {
		err = unix.Exec(order.Pause, []string{"pause", order.Folder}, os.Environ())
	}
	fmt.Fprintln(report, err)
	return err
}

func (o bootOrder) layOut() error {
	// Nothing done here may be seen outside; /proc must be of the new pid namespace.
	if err := mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("making a cgroup namespace: %w", err)
	}
	if err := inOrder(o.mountKernel, o.mountCgroups, o.mountRun, o.mountDisk, o.bindFiles); err != nil {
		return err
	}
	// kubelet's volumes must be seen in containers and the other way round.
	if err := mount("none", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(o.Hostname)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	return setKernel()
}

func (o bootOrder) mountKernel() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := mount("proc", "/proc", "proc", flags, ""); err != nil {
		return err
	}
	return mount("sysfs", "/sys", "sysfs", flags, "") // shows this network namespace's devices
}

// mountCgroups mounts every hierarchy, name=systemd too: runc looks for each
// one that /proc/self/cgroup names. The cgroup namespace makes the node's own
// group the root of what is seen.
func (o bootOrder) mountCgroups() error {
	if o.V2 {
		return o.mountCgroup2()
	}
	if err := mount("tmpfs", cgroupRoot, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, c := range o.Cgroups {
		dir := filepath.Join(cgroupRoot, c.Folder)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := mount("cgroup", dir, "cgroup", 0, c.Option); err != nil {
			return err
		}
		if names := strings.Split(c.Folder, ","); len(names) > 1 { // cpu,cpuacct is also cpu and cpuacct
			for _, name := range names {
				if err := os.Symlink(c.Folder, filepath.Join(cgroupRoot, name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (o bootOrder) mountCgroup2() error {
	if err := mount("cgroup2", cgroupRoot, "cgroup2", 0, ""); err != nil {
		return err
	}
	leaf := filepath.Join(cgroupRoot, initGroup)
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0o644); err != nil {
		return fmt.Errorf("moving into %s: %w", leaf, err)
	}
	return handOnControllers(cgroupRoot)
}

func (o bootOrder) mountRun() error {
	if err := mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, dir := range []string{"/run/lock", "/run/netns", "/run/containerd"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// mountDisk puts the node's state at the usual paths.
func (o bootOrder) mountDisk() error {
	for _, dir := range o.Disk {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := mount(filepath.Join(o.Folder, "disk", dir), dir, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

func (o bootOrder) bindFiles() error {
	for _, name := range []string{"hosts", "resolv.conf"} {
		target, err := followLink("/etc/" + name)
		if err != nil {
			return err
		}
		if err := mount(filepath.Join(o.Folder, name), target, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// followLink resolves a link whose target may be in the /run that is now
// covered (systemd-resolved's resolv.conf is), making an empty target then.
func followLink(path string) (string, error) {
	for range 8 {
		link, err := os.Readlink(path)
		if err != nil {
			break // no link
		}
		if !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(path), link)
		}
		path = link
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, nil, 0o644)
}

// setKernel sets what belongs to the new network namespace. The bridge settings
// exist only where the br_netfilter module is loaded, and IPv6 can be missing too.
func setKernel() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"bridge/bridge-nf-call-iptables": "1", "bridge/bridge-nf-call-ip6tables": "1",
		"ipv6/conf/all/forwarding": "1",
		// Else an address can't be used for a second or two, till no other is found to have it.
		"ipv6/conf/all/accept_dad": "0", "ipv6/conf/default/accept_dad": "0",
	} {
		err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mounting %s %s at %s: %w", kind, source, target, err)
	}
	return nil
}
