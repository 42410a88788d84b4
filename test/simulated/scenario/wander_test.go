package scenario

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

var wanderings = flag.Int("wanderings", 60, "how many random walks each test takes; with -short a third of them")

// walks is how many random walks a test takes.
func walks() int {
	if testing.Short() {
		return *wanderings / 3
	}
	return *wanderings
}

// wanders takes random walks: all sorts of things happen in a random order, the same one every time for a seed, and then
// the faults stop. No rule of safety may break, the walk itself may find nothing wrong, and unless a majority of the
// data was lost the cluster must converge.
func wanders(t *testing.T, salt uint64, walk func(s *story, r *rand.Rand, tell func(string)) (wrong string)) {
	for seed := range uint64(walks()) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := newStory()
			s.w.Watch = false
			var told strings.Builder
			wrong := walk(s, rand.New(rand.NewPCG(seed, salt)), func(line string) { told.WriteString(line) })
			for _, breach := range s.breaches() {
				wrong += "VIOLATION " + breach + "\n"
			}
			if !s.mayEnd() && s.alive() {
				wrong += "not converged\n"
			}
			if wrong != "" {
				t.Errorf("%s%s%s", wrong, told.String(), s.check(args{}))
			}
		})
	}
}

func TestWander(t *testing.T) { wanderFrom(t, v1alpha1.TLSAuto, 0, "Persistent", "Memory") }

// TestWanderFromPlainText are walks of clusters that have served in plain text and learn TLS on the way.
func TestWanderFromPlainText(t *testing.T) {
	wanderFrom(t, v1alpha1.TLSDisabled, 0, "Persistent", "Memory")
}

// TestWanderOnNodes are walks of clusters whose members are on nodes, one of which is always free.
func TestWanderOnNodes(t *testing.T) { wanderFrom(t, v1alpha1.TLSAuto, 0, "HostPath") }

// TestWanderAtAddresses are walks of clusters on the hosts' network.
func TestWanderAtAddresses(t *testing.T) {
	wanderFrom(t, v1alpha1.TLSAuto, 0, "HostPath at addresses", "Memory at addresses")
}

// TestWanderAtAddressesThroughEpochs are those on which people restore and recover all the time, and which learn TLS.
func TestWanderAtAddressesThroughEpochs(t *testing.T) {
	wanderFrom(t, v1alpha1.TLSDisabled, 6, "HostPath at addresses", "Memory at addresses")
}

// TestWanderThroughEpochs are walks on which people restore and recover all the time.
func TestWanderThroughEpochs(t *testing.T) {
	wanderFrom(t, v1alpha1.TLSDisabled, 6, "Persistent", "Memory", "HostPath")
}

// wanderFrom takes the walks; on one of so many steps something is asked of epochs, 0 for rarely.
func wanderFrom(t *testing.T, mode v1alpha1.TLSMode, restless int, media ...string) {
	learns := mode == v1alpha1.TLSDisabled && restless == 0
	wanders(t, 0, func(s *story, r *rand.Rand, tell func(string)) string {
		born := args{"replicas": fmt.Sprint(1 + r.IntN(4)), "medium": media[r.IntN(len(media))],
			"tls": string(mode), "leaf": "100h", "ca": "200h"}
		medium, at, _ := strings.Cut(born["medium"], " at ")
		if at != "" || medium == "HostPath" {
			born["medium"], born["nodes"] = medium, "a,b,c,d,e,f"
		}
		if at != "" {
			born[at] = ""
		}
		if mode == v1alpha1.TLSDisabled {
			born["ready"] = "" // it has served for a while
		}
		s.cluster(born)
		for range 5 + r.IntN(60) {
			if learns && r.IntN(15) == 0 {
				tell(s.learn(r.IntN(3) > 0))
			}
			if restless > 0 && r.IntN(restless) == 0 && s.w.Cluster().Status.ClusterID != "" {
				tell(s.wanderInEpochs(r))
			}
			if at != "" && r.IntN(10) == 0 {
				tell(s.forgetNode(r.IntN(7)))
			}
			tell(s.wander(r))
		}
		if at != "" {
			tell(s.forgetNode(6))
		}
		if learns {
			tell(s.learn(false))
		}
		tell(s.recover())
		return ""
	})
}

// TestWanderBesideOthers are walks of clusters that join an etcd which runs elsewhere, with members there that stop
// and start, and a person who can't decide whether they are to go. In the end they are.
func TestWanderBesideOthers(t *testing.T) {
	wanders(t, 1, func(s *story, r *rand.Rand, tell func(string)) string {
		others := strings.Split("old-0,old-1,old-2,old-3", ",")[:1+r.IntN(4)]
		existing := strings.Join(others, ",")
		s.foreign(args{"start": existing})
		s.cluster(args{"replicas": fmt.Sprint(1 + r.IntN(4)), "medium": []string{"Persistent", "Memory"}[r.IntN(2)],
			"tls": "Disabled", "existing": existing, "size": "64Gi"}) // room for whatever is there
		for range 10 + r.IntN(80) {
			if r.IntN(8) == 0 {
				tell(s.wanderBeside(r, others))
			} else {
				tell(s.wander(r))
			}
		}
		for _, other := range others {
			s.foreign(args{"again": other})
		}
		s.w.EditSpec(func(e *v1alpha1.EtcdClusterSpec) {
			e.Bootstrap.Existing.RetireForeign, e.Replicas = true, new(max(1, *e.Replicas))
		})
		tell(s.recover())
		return ""
	})
}

// TestWanderThroughRefusals are walks on which the API server refuses to make objects, of one kind or another, and
// makes them again: first of a cluster that begins, and then of one that has served. What was refused must be there in
// the end.
func TestWanderThroughRefusals(t *testing.T) {
	wanders(t, 0, func(s *story, r *rand.Rand, tell func(string)) string {
		medium := []string{"Persistent", "Memory"}[r.IntN(2)]
		s.cluster(args{"replicas": fmt.Sprint(1 + r.IntN(4)), "medium": medium, "leaf": "100h", "ca": "200h"})
		begins := func(*rand.Rand) string {
			s.w.Pass()
			return "pass, sync " + s.sync(args{})
		}
		for range r.IntN(20) {
			tell(s.refuseAtTimes(r, 4, begins))
		}
		clear(s.w.Refused)
		tell("accept\n" + s.stabilize(args{}))
		for range 5 + r.IntN(60) {
			tell(s.refuseAtTimes(r, 16, s.wander))
		}
		clear(s.w.Refused)
		tell(s.recover())
		if left := s.w.Cluster().Status.Internal.Awaited; len(left) > 0 {
			return fmt.Sprintf("still awaited: %v\n", left)
		}
		return ""
	})
}

// TestWanderThroughWindows are walks of clusters that people give maintenance windows, and edit while these are open or
// closed. The oracle sees to it that nothing begins outside of one that could wait. At the end time goes on until the
// next one opens, and the cluster must converge in it.
func TestWanderThroughWindows(t *testing.T) {
	wanders(t, 7, func(s *story, r *rand.Rand, tell func(string)) string {
		s.cluster(args{
			"replicas": fmt.Sprint(1 + r.IntN(4)), "medium": []string{"Persistent", "Memory"}[r.IntN(2)],
			"leaf": "100h", "ca": "200h", "windows": "0 2 * * *|4h", "ready": "",
		})
		for range 5 + r.IntN(60) {
			if r.IntN(6) == 0 {
				tell(s.wanderInWindows(r))
			}
			tell(s.wander(r))
		}
		tell(s.recover())
		for range 3 { // what heals, and certificates, may take a whole window
			tell(s.untilOpen() + s.stabilize(args{}))
		}
		return ""
	})
}

// forgetNode takes one of six nodes with addresses out of the list, or none.
func (s *story) forgetNode(n int) string {
	nodes := strings.Split("a,b,c,d,e,f", ",")
	if n < len(nodes) {
		nodes = slices.Delete(nodes, n, n+1)
	}
	s.w.EditSpec(func(e *v1alpha1.EtcdClusterSpec) { changeNodes(e, true, nodes) })
	return fmt.Sprintf("edit nodes=%s\n", strings.Join(nodes, ","))
}

// learn switches TLS on, with or without plain text for clients.
func (s *story) learn(plaintext bool) string {
	s.w.EditSpec(func(e *v1alpha1.EtcdClusterSpec) {
		e.TLS.Mode, e.TLS.AllowPlaintextClients = v1alpha1.TLSAuto, plaintext
	})
	return fmt.Sprintf("tls=Auto plaintext=%t\n", plaintext)
}

// wander does one thing by chance.
func (s *story) wander(r *rand.Rand) string {
	pick := func(names []string) string {
		if len(names) == 0 {
			return ""
		}
		return names[r.IntN(len(names))]
	}
	pods, claims := s.names()
	crashes := []world.Crash{{At: world.BeforeStep}, {At: world.AfterStep}, {At: world.AfterDeletes},
		{At: world.AfterWrites, Writes: r.IntN(4)}, {At: world.BeforeStatus}}
	kinds := []world.Kind{world.PodKind, world.ClaimKind, world.ConfigMapKind, world.ClusterKind, world.SecretKind}
	pod, claim, kind := pick(pods), pick(claims), kinds[r.IntN(len(kinds))]
	do := func(what string, with any, f func()) string {
		f()
		return fmt.Sprintf("%s %v\n", what, with)
	}
	switch n := r.IntN(100); {
	case n < 30:
		return "sync " + s.told(s.w.Sync(world.Crash{}))
	case n < 55:
		return do("pass", "", s.w.Pass)
	case n < 60:
		return do("kubelet", "", func() { s.w.Kubelets(); s.w.Probe() })
	case n < 66:
		c := crashes[r.IntN(len(crashes))]
		return fmt.Sprint("crash ", c, s.told(s.w.Sync(c)))
	case n < 70:
		return s.twoSyncs(args{})
	case n < 76:
		return do("freeze", kind, func() { s.w.Freeze(kind) })
	case n < 80:
		return do("thaw", kind, func() { s.w.Thaw(kind) })
	case n < 84:
		size := int32(1 + r.IntN(5))
		return do("replicas", size, func() { s.w.EditSpec(func(e *v1alpha1.EtcdClusterSpec) { e.Replicas = &size }) })
	case n < 85 && r.IntN(2) == 0:
		minutes := time.Duration(1+r.IntN(10)) * time.Minute
		return "wait " + minutes.String() + "\n" + s.wait(args{minutes.String(): ""})
	case n < 85:
		hours := time.Duration(1+r.IntN(30)) * time.Hour
		return do("tick", hours, func() { s.w.Now = s.w.Now.Add(hours) })
	case n < 86 && r.IntN(3) == 0:
		secret := pick([]string{"demo-ca", "demo-server-tls", "demo-peer-tls", "demo-operator-tls", "demo-client-tls",
			"demo-token"})
		return do("delete secret", secret, func() { _ = s.w.Delete(world.SecretKind, secret) })
	case n < 86:
		return s.wanderInData(r)
	case n < 87 && r.IntN(2) == 0:
		return s.wanderInEpochs(r)
	case n < 87:
		return do("lose reply", "", func() { s.w.Etcd.LoseReply = true })
	case n < 88:
		return do("etcd down", !s.w.Net.Down, func() { s.w.Net.Down = !s.w.Net.Down })
	case n < 89:
		return do("wipe", "status", s.w.WipeStatus)
	case n < 90:
		return do("pace", "", func() { s.w.Etcd.LearnerPace = r.IntN(4) })
	case pod == "":
		return ""
	case n < 92:
		return do("kill", pod, func() { s.w.KillPod(pod) })
	case n < 93:
		return do("delete pod", pod, func() { _ = s.w.Delete(world.PodKind, pod) })
	case n < 94:
		return do("evict", pod, func() { s.w.Evict(pod) })
	case n < 95 && r.IntN(2) == 0:
		if s.w.Crashing[pod] {
			return do("mend", pod, func() { s.w.Mend(pod) })
		}
		return do("crash", pod, func() { s.w.Crash(pod) })
	case n < 95:
		return do("restart", pod, func() { s.w.Restart(pod) })
	case n < 96:
		return do("reboot", pod, func() { s.w.Reboot(pod) })
	case n < 97:
		return do("isolate", pod, func() { s.w.Net.Isolated[pod] = !s.w.Net.Isolated[pod] })
	case n < 98:
		return do("unreachable", pod, func() { s.w.Net.Unreachable[pod] = !s.w.Net.Unreachable[pod] })
	case s.w.Cluster().Spec.Storage.HostPath != nil:
		return s.emptyDisk(pod)
	case claim == "":
		return ""
	case n < 99 && r.IntN(2) == 0:
		return s.emptyDisk(claim)
	case n < 99:
		return do("lose claim", claim, func() { s.w.LoseClaim(claim) })
	}
	return do("delete claim", claim, func() { _ = s.w.Delete(world.ClaimKind, claim) })
}

// emptyDisk is a disk that is replaced under a member, where that can show.
func (s *story) emptyDisk(member string) string {
	if s.mayBeginAgain(member) {
		return ""
	}
	s.w.WipeData(member)
	return fmt.Sprintf("wipe %s\n", member)
}

// mayBeginAgain reports whether a member's directory could be emptied and nothing would show that it has begun
// before: in an epoch that has begun and whose record, as it is shown, has no cluster ID yet, any new pod of an
// initial member may begin, and one that was made then still may until prepare has run in it
// (data_wiped_early_first).
func (s *story) mayBeginAgain(member string) bool {
	for _, o := range s.w.Cached(world.ConfigMapKind) {
		cm := o.(*corev1.ConfigMap)
		initial := strings.Contains(","+cm.Data[objects.EpochKeyInitialCluster], ","+member+"=")
		begun := cm.Data[objects.EpochKeyAfter] == "" || cm.Annotations[objects.AnnotationPhase] == "began"
		if initial && begun && cm.Annotations[objects.AnnotationClusterID] == "" {
			return true
		}
	}
	pod := s.w.Pod(member)
	if pod == nil || pod.Annotations[objects.AnnotationStart] != objects.StartBootstrap || s.w.Markers[pod.UID] {
		return false
	}
	return s.w.Cluster().Spec.Storage.HostPath == nil || objects.MayBegin(pod)
}

// wanderInData writes, keys or so much that the space may go out, or asks for a defragmentation.
func (s *story) wanderInData(r *rand.Rand) string {
	switch r.IntN(4) {
	case 0:
		over := int64(r.IntN(700)) << 20
		return fmt.Sprintln("write over", over, s.w.Fill(1<<10, over, 0))
	case 1:
		value := fmt.Sprint(r.IntN(3))
		s.w.Defragment("defrag-" + value)
		return fmt.Sprintln("defrag", value)
	case 2:
		s.w.Etcd.DefragmentPasses = r.IntN(4)
		return fmt.Sprintln("defragmentation takes", s.w.Etcd.DefragmentPasses)
	}
	s.w.Write(1 + r.IntN(20))
	return "write\n"
}

// wanderInEpochs takes a snapshot, restores one or earlier data, takes that back, or sets what happens when the
// quorum is lost.
func (s *story) wanderInEpochs(r *rand.Rand) string {
	id, epoch := fmt.Sprint("r", r.IntN(1000)), s.w.Cluster().Status.Epoch
	newest := fmt.Sprint("s", len(s.w.Artifacts))
	if r.IntN(3) == 0 {
		s.w.Stream([]string{"", "users have changed"}[r.IntN(2)])
	}
	switch n := r.IntN(10); {
	case n < 3 || len(s.w.Artifacts) == 0:
		name, flaw := fmt.Sprint("s", len(s.w.Artifacts)+1), ""
		if r.IntN(4) == 0 {
			flaw = "Damaged: the hash differs"
		}
		s.w.TakeSnapshot(name, "s3://bucket/"+name, flaw)
		return fmt.Sprintln("snapshot", name, flaw)
	case n < 6:
		wish := v1alpha1.RestoreOperation{StopFirst: r.IntN(4) == 0,
			Snapshot: &v1alpha1.SnapshotSource{SnapshotRef: v1alpha1.SnapshotRef{Name: newest}}}
		s.w.AskRestore(id, wish)
		return fmt.Sprintln("restore", id, newest, wish.StopFirst)
	case n < 7 && epoch > 1:
		wish := v1alpha1.RestoreOperation{Epoch: new(1 + int64(r.IntN(int(epoch))))}
		s.w.AskRestore(id, wish)
		return fmt.Sprintln("restore", id, "epoch", *wish.Epoch)
	case n < 8:
		s.w.Withdraw(v1alpha1.OperationRestore)
		return "restore nothing\n"
	}
	policy := []v1alpha1.QuorumLoss{v1alpha1.RecoverManual, v1alpha1.RecoverFromSurvivor, v1alpha1.RecoverFromSnapshot,
		v1alpha1.RecoverRecreate}[r.IntN(4)]
	if r.IntN(2) == 0 {
		s.w.EditSpec(func(e *v1alpha1.EtcdClusterSpec) { e.Recovery.QuorumLoss = policy })
		return fmt.Sprintln("recovery", policy)
	}
	s.w.AskRecover(policy, epoch)
	return fmt.Sprintln("recover", policy, epoch)
}

func (s *story) names() (pods, claims []string) {
	for _, p := range s.w.Pods() {
		pods = append(pods, p.Name)
	}
	for _, c := range s.w.Claims() {
		claims = append(claims, c.Name)
	}
	return pods, claims
}

// recover ends all faults that can end.
func (s *story) recover() string {
	s.w.Net.Down, s.w.Etcd.LoseReply = false, false
	clear(s.w.Crashing)
	told := s.mark(args{"healed": ""}) + s.cache(args{"thaw": ""}) + "recover\n" + s.stabilize(args{})
	if s.w.Cluster().Status.Rule == "NoSpace" { // once in ten minutes
		told += "wait 10m\n" + s.wait(args{"10m": ""}) + s.stabilize(args{})
	}
	told += s.restartUprooted()
	if s.w.Cluster().Status.Rule == "Learner" { // it is given up after a while
		told += "wait 10m\n" + s.wait(args{"10m": ""}) + s.stabilize(args{})
	}
	return told
}

// restartUprooted is what a person does whose members trust none of the authorities that are left.
func (s *story) restartUprooted() (told string) {
	blind := s.w.Cluster().Status.Rule == "Blind"
	for _, pod := range s.w.Pods() {
		if blind || s.w.Uprooted(pod) {
			s.w.Restart(pod.Name)
			told += "restart " + pod.Name + "\n"
		}
	}
	if told == "" {
		return ""
	}
	return told + s.stabilize(args{})
}

// mayEnd reports whether the cluster is as it is asked for, or waits for a person.
func (s *story) mayEnd() bool {
	c := s.w.Cluster()
	progress := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.Ready)
	unusable := progress != nil && (strings.Contains(progress.Message, "could not be filled") ||
		strings.Contains(progress.Message, "is left to begin") ||
		strings.Contains(progress.Message, "no volume can be used"))
	refused := c.Status.Rule == "Upgrade" && meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.Stalled)
	return slices.Contains([]string{"Converged", "QuorumLost", "Recover", "PrepareRestore"}, c.Status.Rule) ||
		unusable || refused
}

// alive reports whether a majority of the voters of the epoch that runs still has data to come back with.
func (s *story) alive() bool {
	epoch := 0
	for _, c := range s.w.Etcd.Clusters {
		if c.Leader != 0 {
			epoch = max(epoch, c.Epoch)
		}
	}
	for _, c := range s.w.Etcd.Clusters {
		if c.Epoch != epoch || c.Leader == 0 {
			continue
		}
		var voters, held int
		for _, m := range c.Members {
			if m.Learner {
				continue
			}
			voters++
			for _, d := range s.w.Dirs {
				if d.Cluster == c.ID && d.Member == m.ID {
					held++
				}
			}
		}
		if held < voters/2+1 {
			return false
		}
	}
	return !slices.Contains([]string{"Start", "Provision"}, s.w.Cluster().Status.Rule) ||
		len(s.w.Etcd.Clusters) == 0 && !s.forgotten()
}

// forgotten reports whether no quorum of the initial members may begin, although their etcd has never run: on Memory
// a reboot takes the mark of prepare too, so they are taken for lost, and a person begins again
// (docs/decisions/0001-founding.md).
func (s *story) forgotten() bool {
	record, there := s.w.Objects[world.Key{Kind: world.ConfigMapKind,
		Name: objects.EpochName(s.w.Cluster().Name, 1)}].(*corev1.ConfigMap)
	if !there || s.w.Cluster().Spec.Storage.Medium != v1alpha1.Memory {
		return false
	}
	initial, able := strings.Count(record.Data[objects.EpochKeyInitialCluster], "="), 0
	for _, pod := range s.w.Pods() {
		if !slices.ContainsFunc(pod.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool {
			ended := c.LastTerminationState.Terminated
			return ended != nil && ended.ExitCode == objects.ExitDataLost
		}) {
			able++
		}
	}
	return able < initial/2+1
}

// wanderBeside does one thing by chance that has to do with foreign members.
func (s *story) wanderBeside(r *rand.Rand, others []string) string {
	other := others[r.IntN(len(others))]
	switch r.IntN(4) {
	case 0:
		s.foreign(args{"stop": other})
		return "foreign stop=" + other + "\n"
	case 1:
		s.foreign(args{"again": other})
		return "foreign again=" + other + "\n"
	case 2:
		retire := r.IntN(2) == 0
		s.w.EditSpec(func(e *v1alpha1.EtcdClusterSpec) { e.Bootstrap.Existing.RetireForeign = retire })
		return fmt.Sprintln("retire", retire)
	}
	if s.w.Cluster().Spec.Storage.Medium == v1alpha1.Memory {
		return ""
	}
	s.w.EditSpec(func(e *v1alpha1.EtcdClusterSpec) { e.Replicas = new(int32(0)) })
	return "replicas 0\n"
}

// refuseAtTimes refuses a kind once in so many times, takes all refusals back as often, and else does something.
func (s *story) refuseAtTimes(r *rand.Rand, times int, otherwise func(*rand.Rand) string) string {
	kinds := []world.Kind{world.PodKind, world.PodKind, world.ClaimKind, world.ConfigMapKind, world.ServiceKind,
		world.BudgetKind, world.SecretKind, world.PolicyKind}
	switch r.IntN(times) {
	case 0:
		kind := kinds[r.IntN(len(kinds))]
		s.w.Refuse(kind, "")
		return fmt.Sprintln("refuse", kind)
	case 1:
		clear(s.w.Refused)
		return "accept\n"
	}
	return otherwise(r)
}

// wanderInWindows changes what members are restarted for, or when that may begin, or lets time pass to there.
func (s *story) wanderInWindows(r *rand.Rand) string {
	changes := []args{
		{"priority-class": "high"}, {"priority-class": ""}, {"quota": "900Mi"},
		{"schedule": "0 1 * * *", "ratio": "0", "reclaim": "0"},
		{"version": "3.7.3"}, {"version": "3.6.16"}, {"version": "3.6.11"},
		{"windows": "none"}, {"windows": "0 2 * * *|4h"}, {"windows": "0 2 * * 6|4h;0 0 30 2 *|1h"},
		{"windows": "0 * * * *|10m"},
	}
	change := changes[r.IntN(len(changes))]
	if r.IntN(4) == 0 {
		hour := time.Date(s.w.Now.Year(), s.w.Now.Month(), s.w.Now.Day()+1, 2, 0, 0, 0, time.UTC)
		s.w.Now = hour.Add(time.Duration(r.IntN(600)) * time.Second)
		return fmt.Sprintln("tick to", s.w.Now)
	}
	s.edit(change)
	return fmt.Sprintln("edit", change)
}

// untilOpen lets hours pass until nothing waits for a window any more, a week at most.
func (s *story) untilOpen() string {
	hours := 0
	for ; hours < 7*24 && s.w.Cluster().Status.Rule == "WaitForWindow"; hours++ {
		s.w.Now = s.w.Now.Truncate(time.Hour).Add(time.Hour)
		s.next()
		s.w.Pass()
	}
	return fmt.Sprintf("after %d hours\n", hours)
}
