package safety

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// step checks the one change of etcd's membership.
func step(j *judgement) {
	if j.d.Step == nil {
		return
	}
	j.require(j.v.Etcd != nil, "S11", "%s while blind", j.d.Step)
	j.require(j.o.Taken == nil, "S3", "a second step in one call: %s", j.d.Step)
	if j.v.Etcd == nil {
		return
	}
	whileCorrupt(j)
	stepBeside(j)
	switch s := j.d.Step.(type) {
	case decision.Compact:
		compact(j, s)
	case decision.Defragment:
		defragment(j, s)
	case decision.Disarm:
		disarm(j, s)
	case decision.AddLearner:
		addLearner(j, s)
	case decision.Promote:
		promote(j, s)
	case decision.Remove:
		remove(j, s)
	case decision.UpdatePeerURL:
		updatePeerURL(j, s)
	case decision.EnableDowngrade:
		enableDowngrade(j, s)
	case decision.MoveLeader:
		to := j.v.ByID(s.To)
		j.require(to != nil && !to.Learner && to.Serving(), "S1", "%s, which is no serving voter", s)
	}
}

func addLearner(j *judgement, s decision.AddLearner) {
	n, ours := objects.Ordinal(j.o.Cluster.Name, s.Name)
	address := objects.AddressIn(s.PeerURL)
	j.require(ours && (s.PeerURL == objects.PeerURL(j.o.Cluster, s.Name, address) ||
		s.PeerURL == objects.PeerURLOf(j.o.Cluster, s.Name, address, false) && !j.v.EveryoneDials()), "S9",
		"%s under a name or URL that is not ours", s)
	onFreeNode(j, s, address)
	j.require(j.v.Epoch != nil && n >= j.v.Epoch.NextOrdinal, "S9", "%s: the number is below the mark", s)
	j.require(!slices.Contains(j.v.Names, s.Name), "S9", "%s: the name has left traces", s)
	j.require(j.v.Learner() == nil, "S3", "%s while there is a learner", s)
	j.require(len(j.v.RemovedPods()) == 0, "S3", "%s while a removed member's pod runs", s)
	going := slices.ContainsFunc(j.v.Voters, func(m *state.Member) bool {
		return claimBeingDeleted(j, m.PodName) || unlike(j, m)
	})
	counted := wording.Filter(j.v.Voters, func(m *state.Member) bool { return m.PodName != "" || !besideForeign(j) })
	j.require(len(counted) < j.v.Replicas || going && len(counted) == j.v.Replicas, "S6",
		"%s although there are enough voters", s)
	suits(j, s)
}

// onFreeNode: on the hosts' network the address is of a node that the spec names, and no other member of ours has it.
func onFreeNode(j *judgement, s decision.AddLearner, address string) {
	h := j.o.Cluster.Spec.HostNetwork
	if h == nil {
		return
	}
	named := slices.ContainsFunc(h.Nodes, func(n v1alpha1.NodeAddress) bool { return n.Address == address })
	j.require(named, "S9", "%s at the address %q, which the spec does not name", s, address)
	for _, m := range j.v.Etcd.Members {
		_, ours := objects.MemberAt(j.o.Cluster, m.PeerURLs)
		j.require(!ours || objects.AddressIn(m.PeerURLs[0]) != address, "S2", "%s on the node of another member", s)
	}
}

func promote(j *judgement, s decision.Promote) {
	m := j.v.Find(s.Name)
	if m == nil || m.ID != s.ID {
		j.require(false, "S5", "%s, which etcd does not list", s)
		return
	}
	lead := leads(j)
	j.require(lead.Serving(), "S5", "%s while the leader is silent", s)
	j.require(m.Learner && m.Serving(), "S5", "%s, which did not answer in this call", s)
	j.require(m.Health.RaftIndex*10 >= lead.RaftIndex*9, "S5", "%s, which has not caught up", s)
	j.require(m.Health.RaftIndex+state.MostBehind >= lead.RaftIndex, "S5", "%s, which is far behind the leader", s)
	j.require(m.Pod != nil && (!j.v.OnClaims() || m.Claim != nil && !claimBeingDeleted(j, m.PodName)), "S5",
		"%s, which has no volume", s)
	j.require(m.Pod == nil || !objects.MayBegin(m.Pod), "S10",
		"%s, whose pod may still join once more", s)
	j.require(!removalPending(j, m), "S3", "%s, which may be removed", s)
	j.require(m.Pod == nil || !restartPending(j, m), "S2", "%s, which may be restarted", s)
	stay, voters := othersStay(j, m), len(j.v.Voters)+1
	j.require(state.Serving(j.v.Voters)+1 >= state.Quorum(voters), "S1", "%s would leave too few of %d serving", s,
		voters)
	j.require(stay+1 >= state.Quorum(voters) || stay < state.Quorum(voters-1), "S1",
		"%s would leave %d of %d serving and staying", s, stay+1, voters)
	for _, b := range j.o.Children.Budgets {
		theirs := len(wording.Filter(j.v.Voters, func(m *state.Member) bool { return m.PodName == "" }))
		j.require(b.Spec.MinAvailable == nil || b.Spec.MinAvailable.IntValue()+theirs >= state.Quorum(voters), "S1",
			"%s while the PodDisruptionBudget %s lets all but %s of %d voters go", s, b.Name, b.Spec.MinAvailable,
			voters)
	}
}

// updatePeerURL: a voter of ours gets the https form of its own URL, while every member serves and can dial it, and no
// other one's listener differs from what is listed (two such members would not hear each other).
func updatePeerURL(j *judgement, s decision.UpdatePeerURL) {
	m := j.v.Find(s.Name)
	j.require(m != nil && m.ID == s.ID && !m.Learner, "S4", "%s, which is no voter", s)
	own := objects.PeerURL(j.o.Cluster, s.Name, j.v.Address(s.Name))
	j.require(s.PeerURL == own && state.ByTLS(s.PeerURL), "S9",
		"%s with a URL that is not its own", s)
	j.require(j.v.Learner() == nil && len(j.v.RemovedPods()) == 0, "S3", "%s while members come or go", s)
	for _, o := range j.v.Voters {
		j.require(stays(j, o), "S1", "%s while %s does not serve, or may be restarted", s, o.PodName)
		j.require(o.PodName == "" || state.TLSFlagsOf(o.Pod).Certificates, "S1", "%s, which %s can't dial then", s,
			o.PodName)
		j.require(o.PodName == "" || state.TLSFlagsOf(o.Pod).Peers == state.ByTLS(o.PeerURLs...), "S1",
			"%s before %s listens as it is listed", s, o.PodName)
	}
}

func remove(j *judgement, s decision.Remove) {
	m := j.v.ByID(s.ID)
	if m == nil || m.DisplayName() != s.Name {
		j.require(false, "S6", "%s, which etcd does not list", s)
		return
	}
	if n, ours := objects.Ordinal(j.o.Cluster.Name, s.Name); !j.v.OnClaims() && ours {
		j.require(n < j.v.Epoch.NextOrdinal, "S9", "%s: its last trace goes before its number is recorded", s)
	}
	j.require(addedLongAgo(j, m, s.Name), "S9", "%s: a call from before its addition may add it again", s)
	chosenForRemoval(j, m)
	if m.Learner {
		j.require(spare(j, m), "S6", "%s, a learner that is wanted and that nothing is wrong with", s)
		return
	}
	removeVoter(j, s, m)
}

// removeVoter: a voter that is lost, wrong, dead or above the wanted number, whose quorum does without it.
func removeVoter(j *judgement, s decision.Remove, m *state.Member) {
	voters := j.v.Voters
	others := wording.Filter(voters, func(o *state.Member) bool { return o.ID != m.ID })
	_, lost := j.v.DataLost(m)
	wrong := provenWrong(j, m)
	if besideForeign(j) {
		removeBeside(j, s, m, lost || dead(j, m))
	}
	j.require(besideForeign(j) || lost || wrong || len(voters) > j.v.Replicas || dead(j, m), "S6",
		"%s, which is neither lost, nor proven wrong, nor above the wanted number, nor dead for long enough", s)
	j.require(lost || wrong || !j.v.Fenced(m.PodName), "S6", "%s, which a person has fenced to look at it", s)
	j.require(len(others) > 0, "S6", "%s, the last voter", s)
	j.require(m.ID != j.v.Etcd.Leader, "S6", "%s, the leader", s)
	stay := othersStay(j, m)
	j.require(stay >= state.Quorum(len(others)), "S1", "%s would leave %d of %d serving and staying", s, stay,
		len(others))
	j.require(wrong || !m.Serving() || stay == len(others), "S2",
		"%s, which serves, while another voter does not, or may be restarted", s)
	besideNone(j, s, lost && !m.Serving())
}

// spare reports whether a learner may go: its data is lost, or may be wrong; there are enough voters without it, not
// counting one whose data is lost; its pod can't be replaced; or it was counted as one that has come to nothing.
func spare(j *judgement, m *state.Member) bool {
	counted := wording.Filter(j.v.Voters, func(o *state.Member) bool {
		_, lost := j.v.DataLost(o)
		return (o.PodName != "" || !besideForeign(j)) && (!lost || o.Serving())
	})
	_, lost := j.v.DataLost(m)
	if lost || raised(j, observation.AlarmCorrupt) || len(counted) >= j.v.Replicas || m.PodName == "" {
		return true
	}
	joined, listed := joined(j, m)
	noted := j.o.Cluster.Status.Internal.Replacement
	late := listed && j.o.Now.Sub(joined) >= spec.ReplaceAfter(&j.o.Cluster.Spec)
	return late && noted != nil && noted.Learner == m.PodName ||
		j.v.Memory() && m.Pod != nil && children.TemplateOutdated(j.v, m.Pod)
}

// besideNone: no other change is under way; but a lost voter goes although a learner has not started.
func besideNone(j *judgement, s decision.Remove, lost bool) {
	l := j.v.Learner()
	j.require(l == nil || lost && !l.Serving(), "S3", "%s while there is a learner", s)
	j.require(len(j.v.RemovedPods()) == 0, "S3", "%s while a removed member's pod runs", s)
}

// addedLongAgo: no call adds a member that the epoch began with, and those that add another one are over.
func addedLongAgo(j *judgement, m *state.Member, name string) bool {
	_, initial := j.v.Epoch.Initial[name]
	joined, listed := joined(j, m)
	return initial && !j.v.Epoch.Recreated ||
		listed && j.o.Now.Sub(joined) >= state.CallsEnd
}

// chosenForRemoval requires that the record names a member that is removed, and says of no time that this was
// withdrawn.
func chosenForRemoval(j *judgement, m *state.Member) {
	named := j.v.Epoch.Choice
	j.require(named.Name == m.DisplayName() && named.Removes && named.Withdrawn.IsZero(), "S3",
		"%s is removed, and the record names %+v", m.DisplayName(), named)
}

// removalPending reports whether a late call may remove the member: the record names it, and has not withdrawn that
// for as long as calls live.
func removalPending(j *judgement, m *state.Member) bool {
	named := j.v.Epoch.Choice
	acts := named.Withdrawn.IsZero() || j.o.Now.Sub(named.Withdrawn) < state.CallsEnd
	return named.Name == m.DisplayName() && named.Removes && acts
}

// joined is when the status first listed the member; false when it does not.
func joined(j *judgement, m *state.Member) (time.Time, bool) {
	for _, s := range j.o.Cluster.Status.Members {
		if s.ID == wording.Hex(m.ID) {
			return s.JoinTime.Time, !s.JoinTime.IsZero()
		}
	}
	return time.Time{}, false
}

// dead reports whether a voter may be given up: the status says that it has been silent for as long as the policy
// asks for, that the cluster has had quorum all that time, and that Quorate has looked; no other etcd answers in its
// place; and its claim, if it has one, carries the mark.
func dead(j *judgement, m *state.Member) bool {
	policy := j.o.Cluster.Spec.MemberReplacement
	limit := spec.ReplaceAfter(&j.o.Cluster.Spec)
	long := func(since time.Time) bool { return !since.IsZero() && j.o.Now.Sub(since) >= limit }
	silent := slices.ContainsFunc(j.o.Cluster.Status.Members, func(s v1alpha1.MemberStatus) bool {
		return s.ID == wording.Hex(m.ID) && !s.Ready && long(s.LastTransitionTime.Time)
	})
	quorate := slices.ContainsFunc(j.o.Cluster.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.Available && c.Status == metav1.ConditionTrue && long(c.LastTransitionTime.Time)
	})
	return watchedFor(j, long) && policy.Policy != v1alpha1.ReplaceManual && !j.v.Fenced(m.PodName) && !m.Serving() &&
		!masked(j, m.PodName) && silent && quorate && toBeKept(j, m) && !fullDisk(j, m)
}

// fullDisk reports whether the member's etcd has ended of a full disk, and a successor would have no more room.
func fullDisk(j *judgement, m *state.Member) bool {
	end := objects.LastEnd(m.Pod, objects.ContainerEtcd)
	if end == nil || !strings.Contains(end.Message, objects.DiskFullWords) || volumes.Roomier(j.v, m.PodName) {
		return false
	}
	was := j.v.LastStatus(m)
	return was == nil || end.FinishedAt.IsZero() ||
		!end.FinishedAt.Add(time.Minute).Before(was.LastTransitionTime.Time)
}

// watchedFor reports whether Quorate has looked without a gap since a time that is long ago.
func watchedFor(j *judgement, long func(since time.Time) bool) bool {
	w := j.o.Cluster.Status.Internal.Watched
	return w != nil && long(w.StartTime.Time) && j.o.Now.Sub(w.LastProbeTime.Time) <= 4*cmp.Or(j.o.Resync,
		30*time.Second)
}

// toBeKept reports whether all claims of the member are marked to be kept.
func toBeKept(j *judgement, m *state.Member) bool {
	for _, claim := range []*corev1.PersistentVolumeClaim{m.Claim, j.o.Children.Claims[m.PodName+"-wal"]} {
		if claim != nil && j.v.Ours(claim) && !state.OfFailedMember(claim) {
			return false
		}
	}
	return true
}

// masked reports whether another member answered at a member's address in this call.
func masked(j *judgement, name string) bool {
	h, heard := j.o.Health[name]
	m := j.v.Find(name)
	return heard && m != nil && h.MemberID != 0 && (h.Err != "" || h.MemberID != m.ID)
}
