package model

import (
	"flag"
	"testing"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

var (
	faults  = flag.Int("faults", 1, "how many faults the search lets happen")
	edits   = flag.Int("edits", 1, "how many edits")
	hitches = flag.Int("hitches", 0, "how many lagging caches and overlapping calls")
	memory  = flag.Bool("memory", false, "on Memory")
	ready   = flag.Bool("ready", false, "begin with a cluster that has converged")
	size    = flag.Int("size", 3, "replicas")
)

func TestTry(t *testing.T) {
	m := &Model{Medium: v1alpha1.Persistent, Replicas: *size, Ready: *ready, Faults: *faults, Edits: *edits, Hitches: *hitches, Sizes: []int{0, 1, 3, 5}}
	if *memory {
		m.Medium = v1alpha1.Memory
		m.Sizes = []int{1, 3, 5}
	}
	s := m.first()
	t.Log(m.settle(&s), m.converged(&s))
	r := m.Search(0)
	t.Log(r)
	if r.Broken != nil {
		t.Error(r.Broken.Rules)
		var st state
		m.Follow(r.Broken.Path, func(l string, s *state) {
			st = *s
			v := s.shown()
			t.Log(l, "   |", m.look(s, &v).rule, m.look(s, &v).step)
		})
		t.Logf("%+v", st)
	}
}
