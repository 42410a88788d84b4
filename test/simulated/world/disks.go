package world

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// usualSync is how long a sync of etcd's log takes, and diskLook for how long a disk is looked at.
const (
	usualSync = 2 * time.Millisecond
	diskLook  = 5 * time.Second
)

// Disk is how long syncs on a member's disk take, since when, and how long they did before.
type Disk struct {
	Sync, Before time.Duration
	Since        time.Time
}

// SetDisk has syncs on the member's disk take so long from now on.
func (w *World) SetDisk(member string, sync time.Duration) {
	w.Disks[member] = Disk{Sync: sync, Before: w.Disks[member].now(), Since: w.Now}
	w.Changes++
}

func (d Disk) now() time.Duration { return cmp.Or(d.Sync, usualSync) }

// tellDisk is what the member's metrics tell of its disk, once they were read for a while.
func (c *client) tellDisk(h *observation.Health, e observation.Endpoint) {
	if e.MetricsURL == "" {
		return
	}
	first, seen := c.w.DisksSeen[e.Pod]
	if !seen {
		c.w.DisksSeen[e.Pod] = c.w.Now
	}
	if !seen || c.w.Now.Sub(first) < diskLook {
		return
	}
	d := c.w.Disks[e.Name]
	told := observation.Disk{Over: diskLook, Syncs: 50, Mean: d.now()}
	if c.w.Now.Sub(d.Since) < diskLook {
		told.Mean = cmp.Or(d.Before, usualSync)
	}
	if told.Mean > observation.SlowSync {
		told.Slow = told.Syncs
	}
	h.Disk = &told
}

// copyZone is what the API server does with the labels of a node when a pod gets there.
func (w *World) copyZone(pod *corev1.Pod) {
	if zone := w.Zones[pod.Name]; zone != "" {
		pod.Labels = clone(pod.Labels)
		pod.Labels[corev1.LabelTopologyZone] = zone
	}
}
