package facts

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// How the initial members of an epoch come to their data: an init container fills the data directory before prepare
// guards it. It runs in etcd's own image, with quorate-snapshot in it, so that the tools are of the very version that
// etcd has.

const (
	// VolumeSurvivor is what a pod is filled from.
	VolumeSurvivor = "survivor"
	// VolumeSurvivorWAL is the log of that.
	VolumeSurvivorWAL = "survivor-wal"
	// VolumeGate holds the pod's etcd back.
	VolumeGate = "gate"
	// SurvivorMount is where VolumeSurvivor is mounted.
	SurvivorMount = "/survivor"
	// SurvivorWALMount is where VolumeSurvivorWAL is.
	SurvivorWALMount = "/survivor-wal"
	// GateMount is where VolumeGate is.
	GateMount = "/var/run/quorate-gate"
	// DefaultDataPath is where the data directory is in a volume of ours.
	DefaultDataPath = "data"
	// EnvEpoch names the record of the epoch: a pod whose epoch is over does not start, because it is gone.
	EnvEpoch = "EPOCH"
	// EnvSHA256 is the variable with the SHA-256, in hexadecimal, of the database that the member must be filled with;
	// empty while it is not known.
	EnvSHA256 = "SHA256"
	// EnvUntil is the variable with the revision at which the stream of changes ends for the member; empty while it is
	// not known.
	EnvUntil = "UNTIL_REVISION"
)

// NamesRecord is the record of the epoch that the pod was made for; empty when it names none.
func NamesRecord(pod *corev1.Pod) string {
	for _, e := range PrepareOf(pod).Env {
		if e.Name == EnvEpoch && e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
			return e.ValueFrom.ConfigMapKeyRef.Name
		}
	}
	return ""
}

// Awaits reports whether the pod was made before its epoch began, or before its member was added.
func Awaits(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == VolumeGate {
			return true
		}
	}
	return false
}

// PrepareOf is the pod's init container that prepares the data directory; nil for none.
func PrepareOf(pod *corev1.Pod) *corev1.Container {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == objects.ContainerPrepare {
			return &pod.Spec.InitContainers[i]
		}
	}
	return &corev1.Container{}
}

// DataIn is the data directory of a volume where a container reads it.
func DataIn(of record.FormerClaim) string { return path.Join(SurvivorMount, of.Path) }

// WALIn is that of its log; empty where it is in the data directory.
func WALIn(of record.FormerClaim) string {
	if of.WAL == "" {
		return ""
	}
	return SurvivorWALMount + "/wal"
}

// isFilled reports whether a container of the pod fills its data directory.
func isFilled(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers,
		func(c corev1.Container) bool { return c.Name == objects.ContainerSeed })
}

// Seeded reports whether the pod's data directory is filled, or was not to be.
func Seeded(pod *corev1.Pod) bool {
	s := seedStatus(pod)
	return s != nil && s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
}

// SeedFailure is why the pod's data directory could not be filled at the last try; nil while nothing is known to be
// wrong.
func SeedFailure(pod *corev1.Pod) *stores.Restore {
	s := seedStatus(pod)
	if s == nil {
		return nil
	}
	for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if t == nil || t.ExitCode == 0 {
			continue
		}
		report, err := stores.Read[stores.Restore](t.Message)
		if err != nil || report.Error == "" {
			return &stores.Restore{Error: fmt.Sprintf("the container %s ended with code %d: %.300s",
				objects.ContainerSeed, t.ExitCode, cmp.Or(t.Message, t.Reason))}
		}
		return report
	}
	return nil
}

func seedStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	if s := objects.StatusOf(pod, objects.ContainerSeed); s.Name != "" {
		return &s
	}
	return nil
}

// FirstSum is the SHA-256 of the database that the first initial member has found; empty for not yet, and where it
// was known before.
func (f *Facts) FirstSum() string {
	if !f.Epoch.UnknownSum() || f.Epoch.Sum != "" {
		return f.Epoch.Sum
	}
	if report := f.seeds()[f.FirstToFill()]; report != nil {
		return report.SHA256
	}
	return ""
}

// FirstEnd is the revision at which the first initial member has found the stream to end, and what it says of that;
// 0 for not yet, and where it was known before.
func (f *Facts) FirstEnd() (revision int64, words string) {
	if !f.Epoch.UnknownEnd() || f.Epoch.Until != 0 {
		return f.Epoch.Until, f.Epoch.StreamEnd
	}
	if report := f.seeds()[f.FirstToFill()]; report != nil && report.UntilRevision != 0 {
		return report.UntilRevision, report.Stream()
	}
	return 0, ""
}

// RevisionText is a revision; empty for 0.
func RevisionText(revision int64) string {
	if revision == 0 {
		return ""
	}
	return strconv.FormatInt(revision, 10)
}

// MayFill reports whether the initial member may fetch its data now.
func (f *Facts) MayFill(name string) bool {
	return !f.Epoch.FirstAlone() || f.Epoch.HadQuorum() || name == f.FirstToFill()
}

// FirstToFill is the initial member that is filled before the others: the first that has not lost what it starts on.
func (f *Facts) FirstToFill() string {
	lost := f.LostBeforeStart()
	left := objects.Filter(f.Epoch.InitialNames(), func(name string) bool { return !slices.Contains(lost, name) })
	return append(left, f.Epoch.FirstInitial())[0]
}

// Insists reports whether the pod reads what it must be filled with from this variable.
func Insists(pod *corev1.Pod, variable string) bool {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == objects.ContainerSeed {
			return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == variable })
		}
	}
	return false
}

// Differing says which of the initial members were filled with other data than the rest, as far as their pods show
// it; empty for none.
func (f *Facts) Differing() string {
	told := f.seeds()
	first := ""
	for _, name := range f.Epoch.InitialNames() {
		report := told[name]
		switch {
		case report == nil:
			continue
		case first == "":
			first = name
		}
		one := told[first]
		if one.DiffersFrom(report, f.Epoch.Source == record.SourceSnapshot) {
			return fmt.Sprintf("%s and %s were filled with different data, so the epoch does not begin: %s has %s, "+
				"%s has %s; Quorate keeps them; %s",
				first, name, first, one.Describe(), name, report.Describe(), f.OtherwiseFilled())
		}
		if one.Hash == "" {
			first = name
		}
		if sum := f.Epoch.Sum; sum != "" && report.SHA256 != "" && report.SHA256 != sum {
			return fmt.Sprintf("%s was filled with different data from the first member's, so the epoch does not "+
				"begin: a database with the SHA-256 %s, not %s; Quorate keeps it; %s",
				name, report.SHA256, sum, f.OtherwiseFilled())
		}
		if end := f.Epoch.Until; end != 0 && report.UntilRevision != end {
			return fmt.Sprintf("%s was filled until revision %d and not until %d, where the first member's data ends, so "+
				"the epoch does not begin; Quorate keeps it; %s", name, report.UntilRevision, end, f.OtherwiseFilled())
		}
	}
	return ""
}

// withoutSeedReport are the initial members whose pods do not say what they were filled with.
func (f *Facts) withoutSeedReport() []string {
	told := f.seeds()
	return objects.Filter(f.Epoch.InitialNames(), func(name string) bool { return told[name] == nil })
}

// OtherwiseFilled is what a person does to have the members of an epoch filled once more.
func (f *Facts) OtherwiseFilled() string {
	answers := f.Epoch.Answered[f.Epoch.Restore] == f.Epoch.N || f.Epoch.After == 0
	switch {
	case f.Epoch.Restore != "" && answers:
		return "create another EtcdOperation to restore again"
	case f.Epoch.Member != "":
		return "delete one of their pods to fill all of them again"
	case f.Epoch.After == 0:
		return "delete the EtcdCluster and create it again"
	}
	return "choose another way by an EtcdOperation of type Recover"
}

// SnapshotsNamed are the EtcdSnapshots that the spec names.
func SnapshotsNamed(c *v1beta1.EtcdCluster) []string {
	var names []string
	if b := c.Spec.Bootstrap; b != nil && b.Snapshot != nil && b.Snapshot.SnapshotRef.Name != "" {
		names = append(names, b.Snapshot.SnapshotRef.Name)
	}
	return names
}

// URLOfRestore is that of the artifact that a restore asks for and no epoch has begun with; empty for none.
func (f *Facts) URLOfRestore() string {
	r := f.Asked.Restore
	if r == nil || r.Snapshot == nil || f.Answered()[r.ID] != 0 {
		return ""
	}
	resolved, why := f.resolve(r.Snapshot)
	if why != "" {
		return ""
	}
	return resolved.URL
}

// resolve is the snapshot that the source names, or what stands in its way.
func (f *Facts) resolve(s *v1beta1.SnapshotSource) (*record.Resolved, string) {
	r, why := f.find(s)
	if why != "" {
		return r, why
	}
	named := append(stores.Secrets(&r.Store), r.Identity.Name)
	if s.Until != nil { // without a name there, the keys are our own
		named = append(named, s.Until.KeysSecretRef.Name)
	}
	return r, objects.Unagreed(f.Related.Labelled, f.Cluster.Namespace, "the snapshot's source", named...)
}

func (f *Facts) find(s *v1beta1.SnapshotSource) (*record.Resolved, string) {
	r := &record.Resolved{Identity: s.IdentitySecretRef, ServiceAccountName: s.ServiceAccountName}
	if s.Store != nil {
		r.Store = *s.Store
		r.URL = stores.URLOf(s.Store).Join(s.Artifact).String()
	}
	if s.SnapshotRef.Name == "" { // validate has looked at it
		return f.follow(r, s.Until, path.Join(path.Dir(s.Artifact), snapshot.TailFolder))
	}
	from := f.Related.Snapshots[s.SnapshotRef.Name]
	switch {
	case from == nil:
		return nil, fmt.Sprintf("EtcdSnapshot %s does not exist in namespace %s, or lacks the label: kubectl label "+
			"etcdsnapshot -n %s %s %s=%s", s.SnapshotRef.Name, f.Cluster.Namespace, f.Cluster.Namespace,
			s.SnapshotRef.Name, objects.LabelCluster, f.Cluster.Name)
	case !snapshot.Restorable(from):
		return nil, snapshot.Unrestorable(from)
	}
	r.Name = s.SnapshotRef.Name
	r.ClusterID = from.Status.ClusterID
	r.SHA256 = from.Status.SHA256
	if s.Store == nil {
		r.Store = from.Spec.Store
		r.URL = from.Status.URI
	} else { // a copy, such as in another region
		r.URL = stores.URLOf(s.Store).Join(from.Status.Artifact).String()
	}
	r.ServiceAccountName = cmp.Or(r.ServiceAccountName, from.Spec.Job.ServiceAccountName)
	if _, err := stores.ParseArtifactURL(r.URL); err != nil {
		return nil, fmt.Sprintf("the status of EtcdSnapshot %s can't be used: %s", s.SnapshotRef.Name,
			err)
	}
	if err := stores.Validate("store", &r.Store); err != nil {
		return nil, fmt.Sprintf("EtcdSnapshot %s can't be reached: %s", s.SnapshotRef.Name, err)
	}
	return f.follow(r, s.Until, snapshot.Tail(from))
}

// follow has a restore go on with the changes after the snapshot, which are in a folder of the store.
func (f *Facts) follow(r *record.Resolved, until *v1beta1.Until, tail string) (*record.Resolved, string) {
	if until == nil {
		return r, ""
	}
	id := cmp.Or(until.ClusterID, r.ClusterID)
	if id == "" {
		return nil, "until needs clusterID: it is not known of which etcd the changes are"
	}
	f.followed(r, until, tail, id)
	if until.Latest {
		return r, ""
	}
	r.Until = until.Revision
	if until.Time != "" {
		at, err := time.Parse(time.RFC3339, until.Time)
		if err != nil {
			return nil, "until.time is no time: name one such as 2026-11-22T13:59:00Z"
		}
		r.UntilTime = at
	}
	return r, ""
}

// followed has a restore find the changes of an etcd, in a folder of the snapshot's store. What was streamed in this
// namespace its own keys have signed, and an EtcdSnapshot was taken here.
func (f *Facts) followed(r *record.Resolved, until *v1beta1.Until, tail, clusterID string) {
	r.Tail = stores.URLOf(&r.Store).Join(path.Join(tail, clusterID)).String()
	r.Keys = until.KeysSecretRef
	if r.Keys.Name == "" && r.Name != "" && f.Settings.Keyed {
		r.Keys.Name = objects.RestoreSecret(f.Cluster.Name)
	}
}
