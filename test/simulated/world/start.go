package world

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/simulated/kubelet"
	"github.com/quorate-dev/quorate/test/simulated/membership"
)

// startEtcd runs the pod's etcd on its data, or says why it exits.
func (w *World) startEtcd(pod *corev1.Pod, place string) (complaint string) {
	files, d := w.Files[pod.UID], w.dirOf(pod, place)
	if why := files.unfit(); why != "" {
		return why
	}
	if why := unknownFlag(pod); why != "" {
		return why
	}
	if d.Member == 0 {
		var err error
		if d, err = w.begin(pod); err != nil {
			return err.Error()
		}
		if err := w.Oracle.takeIdentity(w, d, place); err != nil {
			return err.Error()
		}
		w.storeBegun(pod, place, d)
	}
	if why := w.unfitVersion(pod, d); why != "" {
		return why
	}
	if why := w.differs(pod, d); why != "" {
		return why
	}
	if slices.Contains(w.Etcd.Clusters[d.Cluster].Removed, d.Member) {
		return "the member has been permanently removed from the cluster"
	}
	w.starts(pod, d)
	w.Oracle.runs(d, place)
	clients, peers := files.loaded()
	w.Starts++
	w.Procs[pod.UID] = Proc{Pod: pod.Name, Dir: place, Since: w.Now, Start: w.Starts, Clients: clients, Peers: peers,
		TLS: listensByTLS(pod), Anonymous: asksNone(pod),
		Image: pod.Spec.Containers[0].Image, Version: version(pod)}
	w.Changes++
	w.mayOpen(pod, w.Etcd.Clusters[d.Cluster])
	w.seededAlike(w.Etcd.Clusters[d.Cluster])
	return ""
}

// begin is what an etcd with an empty data directory makes of its flags.
func (w *World) begin(pod *corev1.Pod) (Dir, error) {
	env, _, err := w.Environment(pod, pod.Spec.Containers[0].Env)
	if err != nil {
		return Dir{}, err
	}
	initial := objects.ParsePairs(env["ETCD_INITIAL_CLUSTER"], "=")
	if len(initial) == 0 {
		return Dir{}, errors.New("error setting up initial cluster")
	}
	if _, listed := initial[pod.Name]; !listed {
		return Dir{}, fmt.Errorf("couldn't find local name %q in the initial cluster configuration", pod.Name)
	}
	if env["ETCD_INITIAL_CLUSTER_STATE"] == "new" {
		if why := unlisted(initial, pod.Name, flag(&pod.Spec.Containers[0], "initial-advertise-peer-urls")); why != "" {
			return Dir{}, errors.New(why)
		}
		return w.bootstrap(pod, initial, env["ETCD_INITIAL_CLUSTER_TOKEN"])
	}
	return w.join(pod, initial)
}

// bootstrap makes a cluster of its own: all that are told the same list and token make the same one.
func (w *World) bootstrap(pod *corev1.Pod, initial map[string]string, token string) (Dir, error) {
	c, self := w.formed(initial, initial[pod.Name], token)
	if known, exists := w.Etcd.Clusters[c.ID]; exists {
		if err := known.rules().Bootstrap(known.number(self), w.peers(known, pod)); err != nil {
			return Dir{}, fmt.Errorf("member %x %w", self, err)
		}
	} else {
		w.store(c)
	}
	return Dir{Cluster: c.ID, Member: self, Index: uint64(len(initial))}, nil
}

// formed is the cluster that members form who are told the same list and token, and which of them has this URL.
func (w *World) formed(initial map[string]string, peer, token string) (c Cluster, self uint64) {
	c = Cluster{Commit: uint64(len(initial)), Epoch: epochOf(token),
		Of: strings.TrimSuffix(token, fmt.Sprintf("-%d", epochOf(token)))}
	var ids []string
	for _, name := range slices.Sorted(maps.Keys(initial)) {
		m := observation.Member{ID: id(plain(initial[name]), token), Name: name, PeerURLs: []string{initial[name]}}
		c.Members = append(c.Members, m)
		ids = append(ids, fmt.Sprint(m.ID))
	}
	slices.SortFunc(c.Members, func(a, b observation.Member) int { return strings.Compare(a.Name, b.Name) })
	c.ID = id(ids...)
	return c, id(plain(peer), token)
}

// join asks the peers that it was told for the cluster, and insists that the list is the one that it was told.
func (w *World) join(pod *corev1.Pod, initial map[string]string) (Dir, error) {
	for _, c := range w.clusters() {
		var told membership.Set
		for _, url := range initial {
			told = told.With(c.numberAt(url))
		}
		self := c.numberAt(initial[pod.Name])
		switch err := c.rules().Join(self, told, w.peers(c, pod)); {
		case errors.Is(err, membership.ErrNoPeer):
			continue
		case err != nil:
			return Dir{}, err
		}
		return Dir{Cluster: c.ID, Member: c.Members[self].ID, Behind: w.Etcd.LearnerPace}, nil
	}
	return Dir{}, membership.ErrNoPeer
}

// peers are the members that answer the etcd that starts in this pod.
func (w *World) peers(c Cluster, asks *corev1.Pod) (all membership.Set) {
	if w.Net.Isolated[asks.Name] {
		return all
	}
	var own side
	if files := w.Files[asks.UID]; files.Peer != nil {
		own = side{files.Peer.Certificate, files.Peer.Trust}
	}
	for n, m := range c.Members {
		if pod, _ := w.running(c.ID, m.ID); w.connected(c, m) && w.reaches(own, pod, m) {
			all = all.With(n)
		}
	}
	return all
}

// Environment is that of a container of the pod, and the same to be looked up in. The error names what is missing.
func (w *World) Environment(pod *corev1.Pod, of []corev1.EnvVar) (map[string]string, kubelet.Variables, error) {
	return kubelet.Environment(of, func(from *corev1.EnvVarSource) (string, error) {
		if from.FieldRef != nil {
			return kubelet.Field(pod, from.FieldRef), nil
		}
		ref := from.ConfigMapKeyRef
		record, found := w.Objects[Key{ConfigMapKind, ref.Name}].(*corev1.ConfigMap)
		if !found {
			return "", fmt.Errorf("configmap %q not found", ref.Name)
		}
		return record.Data[ref.Key], nil
	}, nil)
}

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
func version(pod *corev1.Pod) string { return tagOf(pod.Spec.Containers[0].Image) }

func tagOf(image string) string {
	_, tag, _ := strings.Cut(image, ":v")
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
	if !w.commits(c) {
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
	if leader := w.held(c, c.Leader); d.Index == 0 && leader.Snapshot > catchUp {
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
