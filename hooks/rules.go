package hooks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// Rule is one line of the decision. Decide asks the rules in order, and the first that applies decides.
type Rule struct {
	// Name reaches the log, the condition's reason and the metric.
	Name string
	// Why is the sentence that documents the rule.
	Why string
	// applies returns what to do, or nil when the next rule is to be asked.
	applies func(v *view) *verdict
}

// verdict is what a rule says.
type verdict struct {
	message string
	step    Step
	// roll names the pod that is to be deleted now so that it is made anew; empty for none.
	roll string
	// settled is true when there is nothing left to do.
	settled bool
	resync  time.Duration
}

// How soon to ask again when nothing that Kubernetes tells us would wake us.
const (
	soon     = 500 * time.Millisecond // while members start or catch up
	patience = 2 * time.Second        // while something must happen that we can't see
)

// Rules are all rules in order. The order is the safety argument: what stops us comes first, then what is needed before there
// is a cluster, then blindness, and only with a quorum's answer in hand the changes: finish the one that is under way, heal,
// shrink, grow.
var Rules = []Rule{
	{"Suspended", "spec.suspend holds every change back; members run on as they are.", suspended},
	{"Unsupported", "A spec that can't be run changes nothing; the message says what to correct.", unsupported},

	{"Empty", "A cluster with replicas 0 that never began makes nothing yet.", empty},
	{"Record", "The epoch record is written first: its creation decides once who the initial members are (S8).", record},
	{"Pause", "replicas 0 stops all members and keeps their data.", pause},
	{"Found", "What the initial members start on (claims, or memory pods held back) is made, then recorded by UID; after that it is never made again (S10).", found},

	{"Foreign", "An answer from a cluster with another ID is not ours to act on (S8).", foreign},
	{"QuorumLost", "With fewer volumes left than a quorum needs, what is left is kept running and a person decides (S8).", quorumLost},
	{"Reschedule", "Before the first quorum, a pod that no node has taken and that was made from an outdated template is made anew, one at a time.", reschedule},
	{"Start", "The initial members start together; nothing else happens before they first have quorum.", start},
	{"Blind", "Without an answer from a quorum nothing is changed; pods are only brought back (S11).", blind},

	{"Elect", "While no leader is known nothing is changed.", elect},
	{"Corrupt", "While a member reports corrupt data nothing is changed: a person decides which data is right.", corrupt},
	{"Mark", "Before a member's last trace goes, its number is recorded as used (S9).", mark},
	{"LearnerLost", "A learner whose data is gone is removed; the next one gets a new name (S9, S10).", learnerLost},
	{"LearnerSurplus", "A learner that is no longer wanted is removed.", learnerSurplus},
	{"Promote", "A learner that answered in this call, has caught up and has its volume becomes a voter (S5).", promote},
	{"LearnerYields", "A learner that does not serve gives way while a voter's data is lost: one change at a time (S3).", learnerYields},
	{"Remake", "A pod that is down and was made from an outdated template, or in the wrong way, is made anew, one at a time (S2).", remake},
	{"Learner", "While a learner catches up no other member is added or removed (S3).", learnerCatchesUp},
	{"Depart", "The pod of a removed member must be gone before the next change of members (S3).", depart},
	{"Replace", "A voter whose data is lost is removed while the rest has quorum; growth brings its successor. One that still serves stays until its successor votes (S6, S10).", replace},
	{"Shrink", "Voters above the wanted number are removed one by one: not serving first, then followers, the leader last (S6).", shrink},
	{"Grow", "A missing voter joins as a learner under a new name, while all others serve (S3, S4, S9).", grow},

	{"Heal", "All members are there, but not all of them serve.", heal},
	{"Alarm", "An alarm that etcd has raised is cleared by a person in this release.", alarm},
	{"VersionPending", "Running members keep their version in this release.", versionPending},
	{"VolumePending", "Claims keep their size and class in this release.", volumePending},
	{"TemplatePending", "Running members keep the template that they were made from in this release.", templatePending},
	{"Converged", "The cluster is as the spec wants it.", converged},
}

// ---- what stops us

func suspended(v *view) *verdict {
	if !v.Cluster.Spec.Suspend {
		return nil
	}
	return &verdict{message: "spec.suspend is true: nothing is changed or brought back until it is set to false", settled: true}
}

func unsupported(v *view) *verdict {
	if err := validate(&v.Cluster.Spec); err != nil {
		return &verdict{message: err.Error() + "; nothing is changed until the spec is corrected", settled: true}
	}
	return nil
}

// ---- before there is a cluster

func empty(v *view) *verdict {
	if v.epoch == nil && v.replicas == 0 && !v.relics() {
		return &verdict{message: "replicas is 0 and there is no data yet; set it to 1 or more to create the cluster", settled: true}
	}
	return nil
}

func record(v *view) *verdict {
	if v.epoch != nil {
		return nil
	}
	if v.relics() {
		return &verdict{message: "the epoch record is missing although the cluster has run; it is written again, without the right to bootstrap", resync: patience}
	}
	return &verdict{message: fmt.Sprintf("recording the first epoch with %s", count(v.replicas, "member")), resync: patience}
}

// relics reports whether the cluster has run before, by anything that we can see.
func (v *view) relics() bool {
	return len(v.names) > 0 || v.Etcd != nil || v.Cluster.Status.ClusterID != ""
}

func pause(v *view) *verdict {
	if v.replicas > 0 {
		return nil
	}
	left := len(v.Children.Pods)
	if left == 0 {
		return &verdict{message: "paused: replicas is 0, all data is kept; set replicas to 1 or more to resume", settled: true}
	}
	return &verdict{message: fmt.Sprintf("pausing: %s still stopping", count(left, "pod")), resync: patience}
}

func found(v *view) *verdict {
	if v.epoch.founded() {
		return nil
	}
	return &verdict{message: "making what the initial members need: " + strings.Join(v.epoch.initialNames(), ", "), resync: patience}
}

// ---- without a quorum's answer

func foreign(v *view) *verdict {
	if !v.foreign {
		return nil
	}
	return &verdict{message: fmt.Sprintf("an etcd with another cluster ID than the recorded %s answered; nothing is changed until that is understood", hex(v.epoch.clusterID)), resync: patience}
}

func reschedule(v *view) *verdict {
	if v.Etcd != nil || v.epoch.quorate() || v.memory() {
		return nil
	}
	for _, name := range v.names {
		pod := v.Children.Pods[name]
		if pod != nil && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && pod.Annotations[AnnotationTemplate] != v.template {
			return &verdict{message: fmt.Sprintf("making the pod %s anew: no node takes it, and the template has changed", name), roll: name, resync: soon}
		}
	}
	return nil
}

func start(v *view) *verdict {
	if v.Etcd != nil || v.epoch.quorate() {
		return nil
	}
	if len(v.epoch.startsOn) == 0 {
		return &verdict{message: "the epoch record was deleted before the cluster first had quorum, and nobody may bootstrap any more: see RecordDeleted in docs/failure-modes.md", resync: patience}
	}
	return &verdict{message: fmt.Sprintf("starting %s", strings.Join(v.epoch.initialNames(), ", ")), resync: soon}
}

func quorumLost(v *view) *verdict {
	if v.Etcd != nil {
		return nil
	}
	known := v.knownVoters()
	lost := filter(known, func(name string) bool { return !v.hasData(name) })
	if len(known) == 0 || len(known)-len(lost) >= quorum(len(known)) {
		return nil
	}
	return &verdict{message: fmt.Sprintf("the data of %s is gone, and with it the quorum; what is left is kept as it is, and nothing is created anew: see QuorumLost in docs/failure-modes.md",
		strings.Join(lost, ", ")), resync: patience}
}

// knownVoters are the voters as last known, for words only: no decision follows from them.
func (v *view) knownVoters() []string {
	var known []string
	for _, m := range v.Cluster.Status.Members {
		if _, ours := ordinal(v.Cluster.Name, m.Name); ours && m.Role == v1alpha1.Voter {
			known = append(known, m.Name)
		}
	}
	if len(known) == 0 {
		return v.epoch.initialNames()
	}
	return known
}

// hasData reports whether there is a volume that may hold the member's data.
func (v *view) hasData(name string) bool {
	if v.memory() {
		pod := v.Children.Pods[name]
		return pod != nil && !finished(pod) && !v.barred(pod)
	}
	return v.Children.Claims[name] != nil
}

func blind(v *view) *verdict {
	if v.Etcd != nil {
		return nil
	}
	silent := filter(v.knownVoters(), func(n string) bool { return !v.Health[n].Serving() || !v.asked(n) })
	return &verdict{message: fmt.Sprintf("no quorum answers (silent: %s); nothing is changed, pods are kept or brought back", strings.Join(silent, ", ")), resync: patience}
}

func (v *view) asked(name string) bool { _, ok := v.Health[name]; return ok }

// ---- with a quorum's answer

func elect(v *view) *verdict {
	if v.Etcd.Leader != 0 {
		return nil
	}
	return &verdict{message: "waiting for the members to elect a leader", resync: soon}
}

func corrupt(v *view) *verdict {
	if who := v.alarmed("CORRUPT"); len(who) > 0 {
		return &verdict{message: fmt.Sprintf("%s reports corrupt data (alarm CORRUPT); nothing is changed: see Corrupt in docs/failure-modes.md", strings.Join(who, ", ")), resync: patience}
	}
	return nil
}

// alarmed are the members that have raised this alarm.
func (v *view) alarmed(kind string) []string {
	return names(filter(v.members, func(m *member) bool { return slices.Contains(m.health.Alarms, kind) }))
}

func learnerLost(v *view) *verdict {
	l := v.learner()
	if l == nil || l.name == "" {
		return nil
	}
	reason, lost := v.dataLost(l)
	if !lost {
		return nil
	}
	return v.change(Remove{ID: l.ID, Name: l.name}, fmt.Sprintf("removing the learner %s: %s", l.name, reason))
}

func learnerSurplus(v *view) *verdict {
	l := v.learner()
	if l == nil || l.name == "" || len(v.voters) < v.wanted() {
		return nil
	}
	return v.change(Remove{ID: l.ID, Name: l.name}, fmt.Sprintf("removing the learner %s: there are %d voters already", l.name, len(v.voters)))
}

func promote(v *view) *verdict {
	l := v.learner()
	if l == nil || l.name == "" || !v.caughtUp(l) {
		return nil
	}
	voters := v.voters
	if serving(voters)+1 < quorum(len(voters)+1) {
		return nil
	}
	return v.change(Promote{ID: l.ID, Name: l.name}, fmt.Sprintf("promoting %s: it has caught up", l.name))
}

// caughtUp reports whether the learner itself answered in this call as a learner, with a volume, at 90 % of the leader's index
// or more. (etcd refuses a promotion below 90 % of the leader's match index, but asks only the leader: server.go, isLearnerReady.)
func (v *view) caughtUp(l *member) bool {
	lead := v.find(v.nameOf(v.Etcd.Leader))
	hasVolume := l.pod != nil && l.pod.DeletionTimestamp == nil && (v.memory() || v.usable(l.claim))
	return lead != nil && lead.serving() && l.serving() && l.health.Learner && hasVolume &&
		l.health.RaftIndex*10 >= lead.health.RaftIndex*9
}

func learnerYields(v *view) *verdict {
	l := v.learner()
	lost, reason := v.lostVoter()
	if l == nil || l.name == "" || lost == nil || l.serving() {
		return nil
	}
	return v.change(Remove{ID: l.ID, Name: l.name}, fmt.Sprintf("removing the learner %s, which does not serve: %s must be replaced first (%s)", l.name, lost.name, reason))
}

func remake(v *view) *verdict {
	for _, m := range v.members {
		if m.pod == nil || m.pod.DeletionTimestamp != nil || m.serving() || finished(m.pod) {
			continue
		}
		voters := v.voters
		disposable := m.Learner && !m.Started() || !v.memory() && !running(m.pod) && serving(voters) >= quorum(len(voters))
		if reason, stale := v.outdated(m); stale && disposable {
			return &verdict{message: fmt.Sprintf("making the pod %s anew: %s", m.name, reason), roll: m.name, resync: patience}
		}
	}
	return nil
}

// outdated reports whether the member's pod should be another one than it is, and why.
func (v *view) outdated(m *member) (string, bool) {
	switch {
	case v.misstarted(m):
		return "it waits for data that the member never had", true
	case podStart(m.pod) == StartBootstrap && m.Started() && crashing(m.pod):
		return "it crashes, and would begin the member a second time", true
	case podStart(m.pod) == StartJoin && !m.Started() && m.pod.Annotations[AnnotationInitialCluster] != v.joinCluster(m):
		return "the membership changed before it started", true
	case m.pod.Annotations[AnnotationTemplate] != v.template:
		return "it is down and was made from an older template", true
	}
	return "", false
}

func learnerCatchesUp(v *view) *verdict {
	l := v.learner()
	switch {
	case l == nil:
		return nil
	case l.name == "":
		return &verdict{message: fmt.Sprintf("waiting: the learner %s is a stranger's; promote or remove it with etcdctl", hex(l.ID)), resync: patience}
	case !l.serving():
		return &verdict{message: fmt.Sprintf("waiting for the learner %s to start", l.name), resync: soon}
	}
	return &verdict{message: fmt.Sprintf("waiting for the learner %s to catch up", l.name), resync: soon}
}

func depart(v *view) *verdict {
	if left := v.departing(); len(left) > 0 {
		return &verdict{message: fmt.Sprintf("waiting for removed members to stop: %s", strings.Join(left, ", ")), resync: patience}
	}
	return nil
}

func mark(v *view) *verdict {
	for _, m := range v.members {
		if m.name != "" && !v.pastMark(m.name) {
			return &verdict{message: fmt.Sprintf("recording that the name %s is taken", m.name), resync: soon}
		}
	}
	return nil
}

// lostVoter is the first voter whose data is lost and that does not serve, and why; nil when there is none.
func (v *view) lostVoter() (*member, string) {
	for _, m := range v.voters {
		if reason, lost := v.dataLost(m); lost && !m.serving() {
			return m, reason
		}
	}
	return nil, ""
}

// goingVoter is the first voter that still serves although its data is going, and why; nil when there is none.
func (v *view) goingVoter() (*member, string) {
	for _, m := range v.voters {
		if reason, lost := v.dataLost(m); lost && m.serving() {
			return m, reason
		}
	}
	return nil, ""
}

// wanted is the number of voters to have now: one more than asked for while the successor of a voter that still serves joins.
func (v *view) wanted() int {
	lost, _ := v.lostVoter()
	if going, _ := v.goingVoter(); going != nil && lost == nil {
		return v.replicas + 1
	}
	return v.replicas
}

func replace(v *view) *verdict {
	lost, reason := v.lostVoter()
	if lost == nil && len(v.voters) > v.replicas {
		lost, reason = v.goingVoter()
	}
	if lost == nil {
		return nil
	}
	return v.retire(lost, fmt.Sprintf("%s is replaced: %s", lost.name, reason))
}

func shrink(v *view) *verdict {
	voters := v.voters
	if len(voters) <= v.replicas {
		return nil
	}
	return v.retire(v.victim(), fmt.Sprintf("shrinking from %d to %s", len(voters), count(v.replicas, "voter")))
}

// victim is the voter of ours that a shrink takes next: not serving before serving, followers before the leader, the highest
// number first.
func (v *view) victim() *member {
	rank := func(m *member) int {
		switch {
		case m.name == "":
			return 3 // a stranger is never ours to remove
		case m.ID == v.Etcd.Leader:
			return 2 // also when it does not answer us: it leads
		case m.serving():
			return 1
		}
		return 0
	}
	voters := slices.Clone(v.voters)
	slices.Reverse(voters)
	slices.SortStableFunc(voters, func(a, b *member) int { return rank(a) - rank(b) })
	return voters[0]
}

// retire removes a voter, if the others keep quorum without it (S1), after handing the leadership on.
func (v *view) retire(m *member, why string) *verdict {
	others := filter(v.voters, func(o *member) bool { return o.ID != m.ID })
	switch {
	case m.name == "":
		return &verdict{message: why + "; waiting: only strangers are left, which Quorate does not remove; use etcdctl member remove", resync: patience}
	case serving(others) < quorum(len(others)):
		return &verdict{message: fmt.Sprintf("%s; waiting: without %s only %d of %d voters would serve", why, m.name, serving(others), len(others)), resync: patience}
	case m.serving() && serving(others) < len(others):
		return &verdict{message: fmt.Sprintf("%s; waiting: %s serves, and another voter does not", why, m.name), resync: patience}
	case m.ID == v.Etcd.Leader:
		heir := slices.MaxFunc(filter(others, (*member).serving), func(a, b *member) int { return cmp.Compare(a.health.RaftIndex, b.health.RaftIndex) })
		return v.change(MoveLeader{To: heir.ID, Name: heir.name}, fmt.Sprintf("%s; %s leads and hands over first", why, m.name))
	}
	return v.change(Remove{ID: m.ID, Name: m.name}, fmt.Sprintf("%s: removing %s", why, m.name))
}

func grow(v *view) *verdict {
	voters := v.voters
	if len(voters) >= v.wanted() {
		return nil
	}
	name := MemberName(v.Cluster.Name, v.next())
	why := fmt.Sprintf("growing from %d to %s", len(voters), count(v.wanted(), "voter"))
	if going, reason := v.goingVoter(); going != nil {
		why += fmt.Sprintf(", for %s is to be replaced: %s", going.name, reason)
	}
	if silent := names(filter(voters, func(m *member) bool { return !m.serving() })); len(silent) > 0 {
		return &verdict{message: fmt.Sprintf("%s; waiting for %s to serve", why, strings.Join(silent, ", ")), resync: soon}
	}
	return v.change(AddLearner{Name: name, PeerURL: PeerURL(v.Cluster, name)}, fmt.Sprintf("%s: adding %s", why, name))
}

// ---- nothing to change

func heal(v *view) *verdict {
	silent := names(filter(v.members, func(m *member) bool { return !m.serving() }))
	if len(silent) == 0 {
		return nil
	}
	return &verdict{message: fmt.Sprintf("waiting for %s to serve again", strings.Join(silent, ", ")), resync: patience}
}

func alarm(v *view) *verdict {
	if who := v.alarmed("NOSPACE"); len(who) > 0 {
		return &verdict{message: fmt.Sprintf("%s has no space left (alarm NOSPACE): etcd refuses writes; see NOSPACE in docs/failure-modes.md", strings.Join(who, ", ")), resync: patience}
	}
	return nil
}

func versionPending(v *view) *verdict {
	if v.epoch.version == v.Cluster.Spec.Version {
		return nil
	}
	return &verdict{message: fmt.Sprintf("the members run %s and stay there: this release of Quorate does not change the version of running members; set spec.version back to %s", v.epoch.version, v.epoch.version), settled: true}
}

func volumePending(v *view) *verdict {
	want := storageSize(&v.Cluster.Spec)
	class := v.Cluster.Spec.Storage.StorageClassName
	other := names(filter(v.members, func(m *member) bool {
		return m.claim != nil && (m.claim.Spec.Resources.Requests.Storage().Cmp(want) < 0 ||
			class != nil && m.claim.Spec.StorageClassName != nil && *m.claim.Spec.StorageClassName != *class)
	}))
	if len(other) == 0 {
		return nil
	}
	return &verdict{message: fmt.Sprintf("serving; the claims of %s keep their size and class: this release of Quorate gives changed storage to new members only", strings.Join(other, ", ")), settled: true}
}

func templatePending(v *view) *verdict {
	wanted := image(&v.Cluster.Spec, v.epoch.version)
	old := names(filter(v.members, func(m *member) bool {
		return m.pod != nil && (m.pod.Annotations[AnnotationTemplate] != v.template || m.pod.Annotations[AnnotationImage] != wanted)
	}))
	if len(old) == 0 {
		return nil
	}
	return &verdict{message: fmt.Sprintf("serving; %s keep the pod template that they were made from: this release of Quorate gives a changed template to new pods only (delete a pod to have it made anew)", strings.Join(old, ", ")), settled: true}
}

func converged(v *view) *verdict {
	return &verdict{message: fmt.Sprintf("serving as the spec wants, with %s", count(len(v.voters), "voter")), settled: true}
}

// ---- words

// change asks for a step, or reports what became of the one that this call has taken: there is never a second (S3).
func (v *view) change(s Step, message string) *verdict {
	switch {
	case v.Taken == nil:
		return &verdict{step: s, message: message, resync: soon}
	case v.Taken.Err != "":
		return &verdict{message: fmt.Sprintf("%s; etcd did not %s: %s", message, v.Taken.Step, v.Taken.Err), resync: patience}
	}
	return &verdict{message: message, resync: soon}
}

func serving(list []*member) int { return len(filter(list, (*member).serving)) }

func names(list []*member) []string {
	var all []string
	for _, m := range list {
		if m.name == "" {
			all = append(all, "stranger "+hex(m.ID))
		} else {
			all = append(all, m.name)
		}
	}
	return all
}

// nameOf is the name of the member with this ID; empty for none and for a stranger.
func (v *view) nameOf(id uint64) string {
	for _, m := range v.members {
		if m.ID == id {
			return m.name
		}
	}
	return ""
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func hex(id uint64) string { return fmt.Sprintf("%x", id) }
