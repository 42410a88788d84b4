package main

import (
	"slices"
	"testing"
)

func TestParseCgroups(t *testing.T) {
	for _, test := range []struct {
		name, text string
		v2         bool
		roots      []string
	}{
		{
			"version 1, each controller alone, with an empty version 2 beside",
			"9:name=systemd:/\n4:memory:/some/where\n3:cpuset:/\n0::/\n", false,
			[]string{"/sys/fs/cgroup/systemd", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpuset"},
		},
		{
			"version 1, controllers in pairs",
			"5:cpu,cpuacct:/a\n4:memory:/a\n", false,
			[]string{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/memory"},
		},
		{"version 2", "0::/user.slice/session-1.scope\n", true, []string{"/sys/fs/cgroup"}},
		{"version 2, with systemd's name in version 1", "1:name=systemd:/\n0::/\n", true, []string{"/sys/fs/cgroup"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := parseCgroups(test.text)
			var roots []string
			for _, h := range c.hierarchies {
				roots = append(roots, h.root)
			}
			if c.v2 != test.v2 || !slices.Equal(roots, test.roots) {
				t.Errorf("got v2 %v, %v; want v2 %v, %v", c.v2, roots, test.v2, test.roots)
			}
		})
	}
}

func TestMountOption(t *testing.T) {
	for controllers, want := range map[string]string{
		"memory": "memory", "cpu,cpuacct": "cpu,cpuacct", "name=systemd": "none,name=systemd",
	} {
		if got := (hierarchy{controllers: controllers}).mountOption(); got != want {
			t.Errorf("%s: %s, want %s", controllers, got, want)
		}
	}
}
