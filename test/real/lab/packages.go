package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// debianPackage is a package that the lab needs, and how to see that what it
// brings is there, whichever way this machine got it.
type debianPackage struct {
	name  string
	there func() bool
}

var debianPackages = []debianPackage{
	{"iptables", command("iptables")},
	{"nftables", command("nft")},
	{"conntrack", command("conntrack")},
	{"busybox-static", staticBusybox},
	{"iproute2", command("ip")},
	{"util-linux", command("setpriv")},
	{"mount", command("mount")},
	{"procps", command("ps")},
	{"strace", command("strace")}, // by which stories make a disk slow
	{"runc", command("runc")},
	{"containernetworking-plugins", file("/usr/lib/cni/bridge")},
}

// expandablePackages are for `lab expandable` alone.
var expandablePackages = []debianPackage{
	{"xfsprogs", command("mkfs.xfs")},
	{"mount", command("losetup")},
}

func command(name string) func() bool {
	return func() bool { _, err := exec.LookPath(name); return err == nil }
}

func file(path string) func() bool {
	return func() bool { _, err := os.Stat(path); return err == nil }
}

// staticBusybox: an image of a dynamic busybox would lack its libraries.
func staticBusybox() bool {
	path, err := exec.LookPath("busybox")
	return err == nil && isStatic(path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func isStatic(path string) bool {
	binary, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer binary.Close()
	return binary.Section(".interp") == nil
}

// needPackages installs what is missing.
func needPackages(packages []debianPackage) error {
	if runtime.GOOS != "linux" {
		return errNotLinux
	}
	missing := missingOf(packages)
	if len(missing) == 0 {
		return nil
	}
	install := "apt-get update && apt-get install --no-install-recommends " + strings.Join(missing, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this machine lacks what these Debian packages bring: %s; install its own packages for them",
			strings.Join(missing, " "))
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("Debian packages are missing; as root: %s", install)
	}
	fmt.Fprintln(os.Stderr, "installing Debian packages:", strings.Join(missing, " "))
	if err := apt("update", "-qq"); err != nil {
		return err
	}
	if err := apt(append([]string{"install", "-y", "-qq", "--no-install-recommends"}, missing...)...); err != nil {
		return err
	}
	if still := missingOf(packages); len(still) > 0 {
		return fmt.Errorf("still missing after apt-get install: %s", strings.Join(still, " "))
	}
	return nil
}

func missingOf(packages []debianPackage) []string {
	var missing []string
	for _, p := range packages {
		if !p.there() {
			missing = append(missing, p.name)
		}
	}
	return missing
}

func apt(args ...string) error {
	cmd := exec.Command("apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, lastLines(string(output), 12))
	}
	return nil
}
