package scenario

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/journal"
	"github.com/quorate-dev/quorate/hooks/objects"
	rec "github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

var (
	wanderings = flag.Int("wanderings", 60, "how many random walks each test takes; with -short a third of them")
	firstWalk  = flag.Uint64("first-walk", 0, "the number of the first walk, from which all that happens on it follows")
	journals   = flag.Bool("journals", false, "write down what is decided on the walks, and replay it, "+
		"and judge nothing")
)

// walks is how many random walks a test takes.
func walks() int {
	if testing.Short() {
		return *wanderings / 3
	}
	return *wanderings
}

// What may happen on a walk: lines of a story, each with a weight. A semicolon is between lines that happen together,
// and a bar between those of which one does. POD, CLAIM, OTHER (an external member), NEXT and NEWEST (snapshots), EPOCH
// and NIGHT (how long it is until the next) stand for what there is, 1..5 for a number, and DATA or EPOCHS for one of
// those. LAST has all answers in flight arrive. What there is none of does not happen.
var (
	mishaps = chances(`
180 sync
150 pass
 30 kubelet; probe
 36 sync crash=before-step | sync crash=step | sync crash=deletes | sync crash=writes n=0..3 | sync crash=before-status
 24 two-syncs
 36 cache freeze=pod | cache freeze=claim | cache freeze=configmap | cache freeze=cluster | cache freeze=secret
 24 cache thaw=pod | cache thaw=claim | cache thaw=configmap | cache thaw=cluster | cache thaw=secret
 24 edit replicas=1..5
  6 edit spares=0..1
  6 edit avoid-slow=true | edit avoid-slow=false | disk POD fsync=1..400ms
  3 edit prefer-zones=eu-1a | edit prefer-zones=eu-1b,eu-1a | zone POD=eu-1a | zone POD=eu-1b
  3 wait 1..10m
  3 tick 1..30h
  2 delete secret=demo-ca | delete secret=demo-token | delete secret=demo-server-tls | delete secret=demo-peer-tls | ` +
		`delete secret=demo-operator-tls | delete secret=demo-client-tls
  4 DATA
  3 EPOCHS
  3 etcd lose-reply
  6 etcd down | etcd up
  6 status wipe
  6 etcd pace=0..3
 12 kill pod=POD
  6 delete pod=POD
  6 evict pod=POD
  3 crash pod=POD | mend pod=POD
  3 restart pod=POD
  6 reboot node=POD
  6 network isolated=POD | network joined=POD
  6 network unreachable=POD | network reachable=POD
 12 wipe pod=POD
  3 wipe claim=CLAIM
  3 lose claim=CLAIM
  6 delete claim=CLAIM`)

	inData = chances(`
1 write data=1Ki over=0..699Mi
1 defrag now=defrag-0..2
1 etcd defragmentation=0..3
1 write n=1..20`)

	inEpochs = chances(`
2 stream
2 stream flaw=users_have_changed
6 snapshot name=NEXT url=s3://bucket/NEXT
2 snapshot name=NEXT url=s3://bucket/NEXT flaw=Damaged:_the_hash_differs
6 edit restore=r0..999 from=NEWEST
2 edit restore=r0..999 from=NEWEST stop-first=true
2 edit restore=r0..999 epoch=1..EPOCH
2 edit restore=none
2 record forge=60; sync; record gone=60
2 edit recovery=Manual | edit recovery=FromSurvivor | edit recovery=FromSnapshot | edit recovery=Recreate
2 recover by=Manual:EPOCH | recover by=FromSurvivor:EPOCH | recover by=FromSnapshot:EPOCH | recover by=Recreate:EPOCH`)

	learning = chances(`
2 edit tls=Auto plaintext=true
1 edit tls=Auto plaintext=false`)

	// inNodes takes one of six nodes with addresses out of the list, or none.
	inNodes = chances(`
1 edit nodes=b,c,d,e,f | edit nodes=a,c,d,e,f | edit nodes=a,b,d,e,f | edit nodes=a,b,c,e,f | edit nodes=a,b,c,d,f | ` +
		`edit nodes=a,b,c,d,e | edit nodes=a,b,c,d,e,f`)

	besideOthers = chances(`
1 external stop=OTHER
1 external again=OTHER
1 edit retire=true | edit retire=false
1 edit replicas=0`)

	inWindows = chances(`
4 tick NIGHT
1 edit priority-class=high
1 edit priority-class=
1 edit quota=900Mi
1 edit schedule=0_1_*_*_* reclaim=0
1 edit version=3.7.3
1 edit version=3.6.16
1 edit version=3.6.11
1 edit windows=none
1 edit windows=0_2_*_*_*|4h
1 edit windows=0_2_*_*_6|4h;0_0_30_2_*|1h
1 edit windows=0_*_*_*_*|10m`)

	// inLags are voters that need a snapshot, until it has arrived.
	inLags = chances(`
2 etcd lagging=POD
1 etcd caught-up=POD
1 edit priority-class=high | edit priority-class=
1 edit version=3.6.17 | edit version=3.6.16`)

	refusals = chances(`
2 refuse kind=pod
1 refuse kind=claim
1 refuse kind=configmap
1 refuse kind=service
1 refuse kind=budget
1 refuse kind=secret
1 refuse kind=networkpolicy
8 accept`)

	// inSpecs are what people edit while epochs change, and what keeps the pods of one that is prepared from going on.
	inSpecs = chances(`
3 edit version=3.5.35 | edit version=3.6.16 | edit version=3.7.3
2 edit version=3.6.99 | edit version=3.7.99 | image good=gcr.io/etcd-development/etcd:v3.6.99
1 edit upgrade=Step | edit upgrade=OneMinor
2 edit tls=Auto plaintext=true | edit tls=Auto plaintext=false
1 edit auth=true | edit auth=false
1 edit size=2Gi | edit size=3Gi
2 edit priority-class=high | edit priority-class= | node unplaced=high
1 image bad=gcr.io/etcd-development/etcd:v3.7.3 | image good=gcr.io/etcd-development/etcd:v3.7.3
1 edit self-hosted=true | edit self-hosted=false
1 status wipe | edit self-hosted=false; cache thaw; delete configmap=demo-epoch-1; sync
3 EPOCHS`)

	// changes are what people do all the time while answers are late: call begins one that is.
	changes = chances(`
30 sync
60 pass; sync
34 call
 6 apply
 6 kubelet
 8 tick 1..10s
 2 tick 1..10m
18 edit priority-class=high | edit priority-class=
 6 edit version=3.6.17 | edit version=3.6.16
18 edit replicas=2..4
 6 fence member=POD | fence
 3 LAST; kill pod=POD
 3 LAST; crash pod=POD | LAST; mend pod=POD`)
)

type chance struct {
	weight int
	lines  []string
}

func chances(text string) (all []chance) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		weight, lines, _ := strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, chance{int(whole(weight)), strings.Split(lines, " | ")})
	}
	return all
}

// walker tells a story by chance, and remembers it.
type walker struct {
	*story
	t      *testing.T
	r      *rand.Rand
	lines  strings.Builder
	others []string
	// unsaid is what waits for a person and is not told as that.
	unsaid string
	// ends are when the calls in flight end at the latest, the oldest first.
	ends []time.Time
}

// oneIn reports, once in so many times, that it is time.
func (w *walker) oneIn(n int) bool { return w.r.IntN(n) == 0 }

// of is one of these.
func of[T any](w *walker, all ...T) T { return all[w.r.IntN(len(all))] }

// any has one of these happen.
func (w *walker) any(all []chance) {
	total := 0
	for _, c := range all {
		total += c.weight
	}
	n := w.r.IntN(total)
	for _, c := range all {
		if n -= c.weight; n < 0 {
			w.happens(of(w, c.lines...))
			return
		}
	}
}

var span = regexp.MustCompile(`(\d+)\.\.(\d+)`)

// happens tells lines, unless there is none of what they are about.
func (w *walker) happens(lines string) {
	switch lines {
	case "DATA":
		w.any(inData)
		return
	case "EPOCHS":
		w.any(inEpochs)
		return
	}
	for _, name := range []string{"POD", "CLAIM", "OTHER", "NEXT", "NEWEST", "EPOCH", "NIGHT"} {
		if !strings.Contains(lines, name) {
			continue
		}
		all := w.thereAre(name)
		if len(all) == 0 {
			return
		}
		lines = strings.ReplaceAll(lines, name, of(w, all...))
	}
	lines = span.ReplaceAllStringFunc(lines, func(text string) string {
		ends := span.FindStringSubmatch(text)
		least, most := whole(ends[1]), whole(ends[2])
		return strconv.FormatInt(least+w.r.Int64N(max(0, most-least)+1), 10)
	})
	for line := range strings.SplitSeq(lines, "; ") {
		w.tell(line)
	}
}

// thereAre is what a name in lines may stand for now.
func (w *walker) thereAre(name string) []string {
	pods, claims := w.names()
	snapshots := len(w.w.Artifacts)
	switch name {
	case "POD":
		return pods
	case "CLAIM":
		return claims
	case "OTHER":
		return w.others
	case "NEXT":
		return []string{fmt.Sprint("s", snapshots+1)}
	case "EPOCH":
		return []string{fmt.Sprint(w.w.Cluster().Status.Epoch)}
	case "NIGHT": // until some moment in the ten minutes after the next two o'clock
		now := w.w.Now
		night := time.Date(now.Year(), now.Month(), now.Day()+1, 2, 0, w.r.IntN(600), 0, time.UTC)
		return []string{night.Sub(now).String()}
	}
	if snapshots == 0 {
		return nil
	}
	return []string{fmt.Sprint("s", snapshots)}
}

// tell tells one line, unless it would show nothing.
func (w *walker) tell(line string) {
	verb, what, _ := strings.Cut(line, " ")
	_, name, _ := strings.Cut(what, "=")
	var spec v1beta1.EtcdClusterSpec
	if c := w.w.Cluster(); c != nil {
		spec = c.Spec
	}
	switch {
	case line == "LAST": // what takes a member away happens to no answer that could not have known of it
		w.arrive(0)
		return
	case verb == "wipe" && (w.mayBeginAgain(name) || strings.HasPrefix(what, "pod") != (spec.Storage.HostPath != nil)),
		line == "edit replicas=0" && spec.Storage.Medium == v1beta1.Memory, line == "apply" && len(w.ends) == 0,
		// before the first quorum a person decides; that of epoch 60 is forged
		strings.HasPrefix(line, "delete configmap") && name != "demo-epoch-60" && w.w.Cluster().Status.ClusterID == "":
		return
	case verb == "tick":
		w.ticks(duration(what))
	case verb == "call":
		w.ends = append(w.ends, w.w.Now.Add(facts.CallsEnd))
	case verb == "apply":
		w.ends = w.ends[1:]
	}
	said, _ := tellLine(w.t, "", line, w.story, verbs)
	w.lines.WriteString(line + "\n" + said)
}

// ticks has the answers arrive of calls that have ended when so much time has passed.
func (w *walker) ticks(d time.Duration) {
	for len(w.ends) > 0 && !w.w.Now.Add(d).Before(w.ends[0]) {
		w.arrive(len(w.ends) - 1)
	}
}

// arrive has all but so many of the answers in flight arrive, the oldest first.
func (w *walker) arrive(left int) {
	for len(w.ends) > left {
		w.tell("apply")
	}
}

// wanders takes random walks: all sorts of things happen in a random order, the same one every time for a seed, and
// then the faults stop. No rule of safety may break, the walk itself may find nothing wrong, and unless a majority of
// the data was lost the cluster must converge.
func wanders(t *testing.T, salt uint64, walk func(w *walker) (wrong string)) {
	for n := range uint64(walks()) {
		seed := *firstWalk + n
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := &walker{story: newStory(inFull()), t: t, r: rand.New(rand.NewPCG(seed, salt))}
			w.w.Watch = false
			w.w.Oracle.Decisions = int(seed)
			if *journals {
				w.w.Journal = &world.Journal{Objects: journal.Objects{}}
			}
			wrong := walk(w) + replaysAlike(t, w.w.Journal)
			for _, breach := range w.breaches() {
				wrong += "VIOLATION " + breach + "\n"
			}
			if w.unsaid != "" {
				wrong += "waits for a person, and is not Stalled: " + w.unsaid + "\n"
			}
			if !w.mayEnd() && w.alive() {
				wrong += "not converged\n"
			}
			if wrong != "" {
				t.Errorf("%s%s%s", wrong, w.lines.String(), w.check(args{}))
			}
		})
	}
}

func TestWander(t *testing.T) { wanderFrom(t, "", 0, "Persistent", "Memory") }

// TestWanderFromPlainText are walks of clusters that have served in plain text and learn TLS on the way.
func TestWanderFromPlainText(t *testing.T) { wanderFrom(t, inPlainText, 0, "Persistent", "Memory") }

// TestWanderOnNodes are walks of clusters whose members are on nodes, one of which is always free.
func TestWanderOnNodes(t *testing.T) { wanderFrom(t, "", 0, "HostPath nodes=a,b,c,d,e,f") }

// TestWanderAtAddresses are walks of clusters on the hosts' network.
func TestWanderAtAddresses(t *testing.T) { wanderFrom(t, "", 0, atAddresses...) }

// TestWanderAtAddressesThroughEpochs are those on which people restore and recover all the time.
func TestWanderAtAddressesThroughEpochs(t *testing.T) { wanderFrom(t, inPlainText, 6, atAddresses...) }

// TestWanderThroughEpochs are walks on which people restore and recover all the time.
func TestWanderThroughEpochs(t *testing.T) {
	wanderFrom(t, inPlainText, 6, "Persistent", "Memory", "HostPath nodes=a,b,c,d,e,f")
}

// inPlainText is a cluster that has served for a while.
const inPlainText = " tls=Disabled ready"

var atAddresses = []string{"HostPath addresses nodes=a,b,c,d,e,f", "Memory addresses nodes=a,b,c,d,e,f"}

// wanderFrom takes the walks; on one of so many steps something is asked of epochs, 0 for rarely.
func wanderFrom(t *testing.T, mode string, restless int, media ...string) {
	learns := mode == inPlainText && restless == 0
	wanders(t, 0, func(w *walker) string {
		w.happens("cluster replicas=1..4 leaf=100h ca=200h" + mode + " medium=" + of(w, media...))
		addressed := w.w.Cluster().Spec.HostNetwork != nil
		for range 5 + w.r.IntN(60) {
			if learns && w.oneIn(15) {
				w.any(learning)
			}
			if restless > 0 && w.oneIn(restless) && w.w.Cluster().Status.ClusterID != "" {
				w.any(inEpochs)
			}
			if addressed && w.oneIn(10) {
				w.any(inNodes)
			}
			w.any(mishaps)
		}
		if addressed {
			w.tell("edit nodes=a,b,c,d,e,f")
		}
		if learns {
			w.tell("edit tls=Auto plaintext=false")
		}
		w.recover()
		return ""
	})
}

// TestWanderBesideOthers are walks of clusters that join an etcd which runs elsewhere, with members there that stop
// and start, and a person who can't decide whether they are to go. In the end they are.
func TestWanderBesideOthers(t *testing.T) {
	wanders(t, 1, func(w *walker) string {
		w.others = strings.Split("old-0,old-1,old-2,old-3", ",")[:1+w.r.IntN(4)]
		external := strings.Join(w.others, ",")
		w.external(args{"start": external})
		w.happens("cluster replicas=1..4 tls=Disabled size=64Gi external=" + external +
			" medium=" + of(w, "Persistent", "Memory")) // with room for whatever is there
		for range 10 + w.r.IntN(80) {
			w.any(of(w, besideOthers, mishaps, mishaps, mishaps, mishaps, mishaps, mishaps, mishaps))
		}
		for _, other := range w.others {
			w.tell("external again=" + other)
		}
		w.tell(fmt.Sprintf("edit retire=true replicas=%d", max(1, *w.w.Cluster().Spec.Replicas)))
		w.recover()
		return ""
	})
}

// TestWanderThroughChanges are walks on which people change what members run, how many there are and who is fenced,
// all the time, while answers are late: a call that decided before a change is applied after it.
func TestWanderThroughChanges(t *testing.T) {
	wanders(t, 1, func(w *walker) string {
		w.happens("cluster replicas=3..5 tls=Disabled ready medium=" + of(w, "Persistent", "Persistent", "Memory"))
		w.tell("tick 1m")
		for range 20 + w.r.IntN(60) {
			w.any(changes)
		}
		w.arrive(0)
		w.tell("fence")
		w.recover()
		return ""
	})
}

// TestWanderBesideLaggards are walks of clusters some of whose voters are far behind, while people change what members
// run and how many there are.
func TestWanderBesideLaggards(t *testing.T) {
	wanders(t, 9, func(w *walker) string {
		w.happens("cluster replicas=3..5 tls=Disabled ready medium=" + of(w, "Persistent", "Persistent", "Memory"))
		for range 10 + w.r.IntN(60) {
			w.any(of(w, inLags, mishaps, mishaps, mishaps))
		}
		w.recover()
		return ""
	})
}

// TestWanderThroughRefusals are walks on which the API server refuses to make objects, of one kind or another, and
// makes them again: first of a cluster that begins, and then of one that has served. What was refused must be there in
// the end.
func TestWanderThroughRefusals(t *testing.T) {
	wanders(t, 0, func(w *walker) string {
		w.happens("cluster replicas=1..4 leaf=100h ca=200h medium=" + of(w, "Persistent", "Memory"))
		for range w.r.IntN(20) {
			if w.oneIn(2) {
				w.any(refusals)
			} else {
				w.happens("pass; sync")
			}
		}
		w.happens("accept; stabilize")
		for range 5 + w.r.IntN(60) {
			w.any(of(w, refusals, mishaps, mishaps, mishaps, mishaps, mishaps, mishaps, mishaps))
		}
		w.tell("accept")
		w.recover()
		if left := w.w.Cluster().Status.Internal.Awaited; len(left) > 0 {
			return fmt.Sprintf("still awaited: %v\n", left)
		}
		return ""
	})
}

// TestWanderThroughWindows are walks of clusters that people give maintenance windows, and edit while these are open or
// closed. The oracle sees to it that nothing begins outside of one that could wait. At the end time goes on until the
// next one opens, and the cluster must converge in it.
func TestWanderThroughWindows(t *testing.T) {
	wanders(t, 7, func(w *walker) string {
		w.happens("cluster replicas=1..4 leaf=100h ca=200h windows=0_2_*_*_*|4h ready medium=" +
			of(w, "Persistent", "Memory"))
		for range 5 + w.r.IntN(60) {
			if w.oneIn(6) {
				w.any(inWindows)
			}
			w.any(mishaps)
		}
		w.recover()
		for range 3 { // what heals, and certificates, may take a whole window
			w.untilOpen()
			w.tell("stabilize")
		}
		return ""
	})
}

// TestWanderThroughEdits are walks of clusters whose version, TLS, auth, size and template are edited, rightly and
// wrongly, while they are founded, restored and recovered, and while Quorate does not reach them. In the end the spec
// is one that works.
func TestWanderThroughEdits(t *testing.T) {
	wanders(t, 3, func(w *walker) string {
		w.happens("image bad=gcr.io/etcd-development/etcd:v3.6.99; image bad=gcr.io/etcd-development/etcd:v3.7.99")
		w.happens("cluster replicas=1..4 leaf=100h ca=200h" + of(w, "", " tls=Disabled", inPlainText) + " version=" +
			of(w, "3.5.35", "3.6.16", "3.6.99", "3.7.3") + " medium=" + of(w, "Persistent", "Persistent", "Memory",
			"HostPath nodes=a,b,c,d,e,f"))
		for range 5 + w.r.IntN(60) {
			w.any(of(w, inSpecs, inSpecs, mishaps, mishaps, mishaps, mishaps))
		}
		w.happens("image good=gcr.io/etcd-development/etcd:v3.7.3")
		if w.haveServed() { // with whatever image there was
			w.happens("image good=gcr.io/etcd-development/etcd:v3.6.99; image good=gcr.io/etcd-development/etcd:v3.7.99")
		}
		// a spare that joins after 3.7 has come could not read what 3.5 has left in a young log
		w.tell("edit version=3.7.3 upgrade=Step priority-class= self-hosted=false size=3Gi spares=0")
		w.recover()
		w.deleteUnplaced()
		return ""
	})
}

// haveServed reports whether some etcd of the cluster has had a leader.
func (w *walker) haveServed() bool {
	for _, c := range w.w.Etcd.Clusters {
		if c.Leader != 0 {
			return true
		}
	}
	return false
}

// deleteUnplaced is what a person does where Quorate does not reach the members, and can't know what has run.
func (w *walker) deleteUnplaced() {
	for _, pod := range w.w.Pods() {
		if pod.Spec.NodeName == "" && w.w.Cluster().Status.Rule == "Blind" {
			w.happens("delete pod=" + pod.Name + "; stabilize")
		}
	}
}

// untilOpen lets hours pass until nothing waits for a window any more, a week at most.
func (w *walker) untilOpen() {
	for range 7 * 24 {
		if w.w.Cluster().Status.Rule != "WaitForWindow" {
			return
		}
		w.w.Now = w.w.Now.Truncate(time.Hour).Add(time.Hour)
		w.next()
		w.w.Pass()
	}
}

// mayBeginAgain reports whether a member's directory could be emptied and nothing would show that it has begun
// before: in an epoch that has begun and whose record, as it is shown, has no cluster ID yet, any new pod of an
// initial member may begin, and one that was made then still may until prepare has run in it
// (data_wiped_early_first).
func (s *story) mayBeginAgain(member string) bool {
	for _, o := range s.w.Cached(world.ConfigMapKind) {
		cm := o.(*corev1.ConfigMap)
		says := recordtest.Says(cm)
		_, initial := says.Initial[member]
		begun := says.After == 0 || says.Phase == rec.PhaseBegan
		if initial && begun && says.ClusterID == 0 {
			return true
		}
	}
	pod := s.w.Pod(member)
	if pod == nil || pod.Annotations[objects.AnnotationStart] != objects.StartBootstrap || s.w.Markers[pod.UID] {
		return false
	}
	return s.w.Cluster().Spec.Storage.HostPath == nil || objects.MayBegin(pod)
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
func (w *walker) recover() {
	w.w.Etcd.LoseReply = false
	clear(w.w.Crashing)
	clear(w.w.Etcd.Lagging)
	w.happens("etcd up; network healed; cache thaw; stabilize")
	if w.w.Cluster().Status.Rule == "NoSpace" { // once in ten minutes
		w.happens("wait 10m; stabilize")
	}
	w.tellsWhoIsWaitedFor()
	w.restartUprooted()
	if w.w.Cluster().Status.Rule == "LearnerCatchingUp" { // it is given up after a while
		w.happens("wait 10m; stabilize")
	}
}

// tellsWhoIsWaitedFor insists that the status says so (Stalled) where only a person ends what it waits for: what
// nothing is wrong with any more, and what hours do not change, nothing else will.
func (w *walker) tellsWhoIsWaitedFor() {
	was := w.reconciling()
	if was == "" {
		return
	}
	w.happens("wait 2h; stabilize")
	if w.reconciling() == was && w.knowsVoters() {
		w.unsaid = was
	}
}

// knowsVoters reports whether the status lists all voters of an etcd that has run: one that was wiped while no quorum
// answered, or before a promotion was told, can't say who is waited for.
func (w *walker) knowsVoters() bool {
	listed := map[string]bool{}
	for _, m := range w.w.Cluster().Status.Members {
		listed[m.ID] = m.Role == v1beta1.Voter
	}
	for _, c := range w.w.Etcd.Clusters {
		for _, m := range c.Members {
			if c.Leader != 0 && c.Epoch == int(w.w.Cluster().Status.Epoch) && !m.Learner && !listed[objects.Hex(m.ID)] {
				return false
			}
		}
	}
	return true
}

// reconciling is what the status says that is under way; empty for nothing.
func (w *walker) reconciling() string {
	c := meta.FindStatusCondition(w.w.Cluster().Status.Conditions, v1beta1.Reconciling)
	if c == nil || c.Status != metav1.ConditionTrue {
		return ""
	}
	return c.Reason + ": " + c.Message
}

// restartUprooted is what a person does whose members trust none of the authorities that are left.
func (w *walker) restartUprooted() {
	said := meta.FindStatusCondition(w.w.Cluster().Status.Conditions, v1beta1.Ready).Message
	blind := w.w.Cluster().Status.Rule == "Blind" || strings.Contains(said, "restart them one by one")
	restarts := false
	for _, pod := range w.w.Pods() {
		if blind || w.w.Uprooted(pod) {
			w.tell("restart pod=" + pod.Name)
			restarts = true
		}
	}
	if restarts {
		w.tell("stabilize")
	}
}

// mayEnd reports whether the cluster is as it is asked for, or waits for a person.
func (s *story) mayEnd() bool {
	c := s.w.Cluster()
	progress := meta.FindStatusCondition(c.Status.Conditions, v1beta1.Ready)
	unusable := progress != nil && (strings.Contains(progress.Message, "could not be filled") ||
		strings.Contains(progress.Message, "is left to begin") ||
		strings.Contains(progress.Message, "no volume can be used"))
	refused := c.Status.Rule == "Upgrade" && meta.IsStatusConditionTrue(c.Status.Conditions, v1beta1.Stalled)
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
	return !slices.Contains([]string{"Start", "CreateVolumes"}, s.w.Cluster().Status.Rule) ||
		len(s.w.Etcd.Clusters) == 0 && !s.forgotten()
}

// forgotten reports whether no quorum of the initial members may begin, although their etcd has never run: a reboot on
// Memory, or an empty disk, takes the mark of prepare too, so they are taken for lost, and a person begins again
// (docs/decisions/0001-bootstrap.md).
func (s *story) forgotten() bool {
	record, there := s.w.Objects[world.Key{Kind: world.ConfigMapKind,
		Name: objects.EpochName(s.w.Cluster().Name, 1)}].(*corev1.ConfigMap)
	if !there {
		return false
	}
	initial, able := len(recordtest.Says(record).Initial), 0
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
