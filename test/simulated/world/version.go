package world

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// How etcds of different versions get on with each other.

// minorOf a version such as 3.6.16, or of an image's tag; 0 when there is none.
func minorOf(version string) uint8 {
	fields := strings.Split(version, ".")
	if len(fields) < 2 {
		return 0
	}
	minor, err := strconv.ParseUint(fields[1], 10, 8)
	if err != nil {
		return 0
	}
	return uint8(minor)
}

// version of the etcd in a pod.
func version(pod *corev1.Pod) string {
	_, tag, _ := strings.Cut(pod.Spec.Containers[0].Image, ":v")
	return tag
}

// unknownFlag is why an etcd of this version does not start with its pod's flags; empty when it does.
func unknownFlag(pod *corev1.Pod) string {
	minor, flags := minorOf(version(pod)), strings.Join(pod.Spec.Containers[0].Command, " ")
	if minor >= 7 && strings.Contains(flags, "--experimental-") || minor < 6 &&
		strings.Contains(flags, "--feature-gates") {
		return "flag provided but not defined"
	}
	return ""
}

// unfitVersion is why an etcd of this version does not start in its cluster; empty when it does.
func (w *World) unfitVersion(pod *corev1.Pod, d Dir) string {
	minor, c := minorOf(version(pod)), w.Etcd.Clusters[d.Cluster]
	if minor >= 7 && c.OldLog > w.behindSnapshot(c, d) {
		return "panic: unmarshal should never fail (proto: cannot parse invalid wire-format data)"
	}
	if err := c.Takes(minor, d.Index == 0); err != nil {
		return err.Error()
	}
	return ""
}

// agree lets the cluster's leader set what the cluster has agreed on.
func (w *World) agree(id uint64) {
	c := w.Etcd.Clusters[id]
	if !w.leads(c) {
		return
	}
	var minors []uint8
	for _, m := range c.Members {
		if pod, runs := w.running(id, m.ID); runs {
			minors = append(minors, minorOf(w.Procs[pod].Version))
		}
	}
	next := c
	next.Version = c.Decide(slices.Min(minors), slices.Max(minors), len(minors) == len(c.Members))
	if next.Agreed < c.Agreed { // which has every member write a snapshot
		for _, m := range c.Members {
			if pod, runs := w.running(id, m.ID); runs {
				place := w.Procs[pod].Dir
				d := w.Dirs[place]
				d.Snapshot = d.Index
				w.storeDir(place, d)
			}
		}
	}
	if next.Version != c.Version {
		w.store(next)
	}
}

// behindSnapshot is up to where the member gets what it has not applied as a snapshot: its own, or for a new one the
// leader's, who keeps the last entries before it as a log.
func (w *World) behindSnapshot(c Cluster, d Dir) uint64 {
	if leader, _ := w.holds(c, c.Leader); d.Index == 0 && leader.Snapshot > catchUp {
		return leader.Snapshot - catchUp
	}
	return d.Snapshot
}

// snapshotCount and catchUp are etcd 3.6's own.
const snapshotCount, catchUp = 10_000, 5_000

// starts notes that an etcd has started: 3.5 writes that into the log, in a way that 3.7 can't read.
func (w *World) starts(pod *corev1.Pod, d Dir) {
	if c := w.Etcd.Clusters[d.Cluster]; minorOf(version(pod)) == 5 {
		c.OldLog = c.Commit + 1
		w.Etcd.Clusters[c.ID] = c
	}
}

// tellVersion adds to an answer what a member since 3.6 tells of versions.
func (w *World) tellVersion(h *observation.Health, pod types.UID, c Cluster) {
	h.Version = w.Procs[pod].Version
	if minorOf(h.Version) < 6 || c.Agreed == 0 {
		return
	}
	h.StorageVersion = fmt.Sprintf("3.%d.0", c.Agreed)
	if c.Downgrade != 0 {
		h.Downgrade = fmt.Sprintf("3.%d.0", c.Downgrade)
	}
}
