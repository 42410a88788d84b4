// Package world is a small Kubernetes with etcd on it, in memory: what the stories (test/simulated/scenario) and the
// exhaustive model drive to see what Quorate's hooks do to a cluster. It has no clock, no goroutines and no chance of
// its own: the same calls on the same world lead to the same world.
//
// The parts are by file: the API server (api.go), Metacontroller (metacontroller.go) with its lagging caches
// (caches.go) and how it applies an answer (apply.go, merge.go), the scheduler and the kubelets (kubelet.go), volumes
// and nodes with directories (volumes.go), certificates (forge.go, certificates.go), etcd (etcd.go), how it starts
// (start.go), its client (client.go), changes of its members and who hears which (membership.go), what may go wrong
// (faults.go) and what must never (oracle.go). Other packages say what others need too: metacontroller in which order
// an answer is applied, kubelet what is reported of a pod, and membership etcd's own rules.
package world

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// World is the whole state. Every value in it is replaced and never changed in place, so that a clone may share it.
type World struct {
	// Now is the time, by the API server's clock and the nodes'. Ahead is by how much Quorate's clock is.
	Now   time.Time
	Ahead time.Duration
	// Resync is how often Metacontroller calls while nothing happens.
	Resync   time.Duration
	Settings observation.Settings

	// Objects is what the API server stores. Version and UIDs count up.
	Objects map[Key]metav1.Object
	Version int64
	UIDs    int

	// Frozen are the kinds whose caches lag: what Metacontroller sees of them. The other kinds it sees as they are.
	Frozen map[Kind]map[string]metav1.Object

	// RecordKeys seal records: see objects.Seal.
	RecordKeys [][]byte
	// Kept are records as they were: see KeepRecords.
	kept []*corev1.ConfigMap
	// ServerSideApply is Metacontroller's --apply-strategy=server-side-apply.
	ServerSideApply bool

	// External are the members that run outside of Kubernetes, by name.
	External map[string]bool

	// Lost are the nodes (by the name of the member that runs there) that no longer answer.
	Lost map[string]bool
	// Full are the members for whose pods no node has room.
	Full map[string]bool
	// BindsAtOnce: claims get their volumes when they are made, and not with the first pod.
	BindsAtOnce bool
	// Admitted is what a webhook puts into claims that are made: a storage class, a size; empty for what was asked.
	Admitted struct{ Class, Size string }
	// Unplaced are the priority classes of which no node takes a pod.
	Unplaced map[string]bool
	// Refused are the objects that the API server does not make, all of a kind where no name is given; NoPriority and
	// NoStorage the priority and storage classes that do not exist. Tried are the refusals that were told.
	Refused               map[Key]bool
	NoPriority, NoStorage map[string]bool
	Tried                 []Key
	// Markers are the pods in which prepare has once let etcd start.
	Markers map[types.UID]bool
	// Prepared are the pods whose init container is done; it runs again only after a reboot.
	Prepared map[types.UID]bool
	// Dirs are the data directories that exist, by place; Procs the running etcds, by the UID of their pod.
	Dirs  map[string]Dir
	Procs map[types.UID]Proc
	// Files are the certificates in the pods, by the pods' UIDs. SlowFiles are the members whose kubelet does not
	// bring them up to the Secrets.
	Files     map[types.UID]Files
	SlowFiles map[string]bool
	// Forged counts certificates and keys, Authorities those of the clusters.
	Forged, Authorities int
	// NoRoom are the members whose volumes are full, and how large those were then.
	NoRoom map[string]int64
	// Disks are those of members, where syncs take another time than usual. DisksSeen is when Quorate first looked, by pod.
	Disks     map[string]Disk
	DisksSeen map[string]time.Time
	// Zones are where the nodes are, by the name of the member that runs there, as Kubernetes copies it to pods.
	Zones map[string]string
	// Crashing are the members whose etcd ends as soon as it starts.
	Crashing map[string]bool
	// CertManager is set while the installation may make Certificates; stories keep the Secrets of those.
	// Certificates are those that were answered last.
	CertManager  bool
	Certificates []*decision.CertManagerCertificate
	// Mesh is set while a mesh puts containers of its own into pods.
	Mesh bool
	// Starts counts etcds that were started.
	Starts int
	// BadImages can't be pulled: whole repositories, or one image with its tag.
	BadImages map[string]bool
	// FixedClasses are the storage classes whose volumes can't grow; BrokenVolumes the claims whose volumes don't
	// although they could. With OfflineVolumes a file system grows only when a pod starts on it.
	FixedClasses, BrokenVolumes map[string]bool
	OfflineVolumes              bool

	// Artifacts are the snapshots in stores, by URL.
	Artifacts map[string]Artifact
	// StoreDown is why no store answers a pod that looks into it; empty while all do.
	StoreDown string
	// Tails are what streams have stored from time to time, by the ID of the cluster in hexadecimal.
	Tails map[string][]Tail

	Etcd Etcd
	Net  Net

	// Changes counts whatever has changed anywhere; Writes only what Metacontroller wrote to the API server. That the
	// status tells of another look counts for neither.
	Changes, Writes int
	// Log is what Metacontroller wrote since it was last taken.
	Log    []string
	Oracle Oracle
	// Decide takes the place of hooks.Decide, to show that what is wrong is found; its decisions are not verified.
	// Nil: the shipped one.
	Decide func(observation.Observation) decision.Decision
	// Watch makes calls prove that they leave their input alone (one in watchEvery), and every call that who is said to
	// be ready is; it costs time.
	Watch    bool
	answered int
	// Journal gets every decision; nil: some are replayed at once.
	Journal *Journal
	// Lacked is what the cluster lacked when the status that is stored was decided: see Lacks.
	Lacked string
}

// New is an empty world at the beginning of time.
func New() *World {
	w := &World{
		Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Settings: observation.Settings{Images: objects.Images{Image: "quorate"}, Keyed: true,
			AllowedEndpoints: &objects.AllowedEndpoints{Hosts: externalHosts()}},
		Resync: 30 * time.Second, RecordKeys: [][]byte{[]byte("the key of this installation")},
		Oracle: newOracle(),
	}
	w.ownMaps()
	return w
}

// Clone is an independent copy.
func (w *World) Clone() *World {
	c := *w
	c.ownMaps()
	c.Log = slices.Clone(w.Log)
	c.Oracle = w.Oracle.clone()
	return &c
}

// ownMaps replaces every map by a copy, and one that is nil by an empty one.
func (w *World) ownMaps() {
	for _, part := range []any{w, &w.Etcd, &w.Net} {
		fields := reflect.ValueOf(part).Elem()
		for i := range fields.NumField() {
			field := fields.Field(i)
			if field.Kind() != reflect.Map {
				continue
			}
			own := reflect.MakeMapWithSize(field.Type(), field.Len())
			for each := field.MapRange(); each.Next(); {
				own.SetMapIndex(each.Key(), each.Value())
			}
			field.Set(own)
		}
	}
}

// Pass lets everything but Metacontroller move one step: garbage collection, scheduler and kubelets, etcd.
func (w *World) Pass() {
	w.Collect()
	w.Kubelets()
	w.GrowVolumes()
	w.TickEtcd()
}

// Elapse lets time pass in which there is a call at every resync, and each sees what the last one saw: all that they
// write is that they have looked.
func (w *World) Elapse(d time.Duration) {
	w.Now = w.Now.Add(d)
	if c := w.Cluster(); c != nil && c.Status.Internal.Watched != nil {
		w.editCluster(func(c *v1beta1.EtcdCluster) {
			c.Status.Internal.Watched = &v1beta1.WatchedStatus{StartTime: c.Status.Internal.Watched.StartTime,
				LastProbeTime: metav1.NewTime(w.Now)}
		})
	}
}

// TakeLog is what Metacontroller has written since the last call.
func (w *World) TakeLog() []string {
	log := w.Log
	w.Log = nil
	return log
}

func (w *World) note(format string, args ...any) {
	w.Log = append(w.Log, fmt.Sprintf(format, args...))
}
