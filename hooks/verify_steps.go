package hooks

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// step checks the one change of etcd's membership.
func (j *judgement) step() {
	if j.d.Step == nil {
		return
	}
	j.require(j.v.Etcd != nil, "S11", "%s while blind", j.d.Step)
	j.require(j.o.Taken == nil, "S3", "a second step in one call: %s", j.d.Step)
	if j.v.Etcd == nil {
		return
	}
	j.whileCorrupt()
	j.stepBeside()
	switch s := j.d.Step.(type) {
	case Compact:
		j.compact(s)
	case Defragment:
		j.defragment(s)
	case Disarm:
		j.disarm(s)
	case AddLearner:
		j.addLearner(s)
	case Promote:
		j.promote(s)
	case Remove:
		j.remove(s)
	case UpdatePeerURL:
		j.updatePeerURL(s)
	case MoveLeader:
		to := j.v.byID(s.To)
		j.require(to != nil && !to.Learner && to.serving(), "S1", "%s, which is no serving voter", s)
	}
}

func (j *judgement) addLearner(s AddLearner) {
	n, ours := objects.Ordinal(j.o.Cluster.Name, s.Name)
	j.require(ours && (s.PeerURL == objects.PeerURL(j.o.Cluster, s.Name) || s.PeerURL == objects.PeerURLOf(j.o.Cluster,
		s.Name, false) && !j.v.everyoneDials()), "S9", "%s under a name or URL that is not ours", s)
	j.require(j.v.epoch != nil && n >= j.v.epoch.nextOrdinal, "S9", "%s: the number is below the mark", s)
	j.require(!slices.Contains(j.v.names, s.Name), "S9", "%s: the name has left traces", s)
	j.require(j.v.learner() == nil, "S3", "%s while there is a learner", s)
	j.require(len(j.v.removedPods()) == 0, "S3", "%s while a removed member's pod runs", s)
	going := slices.ContainsFunc(j.v.voters, func(m *member) bool {
		return j.claimBeingDeleted(m.name) || j.unlike(m)
	})
	counted := filter(j.v.voters, func(m *member) bool { return m.name != "" || !j.besideForeign() })
	j.require(len(counted) < j.v.replicas || going && len(counted) == j.v.replicas, "S6",
		"%s although there are enough voters", s)
	j.suits(s)
}

func (j *judgement) promote(s Promote) {
	m := j.v.find(s.Name)
	if m == nil || m.ID != s.ID {
		j.require(false, "S5", "%s, which etcd does not list", s)
		return
	}
	lead := j.leads()
	j.require(m.Learner && m.serving(), "S5", "%s, which did not answer in this call", s)
	j.require(m.health.RaftIndex*10 >= lead.RaftIndex*9, "S5", "%s, which has not caught up", s)
	j.require(m.pod != nil && (!j.v.onClaims() || m.claim != nil && !j.claimBeingDeleted(m.name)), "S5",
		"%s, which has no volume", s)
	j.require(m.pod == nil || m.pod.Annotations[objects.AnnotationInitialCluster] == "", "S10",
		"%s, whose pod may still join once more", s)
	j.require(!j.removalPending(m), "S3", "%s, which may be removed", s)
	j.require(m.pod == nil || !j.restartPending(m), "S2", "%s, which may be restarted", s)
	stay, voters := j.othersStay(m), len(j.v.voters)+1
	j.require(serving(j.v.voters)+1 >= quorum(voters), "S1", "%s would leave too few of %d serving", s, voters)
	j.require(stay+1 >= quorum(voters) || stay < quorum(voters-1), "S1", "%s would leave %d of %d serving and staying",
		s, stay+1, voters)
}

// updatePeerURL: a voter of ours gets the https form of its own URL, while everybody serves and can dial it, and no
// other one's listener differs from what is listed (two such members would not hear each other).
func (j *judgement) updatePeerURL(s UpdatePeerURL) {
	m := j.v.find(s.Name)
	j.require(m != nil && m.ID == s.ID && !m.Learner, "S4", "%s, which is no voter", s)
	j.require(s.PeerURL == objects.PeerURL(j.o.Cluster, s.Name) && byTLS(s.PeerURL), "S9",
		"%s with a URL that is not its own", s)
	j.require(j.v.learner() == nil && len(j.v.removedPods()) == 0, "S3", "%s while members come or go", s)
	for _, o := range j.v.voters {
		j.require(j.stays(o), "S1", "%s while %s does not serve, or may be restarted", s, o.name)
		j.require(o.name == "" || tlsFlagsOf(o.pod).certificates, "S1", "%s, whom %s can't dial then", s, o.name)
		j.require(o.name == "" || tlsFlagsOf(o.pod).peers == byTLS(o.PeerURLs...), "S1",
			"%s before %s listens as it is listed", s, o.name)
	}
}

func (j *judgement) remove(s Remove) {
	m := j.v.byID(s.ID)
	if m == nil || m.displayName() != s.Name {
		j.require(false, "S6", "%s, which etcd does not list", s)
		return
	}
	if n, ours := objects.Ordinal(j.o.Cluster.Name, s.Name); !j.v.onClaims() && ours {
		j.require(n < j.v.epoch.nextOrdinal, "S9", "%s: its last trace goes before its number is recorded", s)
	}
	joined, listed := j.joined(m)
	j.require(listed && j.o.Now.Sub(joined) >= CallsEnd, "S9", "%s: a call from before its addition may add it again",
		s)
	j.chosenForRemoval(m)
	if m.Learner {
		return
	}
	voters := j.v.voters
	others := filter(voters, func(o *member) bool { return o.ID != m.ID })
	_, lost := j.v.dataLost(m)
	wrong := j.provenWrong(m)
	if j.besideForeign() {
		j.removeBeside(s, m, lost || j.dead(m))
	}
	j.require(j.besideForeign() || lost || wrong || len(voters) > j.v.replicas || j.dead(m), "S6",
		"%s, which is neither lost, nor proven wrong, nor above the wanted number, nor dead for long enough", s)
	j.require(len(others) > 0, "S6", "%s, the last voter", s)
	j.require(m.ID != j.v.Etcd.Leader, "S6", "%s, the leader", s)
	stay := j.othersStay(m)
	j.require(stay >= quorum(len(others)), "S1", "%s would leave %d of %d serving and staying", s, stay, len(others))
	j.require(wrong || !m.serving() || stay == len(others), "S2",
		"%s, which serves, while another voter does not, or may be restarted", s)
	j.require(j.v.learner() == nil, "S3", "%s while there is a learner", s)
	j.require(len(j.v.removedPods()) == 0, "S3", "%s while a removed member's pod runs", s)
}

// chosenForRemoval requires that the record names a member that is removed, and says of no time that this was withdrawn.
func (j *judgement) chosenForRemoval(m *member) {
	said := j.v.epoch.record.Annotations[objects.AnnotationChosen]
	named := append(strings.Fields(said), "", "", "", "")
	_, unreadable := time.Parse(time.RFC3339, named[3])
	j.require(named[0] == m.displayName() && named[1] == "removal" && unreadable != nil, "S3",
		"%s is removed, and the record names %q", m.displayName(), said)
}

// removalPending reports whether a late call may remove the member: the record names it, and has not withdrawn that
// for as long as calls live.
func (j *judgement) removalPending(m *member) bool {
	named := append(strings.Fields(j.v.epoch.record.Annotations[objects.AnnotationChosen]), "", "", "", "")
	since, err := time.Parse(time.RFC3339, named[3])
	return named[0] == m.displayName() && named[1] == "removal" && (err != nil || j.o.Now.Sub(since) < CallsEnd)
}

// joined is when the status first listed the member; false when it does not.
func (j *judgement) joined(m *member) (time.Time, bool) {
	for _, s := range j.o.Cluster.Status.Members {
		if s.ID == hex(m.ID) {
			return s.Joined.Time, !s.Joined.IsZero()
		}
	}
	return time.Time{}, false
}

// dead reports whether a voter may be given up: the status says that it has been silent for as long as the policy
// asks for, that the cluster has had quorum all that time, and that Quorate has looked; no other etcd answers in its
// place; and its claim, if it has one, carries the mark.
func (j *judgement) dead(m *member) bool {
	policy := j.o.Cluster.Spec.MemberReplacement
	limit := policy.After.Duration
	if limit <= 0 {
		limit = 5 * time.Minute
	}
	long := func(since time.Time) bool { return !since.IsZero() && j.o.Now.Sub(since) >= limit }
	silent := slices.ContainsFunc(j.o.Cluster.Status.Members, func(s v1alpha1.MemberStatus) bool {
		return s.ID == hex(m.ID) && !s.Ready && long(s.Since.Time)
	})
	quorate := slices.ContainsFunc(j.o.Cluster.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.Available && c.Status == metav1.ConditionTrue && long(c.LastTransitionTime.Time)
	})
	return j.watchedFor(long) && policy.Policy != v1alpha1.ReplaceManual && !j.v.fenced(m.name) && !m.serving() &&
		!j.masked(m.name) && silent && quorate && j.toBeKept(m)
}

// watchedFor reports whether Quorate has looked without a gap since a time that is long ago.
func (j *judgement) watchedFor(long func(since time.Time) bool) bool {
	w := j.o.Cluster.Status.Watched
	return w != nil && long(w.Since.Time) && j.o.Now.Sub(w.Until.Time) <= 4*cmp.Or(j.o.Resync, 30*time.Second)
}

// toBeKept reports whether all claims of the member are marked to be kept.
func (j *judgement) toBeKept(m *member) bool {
	for _, claim := range []*corev1.PersistentVolumeClaim{m.claim, j.o.Children.Claims[m.name+"-wal"]} {
		if claim != nil && j.v.ours(claim) && !ofFailedMember(claim) {
			return false
		}
	}
	return true
}

// masked reports whether somebody else answered at a member's address in this call.
func (j *judgement) masked(name string) bool {
	h, heard := j.o.Health[name]
	m := j.v.find(name)
	return heard && m != nil && h.MemberID != 0 && (h.Err != "" || h.MemberID != m.ID)
}
