package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cgroups are the machine's control groups: either version 1, one hierarchy
// for each set of controllers, or version 2, a single hierarchy.
type cgroups struct {
	v2          bool
	hierarchies []hierarchy
}

// hierarchy is one mounted tree of groups.
type hierarchy struct {
	controllers string // "memory", "cpu,cpuacct" or "name=systemd"; "" in version 2
	root        string // where the machine has it mounted
}

const cgroupRoot = "/sys/fs/cgroup"

// init is the leaf of a node's group in which its own processes are: version 2
// allows no processes in a group that hands controllers on to its children.
const initGroup = "init"

func readCgroups() (cgroups, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return cgroups{}, err
	}
	c := parseCgroups(string(text))
	for _, h := range c.hierarchies {
		if _, err := os.Stat(filepath.Join(h.root, "cgroup.procs")); err != nil {
			return cgroups{}, fmt.Errorf("control groups (%s) are not mounted at %s: %w", c, h.root, err)
		}
	}
	return c, nil
}

// parseCgroups reads /proc/self/cgroup. Machines with version 1 often have an
// empty version 2 beside it; the memory controller tells which one works.
func parseCgroups(text string) cgroups {
	var c cgroups
	v1 := false
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 || fields[1] == "" {
			continue
		}
		h := hierarchy{controllers: fields[1]}
		h.root = filepath.Join(cgroupRoot, h.folder())
		v1 = v1 || slices.Contains(strings.Split(fields[1], ","), "memory")
		c.hierarchies = append(c.hierarchies, h)
	}
	if v1 {
		return c
	}
	return cgroups{v2: true, hierarchies: []hierarchy{{root: cgroupRoot}}}
}

func (c cgroups) String() string {
	if c.v2 {
		return "version 2"
	}
	return "version 1"
}

// folder is the name under which a version 1 hierarchy is mounted.
func (h hierarchy) folder() string { return strings.TrimPrefix(h.controllers, "name=") }

// mountOption is what mounts this hierarchy and no other.
func (h hierarchy) mountOption() string {
	if strings.HasPrefix(h.controllers, "name=") {
		return "none," + h.controllers
	}
	return h.controllers
}

// create makes a group such as "quorate-lab/node1", and its parents.
func (c cgroups) create(group string) error {
	for _, h := range c.hierarchies {
		dir := h.root
		for part := range strings.SplitSeq(group, "/") {
			if c.v2 {
				if err := handOnControllers(dir); err != nil {
					return err
				}
			}
			parent := dir
			dir = filepath.Join(dir, part)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("control group %s: %w", dir, err)
			}
			if h.controllers == "cpuset" {
				if err := inheritCpuset(parent, dir); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// inheritCpuset: a new version 1 group has no processors, and nothing can join
// it before it is given some.
func inheritCpuset(parent, dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), value, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.clone_children"), []byte("1"), 0o644)
}

// handOnControllers lets a version 2 group's children use its controllers.
func handOnControllers(dir string) error {
	has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	handsOn, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(has)) {
		if slices.Contains(strings.Fields(string(handsOn)), controller) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller),
			0o644); err != nil {
			return fmt.Errorf("control group %s does not hand on %s: %w; in a container, give it a control group "+
				"namespace with an empty root", dir, controller, err)
		}
	}
	return nil
}

// addProcess puts a whole process into a group.
func (c cgroups) addProcess(group string, pid int) error {
	for _, h := range c.hierarchies {
		file := filepath.Join(h.root, group, "cgroup.procs")
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("adding process %d to %s: %w", pid, file, err)
		}
	}
	return nil
}

// addThread puts the calling thread alone into a group, for the children that
// it starts. Only version 1 has that; version 2 starts a child in its group.
func (c cgroups) addThread(group string) error {
	for _, h := range c.hierarchies {
		file := filepath.Join(h.root, group, "tasks")
		if err := os.WriteFile(file, []byte("0"), 0o644); err != nil {
			return fmt.Errorf("joining %s: %w", file, err)
		}
	}
	return nil
}

// processes are those in a group and in all groups below it.
func (c cgroups) processes(group string) []int {
	seen := map[int]bool{}
	for _, h := range c.hierarchies {
		filepath.WalkDir(filepath.Join(h.root, group), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && filepath.Base(path) == "cgroup.procs" {
				text, _ := os.ReadFile(path)
				for _, field := range strings.Fields(string(text)) {
					if pid, err := strconv.Atoi(field); err == nil {
						seen[pid] = true
					}
				}
			}
			return nil // a group that vanishes meanwhile has no processes
		})
	}
	var pids []int
	for pid := range seen {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids
}

// remove removes a group and all below it, which must be empty of processes.
func (c cgroups) remove(group string) error {
	var err error
	for range 50 { // the kernel lets go of a group some time after its last process
		if err = c.tryRemove(group); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

func (c cgroups) tryRemove(group string) error {
	var failed error
	for _, h := range c.hierarchies {
		var dirs []string
		filepath.WalkDir(filepath.Join(h.root, group), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		slices.Reverse(dirs) // children first
		for _, dir := range dirs {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = fmt.Errorf("control group %s: %w", dir, err)
			}
		}
	}
	return failed
}

// memory is what a group uses, page cache included, in bytes.
func (c cgroups) memory(group string) int64 {
	for _, h := range c.hierarchies {
		for _, name := range []string{"memory.current", "memory.usage_in_bytes"} {
			if text, err := os.ReadFile(filepath.Join(h.root, group, name)); err == nil {
				n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
				return n
			}
		}
	}
	return 0
}
