package world

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
	"github.com/quorate-dev/quorate/hooks/stores"
	"github.com/quorate-dev/quorate/test/simulated/kubelet"
)

// Artifact is a snapshot in a store.
type Artifact struct {
	// Index is how many entries it holds, Revision that of its keys, SHA256 that of its database, Auth its users and
	// roles.
	Index    uint64
	Revision int64
	SHA256   string
	Auth     Auth
	// Minor is the minor version of etcd that has written it.
	Minor uint8
	// Flaw is why it can't be restored, as `quorate-snapshot restore` reports it: "Damaged: the hash differs"; empty
	// when it can.
	Flaw string
	// Of is the ID of the etcd that it was taken of, At when it was stored.
	Of uint64
	At time.Time
}

// TakeSnapshot stores what clients have written so far, as an artifact with this URL, and an EtcdSnapshot that tells
// of it. flaw is why it can't be restored; empty when it can. schedule is the EtcdSnapshotSchedule that took it; empty
// for none.
func (w *World) TakeSnapshot(name, url, flaw, schedule string) {
	taken, of := w.StoreArtifact(url, flaw)
	s := w.snapshotOf(name, schedule)
	s.Status = v1beta1.EtcdSnapshotStatus{Phase: v1beta1.SnapshotSucceeded, URI: url,
		CompletionTime: metav1.NewTime(w.Now), VerificationTime: metav1.NewTime(w.Now),
		SHA256: taken.SHA256}
	if of != 0 {
		s.Status.ClusterID = strconv.FormatUint(of, 16)
	}
	_ = w.create(snapshotKind, s)
}

// FailSnapshot leaves an EtcdSnapshot of a schedule that failed, and says why.
func (w *World) FailSnapshot(name, why, schedule string) {
	s := w.snapshotOf(name, schedule)
	s.Status = v1beta1.EtcdSnapshotStatus{Phase: v1beta1.SnapshotFailed, Message: why}
	_ = w.create(snapshotKind, s)
}

func (w *World) snapshotOf(name, schedule string) *v1beta1.EtcdSnapshot {
	cluster := w.Cluster().Name
	s := &v1beta1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{objects.LabelCluster: cluster}}}
	s.Spec = v1beta1.EtcdSnapshotSpec{ClusterRef: v1beta1.ClusterRef{Name: cluster},
		Store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "bucket"}}}
	if schedule != "" {
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(),
			Kind: v1beta1.KindSchedule, Name: schedule, UID: types.UID("uid-" + schedule), Controller: new(true)}}
	}
	return s
}

// StoreArtifact stores what clients have written so far under this URL, in the place of what is there. It tells of
// which etcd that is.
func (w *World) StoreArtifact(url, flaw string) (taken Artifact, of uint64) {
	taken.Flaw = flaw
	if c, led := w.led(); led {
		taken.Index, taken.Revision, taken.Auth, of = c.Commit, c.Revision, c.Auth.carried(), c.ID
		taken.Minor = c.Agreed
	}
	taken.SHA256 = fmt.Sprintf("%064x", id("sha256", url, fmt.Sprint(of, taken.Index, taken.Revision)))
	taken.Of, taken.At = of, w.Now
	w.Artifacts[url] = taken
	return taken, of
}

// epochOf is the number of the epoch in a cluster's token.
func epochOf(token string) int {
	n, err := strconv.Atoi(token[strings.LastIndex(token, "-")+1:])
	if err != nil {
		return 0
	}
	return n
}

func initOf(pod *corev1.Pod, name string) *corev1.Container {
	i := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &pod.Spec.InitContainers[i]
}

// flag is the value of a flag of the container; empty without it.
func flag(c *corev1.Container, name string) string {
	for _, arg := range slices.Concat(c.Command, c.Args) {
		if value, is := strings.CutPrefix(arg, "--"+name+"="); is {
			return value
		}
	}
	return ""
}

// overIn reports whether the pod names the record of an epoch that is not there: the kubelet does not start its
// containers.
func (w *World) overIn(pod *corev1.Pod) string {
	for _, c := range pod.Spec.InitContainers {
		for _, e := range c.Env {
			if e.ValueFrom == nil || e.ValueFrom.ConfigMapKeyRef == nil {
				continue
			}
			if name := e.ValueFrom.ConfigMapKeyRef.Name; w.Objects[Key{ConfigMapKind, name}] == nil {
				return name
			}
		}
	}
	return ""
}

// seed is the init container that fills a data directory: it reports why it could not; empty for success.
func (w *World) seed(pod *corev1.Pod, place string) string {
	seed := initOf(pod, objects.ContainerSeed)
	if seed == nil || w.Markers[pod.UID] || w.dirOf(pod, place).Member != 0 {
		return ""
	}
	env, _, err := w.Environment(pod, seed.Env)
	if err != nil {
		return report(stores.Restore{Reason: "Failed", Error: err.Error()})
	}
	from, flaw := w.source(pod, seed, env)
	if flaw != "" {
		return flaw
	}
	if version := flag(seed, "etcd-version"); version != tagOf(seed.Image) || from.Minor > minorOf(version) {
		return report(stores.Restore{Reason: "OtherVersion", Error: fmt.Sprintf("the data was written by etcd 3.%d.0, "+
			"and the cluster would run %s: set spec.version to that version or a later one", from.Minor, version)})
	}
	initial, token := objects.ParsePairs(env["ETCD_INITIAL_CLUSTER"], "="), env["ETCD_INITIAL_CLUSTER_TOKEN"]
	if why := unlisted(initial, pod.Name, flag(seed, "peer-url")); why != "" {
		return report(stores.Restore{Reason: "Failed", Error: "etcdutl could not restore the database: " + why})
	}
	c, self := w.formed(initial, initial[pod.Name], token)
	replayed := w.replay(seed, env, &from)
	if from.Index > 0 {
		c.Commit = from.Index
	}
	c.Begin = beginning(seed, from.Revision)
	c.Revision, c.Auth = c.Begin, from.Auth
	made := stores.Restore{Revision: c.Begin, Keys: int64(from.Index),
		Hash: fmt.Sprintf("%08x", id("hash", fmt.Sprint(from.Index, from.Revision))), SHA256: from.SHA256,
		UntilRevision: replayed.UntilRevision, Replayed: replayed.Replayed, UntilTime: replayed.UntilTime,
		Ended: replayed.Ended}
	if _, exists := w.Etcd.Clusters[c.ID]; !exists {
		w.store(c)
	}
	d := Dir{Cluster: c.ID, Member: self, Index: c.Commit, Seed: report(made)}
	if _, ran := w.Oracle.identities[self]; ran { // who has not may be filled again
		if err := w.Oracle.takeIdentity(w, d, place); err != nil {
			return report(stores.Restore{Reason: "Failed", Error: err.Error()})
		}
	}
	w.storeBegun(pod, place, d)
	return ""
}

// source is what a data directory is filled with, or the report of why it can't be.
func (w *World) source(pod *corev1.Pod, seed *corev1.Container, env map[string]string) (from Artifact, flaw string) {
	failed := func(reason, words string) (Artifact, string) {
		return Artifact{}, report(stores.Restore{Reason: reason, Error: words})
	}
	if url := flag(seed, "url"); url != "" {
		artifact, there := w.Artifacts[url]
		wanted := cmp.Or(flag(seed, "sha256"), env[facts.EnvSHA256])
		switch {
		case !there:
			return failed("NotFound", "there is no artifact "+url)
		case artifact.Flaw != "":
			reason, words, _ := strings.Cut(artifact.Flaw, ": ")
			return failed(reason, cmp.Or(words, "it can't be restored"))
		case wanted != "" && wanted != artifact.SHA256:
			return failed("Damaged", url+" is not the snapshot that was asked for")
		}
		return artifact, ""
	}
	d := w.survivor(pod)
	if url := flag(seed, "from-member"); url != "" {
		if d = w.runningAt(url); d.Member == 0 {
			return failed("Unreachable", "no member answers at "+url)
		}
	} else if slices.Contains(seed.Args, "--empty") {
		return Artifact{}, ""
	}
	if d.Member == 0 {
		return failed("Damaged", "the survivor's directory holds no data")
	}
	of := w.Etcd.Clusters[d.Cluster]
	return Artifact{Index: d.Index, Revision: w.revisionOf(d), Auth: of.Auth.at(d.Index).carried(), Minor: of.Agreed}, ""
}

// Tail is what a stream has stored of an etcd.
type Tail struct {
	// Index and Revision are as in Artifact, of the last change that can be restored; At is when it had arrived.
	Index    uint64
	Revision int64
	At       time.Time
	// Flaw is why what follows can't be restored; empty when nothing does.
	Flaw string
}

// Stream has a stream store what clients have written so far; flaw is why what comes then can't be restored.
func (w *World) Stream(flaw string) {
	c, led := w.led()
	if !led {
		return
	}
	of := strconv.FormatUint(c.ID, 16)
	w.Tails[of] = append(slices.Clone(w.Tails[of]), Tail{Index: c.Commit, Revision: c.Revision, At: w.Now, Flaw: flaw})
}

// replay adds to an artifact what a stream has stored after it, and reports that.
func (w *World) replay(seed *corev1.Container, env map[string]string, from *Artifact) (told stores.Restore) {
	url := flag(seed, "tail-url")
	if url == "" {
		return told
	}
	until := number(cmp.Or(flag(seed, "until-revision"), env[facts.EnvUntil], "0"))
	var end Tail
	for _, t := range w.Tails[path.Base(url)] {
		if until == 0 || t.Revision == until {
			end = t
		}
	}
	if until == 0 {
		told.Ended = end.Flaw
	}
	if end.Revision > from.Revision {
		told.Replayed, told.UntilTime = end.Revision-from.Revision, end.At
		from.Index, from.Revision = end.Index, end.Revision
	}
	told.UntilRevision = max(1, from.Revision) // that of an etcd that nothing was written to
	return told
}

// beginning is the revision that a member begins at whose data had come to this one.
func beginning(seed *corev1.Container, revision int64) int64 {
	return max(revision, number(flag(seed, "begin-after"))) + 1_000_000_000
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// revisionOf is up to which revision a data directory has the keys: entries that it lacks were writes, as far as
// there were any.
func (w *World) revisionOf(d Dir) int64 {
	c := w.Etcd.Clusters[d.Cluster]
	return max(c.Begin, c.Revision-int64(c.Commit-min(d.Index, c.Commit)))
}

func report(r stores.Restore) string {
	raw, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// survivor is the directory on the volume that a pod copies from.
func (w *World) survivor(pod *corev1.Pod) Dir {
	for _, v := range pod.Spec.Volumes {
		if v.Name == "survivor" && v.PersistentVolumeClaim != nil {
			if claim := w.Claim(v.PersistentVolumeClaim.ClaimName); claim != nil {
				return w.Dirs[volumeOf(claim.UID)]
			}
		}
	}
	return Dir{}
}

// runningAt is the directory of the member that runs behind this client URL.
func (w *World) runningAt(url string) Dir {
	for _, p := range w.Procs {
		if slices.Contains(w.advertised(p.Pod), url) || strings.HasPrefix(hostOf(url), p.Pod+".") {
			return w.Dirs[p.Dir]
		}
	}
	return Dir{}
}

// inspection runs a pod that looks at a member's volume, or into a store; false for another pod.
func (w *World) inspection(pod *corev1.Pod) bool {
	c := &pod.Spec.Containers[0]
	looks := c.Name == objects.ContainerInspect
	if !looks && c.Name != objects.ContainerInspectData {
		return false
	}
	if !slices.Equal(c.Command, []string{"/quorate-snapshot"}) || c.Args[0] != c.Name {
		panic(fmt.Sprintf("pod %s runs %q %q, which no program of the image understands", pod.Name, c.Command, c.Args))
	}
	if looks {
		w.lookIntoStore(pod, c)
		return true
	}
	raw, err := json.Marshal(w.lookAtVolume(pod))
	if err != nil {
		panic(err)
	}
	w.ended(pod.Name, corev1.PodSucceeded, corev1.ContainerStatus{Name: c.Name, State: kubelet.Ended(0, string(raw))})
	return true
}

// ended is what the kubelet tells of a pod with one container.
func (w *World) ended(pod string, phase corev1.PodPhase, c corev1.ContainerStatus) {
	w.editPod(pod, func(p *corev1.Pod) {
		p.Status.Phase = phase
		p.Status.ContainerStatuses = []corev1.ContainerStatus{c}
		w.meshTells(p)
	})
}

// lookIntoStore runs a pod that looks for the newest snapshot of a store; one that finds out nothing is started again.
func (w *World) lookIntoStore(pod *corev1.Pod, c *corev1.Container) {
	told := w.latestIn(c)
	if told.None && slices.Contains(c.Args, "--wait") {
		told.Reason, told.Error = "Failed", "the folder has no snapshot"
	}
	raw, err := json.Marshal(told)
	if err != nil {
		panic(err)
	}
	if told.Error == "" {
		w.ended(pod.Name, corev1.PodSucceeded, corev1.ContainerStatus{Name: c.Name, State: kubelet.Ended(0, string(raw))})
		return
	}
	w.ended(pod.Name, corev1.PodRunning, corev1.ContainerStatus{Name: c.Name, State: kubelet.Waits(kubelet.BacksOff, ""),
		LastTerminationState: kubelet.Ended(1, string(raw))})
}

// latestIn is what quorate-snapshot tells of the newest snapshot of a folder.
func (w *World) latestIn(c *corev1.Container) (told stores.Latest) {
	if w.StoreDown != "" {
		return stores.Latest{Reason: "Unreachable", Error: w.StoreDown}
	}
	folder := flag(c, "store-url") + "/" + flag(c, "latest") + "/"
	var newest Artifact
	for _, url := range slices.Sorted(maps.Keys(w.Artifacts)) {
		name, in := strings.CutPrefix(url, folder)
		if !in {
			continue
		}
		told.Snapshots++
		if a := w.Artifacts[url]; newest.SHA256 == "" || a.At.After(newest.At) {
			newest = a
			told.Artifact = flag(c, "latest") + "/" + name
		}
	}
	told.None = told.Artifact == ""
	told.SHA256, told.Revision, told.Completed = newest.SHA256, newest.Revision, newest.At
	if !told.None {
		told.ClusterID = strconv.FormatUint(newest.Of, 16)
	}
	return told
}

// lookAtVolume is what quorate-snapshot tells of a member's volume.
func (w *World) lookAtVolume(pod *corev1.Pod) stores.Inspection {
	d := w.survivor(pod)
	told := stores.Inspection{LastTerm: 1, LastIndex: d.Index, ClusterID: strconv.FormatUint(d.Cluster, 16),
		MemberID: strconv.FormatUint(d.Member, 16)}
	switch {
	case d.Member == 0:
		told = stores.Inspection{Reason: "NotFound", Error: "there is no write-ahead log"}
	case w.occupied(d):
		told = stores.Inspection{Reason: "Failed", Error: "the database is in use"}
	default:
		told.Members, told.Electorates = w.electorates(d)
	}
	return told
}

// occupied reports whether an etcd runs on the directory.
func (w *World) occupied(d Dir) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(w.Procs)),
		func(p Proc) bool { return w.Dirs[p.Dir].Member == d.Member })
}

// electorates are the names of the members of the directory's cluster by ID, and whose votes count there.
func (w *World) electorates(d Dir) (names map[string]string, sets [][]string) {
	names, sets = map[string]string{}, [][]string{{}}
	for _, m := range w.Etcd.Clusters[d.Cluster].Members {
		memberID := strconv.FormatUint(m.ID, 16)
		names[memberID] = nameAt(m)
		if !m.Learner {
			sets[0] = append(sets[0], memberID)
		}
	}
	return names, sets
}

// waitsAtGate reports whether the pod's member is made ready before its epoch begins.
func waitsAtGate(pod *corev1.Pod) bool {
	prepare := initOf(pod, objects.ContainerPrepare)
	return prepare != nil && flag(prepare, "await") != "" && pod.Annotations[objects.AnnotationBegins] == ""
}

// unlisted is why a member is not of the cluster that it is told to begin, as etcd and etcdutl say it; empty when it is
// (advertiseMatchesCluster in etcd's server/config/config.go).
func unlisted(initial map[string]string, name, peerURL string) string {
	switch listed := initial[name]; listed {
	case "":
		return fmt.Sprintf("couldn't find local name %q in the initial cluster configuration", name)
	case peerURL:
		return ""
	default:
		return fmt.Sprintf("--initial-cluster has %s=%s but missing from --initial-advertise-peer-urls=%s", name, listed,
			peerURL)
	}
}

// unpulledSeed is the image of the container that fills the pod's data directory, when that can't be pulled; empty for
// none. One that has filled it needs it no more.
func (w *World) unpulledSeed(pod *corev1.Pod, place string) string {
	seed := initOf(pod, objects.ContainerSeed)
	if seed == nil || w.Markers[pod.UID] || w.dirOf(pod, place).Member != 0 || !w.unpulled(seed.Image) {
		return ""
	}
	return seed.Image
}

// seedStatus is what the kubelet tells of the container that fills the data directory; nil for a pod without.
func (w *World) seedStatus(pod *corev1.Pod, s standing) *corev1.ContainerStatus {
	if initOf(pod, objects.ContainerSeed) == nil || s.Stage == kubelet.Unmounted {
		return nil
	}
	c := corev1.ContainerStatus{Name: objects.ContainerSeed}
	switch s.Stage {
	case kubelet.SeedUnpulled:
		c.State = kubelet.Waits(kubelet.NoImage, s.why)
	case kubelet.Unseeded:
		c.State = kubelet.Waits(kubelet.BacksOff, "")
		c.LastTerminationState = kubelet.Ended(1, s.why)
	default:
		c.State = kubelet.Ended(0, cmp.Or(w.dirOf(pod, w.placeOf(pod)).Seed, "{}"))
	}
	return &c
}

// onlyOneServes finds two epochs that could both acknowledge writes (S8).
func (w *World) onlyOneServes() {
	serve := 0
	for _, c := range w.Etcd.Clusters {
		if w.quorate(c) {
			serve++
		}
	}
	if serve > 1 {
		w.violate("S8", "%d etcd clusters can acknowledge writes at once", serve)
	}
}

// stops reports whether the epoch that runs is being stopped for the next one.
func (w *World) stops() bool {
	for _, o := range w.Objects {
		if cm, is := o.(*corev1.ConfigMap); is && recordtest.Says(cm).Phase == record.PhaseStopping {
			return true
		}
	}
	return false
}
