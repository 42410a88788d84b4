package safety

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// step checks the one change of etcd's membership.
func step(j *judgement) {
	if j.d.Step == nil {
		return
	}
	j.require(j.f.Etcd != nil, "S11", "%s while blind", j.d.Step)
	j.require(j.o.Taken == nil, "S3", "a second step in one call: %s", j.d.Step)
	if j.f.Etcd == nil {
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
		moveLeader(j, s)
	}
}

func addLearner(j *judgement, s decision.AddLearner) {
	n, ours := objects.Ordinal(j.o.Cluster.Name, s.Name)
	address := objects.AddressIn(s.PeerURL)
	j.require(ours && (s.PeerURL == objects.PeerURL(j.o.Cluster, s.Name, address) ||
		s.PeerURL == objects.PeerURLOf(j.o.Cluster, s.Name, address, false) && !j.f.EveryoneDials()), "S9",
		"%s under a name or URL that is not ours", s)
	onFreeNode(j, s, address)
	j.require(j.f.Epoch != nil && n >= j.f.Epoch.NextOrdinal, "S9", "%s: the number is below the mark", s)
	readied := j.f.ToBeAdded(s.Name) && !j.f.Dropped(s.Name)
	j.require(!slices.Contains(j.f.Names, s.Name) || readied, "S9", "%s: the name has left traces", s)
	j.require(j.f.Learner() == nil, "S3", "%s while there is a learner", s)
	j.require(len(j.f.RemovedPods()) == 0, "S3", "%s while a removed member's pod runs", s)
	going := slices.ContainsFunc(j.f.Voters, func(m *facts.Member) bool {
		return claimBeingDeleted(j, m.PodName) || unlike(j, m)
	})
	counted := objects.Filter(j.f.Voters, func(m *facts.Member) bool { return m.PodName != "" || !besideExternal(j) })
	j.require(len(counted) < j.f.Replicas+sparesWanted(j) || going && len(counted) == j.f.Replicas, "S6",
		"%s although there are enough voters", s)
	suits(j, s)
}

// onFreeNode: on the hosts' network the address is of a node that the spec names, and no other member of ours has it.
func onFreeNode(j *judgement, s decision.AddLearner, address string) {
	h := j.o.Cluster.Spec.HostNetwork
	if h == nil {
		return
	}
	named := slices.ContainsFunc(h.Nodes, func(n v1beta1.NodeAddress) bool { return n.Address == address })
	j.require(named, "S9", "%s at the address %q, which the spec does not name", s, address)
	for _, m := range j.f.Etcd.Members {
		_, ours := objects.MemberAt(j.o.Cluster, m.PeerURLs)
		j.require(!ours || objects.AddressIn(m.PeerURLs[0]) != address, "S2", "%s on the node of another member", s)
	}
}

func promote(j *judgement, s decision.Promote) {
	m := j.f.Find(s.Name)
	if m == nil || m.ID != s.ID {
		j.require(false, "S5", "%s, which etcd does not list", s)
		return
	}
	lead := leads(j)
	j.require(lead.Serving(), "S5", "%s while the leader is unreachable", s)
	j.require(m.Learner && m.Serving(), "S5", "%s, which did not answer in this call", s)
	j.require(m.Health.RaftIndex*10 >= lead.RaftIndex*9, "S5", "%s, which has not caught up", s)
	j.require(m.Health.RaftIndex+facts.MostBehind >= lead.RaftIndex, "S5", "%s, which is far behind the leader", s)
	j.require(m.Pod != nil && (!j.f.OnClaims() || m.Claim != nil && !claimBeingDeleted(j, m.PodName)), "S5",
		"%s, which has no volume", s)
	j.require(m.Pod == nil || !objects.MayBegin(m.Pod), "S10",
		"%s, whose pod may still join once more", s)
	j.require(!removalPending(j, m), "S3", "%s, which may be removed", s)
	j.require(sparesWanted(j) == 0 || spareMayVote(j), "S6", "%s, a spare, although no voter is missing", s)
	j.require(m.Pod == nil || !restartPending(j, m), "S2", "%s, which may be restarted", s)
	stay := othersStay(j, m)
	voters := len(j.f.Voters) + 1
	j.require(facts.Serving(j.f.Voters)+1 >= facts.Quorum(voters), "S1", "%s would leave too few of %d serving", s,
		voters)
	j.require(stay+1 >= facts.Quorum(voters) || stay < facts.Quorum(voters-1), "S1",
		"%s would leave %d of %d serving and staying", s, stay+1, voters)
	for _, b := range j.o.Children.Budgets {
		theirs := len(objects.Filter(j.f.Voters, func(m *facts.Member) bool { return m.PodName == "" }))
		j.require(b.Spec.MinAvailable == nil || b.Spec.MinAvailable.IntValue()+theirs >= facts.Quorum(voters), "S1",
			"%s while the PodDisruptionBudget %s lets all but %s of %d voters go", s, b.Name, b.Spec.MinAvailable,
			voters)
	}
}

// updatePeerURL: a voter of ours gets the https form of its own URL, while every member serves and can dial it, and no
// other one's listener differs from what is listed (two such members would not hear each other).
func updatePeerURL(j *judgement, s decision.UpdatePeerURL) {
	m := j.f.Find(s.Name)
	j.require(m != nil && m.ID == s.ID && !m.Learner, "S4", "%s, which is no voter", s)
	own := objects.PeerURL(j.o.Cluster, s.Name, j.f.Address(s.Name))
	j.require(s.PeerURL == own && facts.ByTLS(s.PeerURL), "S9",
		"%s with a URL that is not its own", s)
	j.require(joining(j) == nil && len(j.f.RemovedPods()) == 0, "S3", "%s while members come or go", s)
	for _, o := range j.f.Voters {
		j.require(stays(j, o), "S1", "%s while %s does not serve, or may be restarted", s, o.PodName)
		j.require(o.PodName == "" || facts.TLSFlagsOf(o.Pod).Certificates, "S1", "%s, which %s can't dial then", s,
			o.PodName)
		j.require(o.PodName == "" || facts.TLSFlagsOf(o.Pod).Peers == facts.ByTLS(o.PeerURLs...), "S1",
			"%s before %s listens as it is listed", s, o.PodName)
	}
}

func remove(j *judgement, s decision.Remove) {
	m := j.f.ByID(s.ID)
	if m == nil || m.DisplayName() != s.Name {
		j.require(false, "S6", "%s, which etcd does not list", s)
		return
	}
	if n, ours := objects.Ordinal(j.o.Cluster.Name, s.Name); !j.f.OnClaims() && ours {
		j.require(n < j.f.Epoch.NextOrdinal, "S9", "%s: its last trace goes before its number is recorded", s)
	}
	j.require(addedLongAgo(j, m, s.Name), "S9", "%s: a call from before its addition may add it again", s)
	chosenForRemoval(j, m)
	if m.Learner {
		j.require(needless(j, m), "S6", "%s, a learner that is wanted and that nothing is wrong with", s)
		return
	}
	removeVoter(j, s, m)
}

// removeVoter: a voter that is lost, wrong, dead or above the wanted number, whose quorum does without it.
func removeVoter(j *judgement, s decision.Remove, m *facts.Member) {
	voters := j.f.Voters
	others := objects.Filter(voters, func(o *facts.Member) bool { return o.ID != m.ID })
	_, lost := j.f.DataLost(m)
	wrong := provenWrong(j, m)
	if besideExternal(j) {
		removeBeside(j, s, m, lost || dead(j, m))
	}
	surplus := besideExternal(j) || len(voters) > j.f.Replicas
	j.require(surplus || lost || wrong || dead(j, m), "S6",
		"%s, which is neither lost, nor proven wrong, nor above the wanted number, nor dead for long enough", s)
	j.require(lost || wrong || !j.f.Fenced(m.PodName), "S6", "%s, which a person has fenced to look at it", s)
	j.require(len(others) > 0, "S6", "%s, the last voter", s)
	j.require(m.ID != j.f.Etcd.Leader, "S6", "%s, the leader", s)
	stay := othersStay(j, m)
	j.require(stay >= facts.Quorum(len(others)), "S1", "%s would leave %d of %d serving and staying", s, stay,
		len(others))
	j.require(wrong || !m.Serving() || stay == len(others), "S2",
		"%s, which serves, while another voter does not, or may be restarted", s)
	besideNone(j, s, lost && !m.Serving(), surplus)
}

// needless reports whether a learner may go: its data is lost, or may be wrong; there are enough voters without it, not
// counting one whose data is lost, and no spare is wanted, or not this one; its pod can't be replaced; or it was
// counted as one that has come to nothing.
func needless(j *judgement, m *facts.Member) bool {
	counted := objects.Filter(j.f.Voters, func(o *facts.Member) bool {
		_, lost := j.f.DataLost(o)
		return (o.PodName != "" || !besideExternal(j)) && (!lost || o.Serving())
	})
	_, lost := j.f.DataLost(m)
	enough := len(counted) >= j.f.Replicas && (sparesWanted(j) == 0 || unlikeVoters(j, m))
	if lost || raised(j, observation.AlarmCorrupt) || enough || m.PodName == "" {
		return true
	}
	return cameToNothing(j, m) || j.f.Memory() && m.Pod != nil && j.f.TemplateOutdated(m.Pod)
}

// cameToNothing reports whether a learner was counted as one that has not caught up in time, or a spare as one that has
// been silent for as long.
func cameToNothing(j *judgement, m *facts.Member) bool {
	since, listed := joined(j, m)
	if s := j.f.LastStatus(m); s != nil && s.Role == v1beta1.Spare && !s.Ready {
		since = s.LastTransitionTime.Time
	}
	noted := j.o.Cluster.Status.Internal.Replacement
	late := listed && j.o.Now.Sub(since) >= defaults.ReplaceAfter(&j.o.Cluster.Spec)
	return late && noted != nil && noted.Learner == m.PodName
}

// besideNone: no other change is under way; but a lost voter goes although a learner has not started, and one above the
// wanted number although a removed member's pod has not stopped yet.
func besideNone(j *judgement, s decision.Remove, lost, surplus bool) {
	l := joining(j)
	j.require(l == nil || lost && !l.Serving(), "S3", "%s while there is a learner", s)
	for _, name := range j.f.RemovedPods() {
		j.require(surplus && j.o.Children.Pods[name].DeletionTimestamp != nil, "S3",
			"%s while the removed member's pod %s runs", s, name)
	}
}

// addedLongAgo: no call adds a member that the epoch began with, and those that add another one are over.
func addedLongAgo(j *judgement, m *facts.Member, name string) bool {
	_, initial := j.f.Epoch.Initial[name]
	joined, listed := joined(j, m)
	return initial && !j.f.Epoch.Recreated ||
		listed && j.o.Now.Sub(joined) >= facts.CallsEnd
}

// chosenForRemoval requires that the record names a member that is removed, and says of no time that this was
// withdrawn.
func chosenForRemoval(j *judgement, m *facts.Member) {
	named := j.f.Epoch.Choice
	j.require(named.Name == m.DisplayName() && named.Removes && named.Withdrawn.IsZero(), "S3",
		"%s is removed, and the record names %+v", m.DisplayName(), named)
}

// removalPending reports whether a late call may remove the member: the record names it, and has not withdrawn that
// for as long as calls live.
func removalPending(j *judgement, m *facts.Member) bool {
	named := j.f.Epoch.Choice
	acts := named.Withdrawn.IsZero() || j.o.Now.Sub(named.Withdrawn) < facts.CallsEnd
	return named.Name == m.DisplayName() && named.Removes && acts
}

// joined is when the status first listed the member; false when it does not.
func joined(j *judgement, m *facts.Member) (time.Time, bool) {
	for _, s := range j.o.Cluster.Status.Members {
		if s.ID == objects.Hex(m.ID) {
			return s.JoinTime.Time, !s.JoinTime.IsZero()
		}
	}
	return time.Time{}, false
}

// dead reports whether a voter may be given up: the status says that it has been unreachable for as long as the policy
// asks for, that the cluster has had quorum all that time, and that Quorate has looked; no other etcd answers in its
// place; and its claim, if it has one, carries the mark.
func dead(j *judgement, m *facts.Member) bool {
	policy := j.o.Cluster.Spec.MemberReplacement
	limit := defaults.ReplaceAfter(&j.o.Cluster.Spec)
	long := func(since time.Time) bool { return !since.IsZero() && j.o.Now.Sub(since) >= limit }
	unreachable := slices.ContainsFunc(j.o.Cluster.Status.Members, func(s v1beta1.MemberStatus) bool {
		return s.ID == objects.Hex(m.ID) && !s.Ready && long(s.LastTransitionTime.Time)
	})
	quorate := slices.ContainsFunc(j.o.Cluster.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1beta1.Available && c.Status == metav1.ConditionTrue && long(c.LastTransitionTime.Time)
	})
	if policy.Policy == v1beta1.ReplaceManual || j.f.Fenced(m.PodName) || m.Serving() {
		return false
	}
	if !unreachable || !quorate || masked(j, m.PodName) || fullDisk(j, m) {
		return false
	}
	return watchedFor(j, long) && toBeKept(j, m)
}

// fullDisk reports whether the member's etcd has ended of a full disk, and a successor would have no more room.
func fullDisk(j *judgement, m *facts.Member) bool {
	end := objects.LastEnd(m.Pod, objects.ContainerEtcd)
	if end == nil || !strings.Contains(end.Message, objects.DiskFullWords) || j.f.Roomier(m.PodName) {
		return false
	}
	was := j.f.LastStatus(m)
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
func toBeKept(j *judgement, m *facts.Member) bool {
	for _, claim := range []*corev1.PersistentVolumeClaim{m.Claim, j.o.Children.Claims[m.PodName+"-wal"]} {
		if claim != nil && j.f.Ours(claim) && !facts.OfFailedMember(claim) {
			return false
		}
	}
	return true
}

// masked reports whether another member answered at a member's address in this call.
func masked(j *judgement, name string) bool {
	h, heard := j.o.Health[name]
	m := j.f.Find(name)
	if !heard || m == nil || h.MemberID == 0 {
		return false
	}
	return h.Err != "" || h.MemberID != m.ID
}
