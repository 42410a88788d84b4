package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// disk is a volume: a sparse file with an XFS in it, mounted through a loop device. The kernel gives the device up with
// the last mount, so that the end of a node leaves none behind. It is no ext4, as that one grows under its users only
// for those who have CAP_SYS_RESOURCE, and root of a sandbox may lack it.
type disk struct{ image string }

func diskOf(volume string) disk { return disk{filepath.Join(volumes, volume+".img")} }

// leastBytes: XFS needs some room for its log.
const leastBytes = 32 << 20

// create makes the disk and returns its size. One that is there is of an earlier try, whose answer was lost.
func (d disk) create(bytes int64) (int64, error) {
	if info, err := os.Stat(d.image); err == nil {
		return info.Size(), nil
	}
	if err := os.MkdirAll(filepath.Dir(d.image), 0o700); err != nil {
		return 0, err
	}
	bytes = max(bytes, leastBytes)
	fresh := d.image + ".new"
	if err := os.WriteFile(fresh, nil, 0o600); err != nil {
		return 0, err
	}
	if err := os.Truncate(fresh, bytes); err != nil {
		return 0, err
	}
	// Without --unsupported it refuses what is smaller than 300 MB.
	if _, err := command("mkfs.xfs", "-q", "-f", "--unsupported", fresh); err != nil {
		return 0, err
	}
	return bytes, os.Rename(fresh, d.image)
}

func (d disk) there() bool {
	_, err := os.Stat(d.image)
	return err == nil
}

func (d disk) remove() error {
	if err := os.Remove(d.image); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d disk) mount(target string) error {
	// A copy has the UUID of what it was copied from.
	return mountOnce(target, "-t", "xfs", "-o", "loop,nouuid", d.image)
}

// grow makes the file, the loop device and the mounted file system as large as is wanted, whichever of them are not
// yet, and returns the size.
func (d disk) grow(bytes int64, mounted string) (int64, error) {
	info, err := os.Stat(d.image)
	if err != nil {
		return 0, err
	}
	if info.Size() < bytes {
		if err := os.Truncate(d.image, bytes); err != nil {
			return 0, err
		}
	}
	device, err := command("losetup", "--noheadings", "--output", "NAME", "--associated", d.image)
	if err != nil {
		return 0, err
	}
	if device == "" {
		return 0, fmt.Errorf("%s is not mounted", d.image)
	}
	if _, err := command("losetup", "--set-capacity", device); err != nil {
		return 0, err
	}
	if _, err := command("xfs_growfs", "-d", mounted); err != nil {
		return 0, err
	}
	return max(info.Size(), bytes), nil
}

// mountOnce mounts unless something is mounted there: the kubelet repeats calls whose answers it did not see.
func mountOnce(target string, args ...string) error {
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	mounted, err := isMounted(target)
	if err != nil || mounted {
		return err
	}
	_, err = command("mount", append(args, target)...)
	return err
}

func unmount(target string) error {
	mounted, err := isMounted(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !mounted {
		return err
	}
	_, err = command("umount", target)
	return err
}

// isMounted says whether a folder is on another file system than its parent, as all of the driver's mounts are.
func isMounted(folder string) (bool, error) {
	var here, above syscall.Stat_t
	if err := syscall.Stat(folder, &here); err != nil {
		return false, fmt.Errorf("%s: %w", folder, err)
	}
	if err := syscall.Stat(filepath.Dir(folder), &above); err != nil {
		return false, fmt.Errorf("%s: %w", filepath.Dir(folder), err)
	}
	return here.Dev != above.Dev, nil
}

func command(name string, args ...string) (string, error) {
	output, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return strings.TrimSpace(string(output)), nil
}
