package hooks

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/rule"
)

// verdict is what a rule says.
type verdict struct {
	message string
	step    Step
	// roll names the pod that is to be deleted now so that it is made anew; empty for none.
	roll string
	// patch names the pod whose image is to be exchanged now; empty for none.
	patch string
	// renew is the restart that the record is to name; empty leaves it.
	renew string
	// spare names the chosen voter for which others wait, and which is not to be restarted any more; empty for none.
	spare string
	// condemn names the member whose claim gets this mark, because it is given up; empty for none.
	condemn, mark string
	// version that the record is to say from now on; empty leaves it.
	version string
	// snapshotted: the log that etcd 3.5 wrote lies before a snapshot on every member's disk.
	snapshotted bool
	// run is what the status is to say of a run of defragmentation; nil leaves it.
	run *v1alpha1.DefragmentationStatus
	// heir is the record of the next epoch, to be made; phase and survivor are what the record that there is is to say from now on. See
	// succession.go.
	heir            *corev1.ConfigMap
	phase, survivor string
	// outlook is what to expect of it, where the rule may have several: see outlook.go.
	outlook Outlook
	resync  time.Duration
}

// Rules are all rules in order. The order is the safety argument: what stops us comes first, then what is needed before there
// is a cluster, then blindness, and only with a quorum's answer in hand the changes: finish the one that is under way, heal,
// shrink, grow.
var Rules = rule.List[*view, *verdict]{
	rule.New("Suspended", "spec.suspend holds every change back; members run on as they are.", suspended),
	rule.New("Unsupported", "A spec that can't be run changes nothing; the message says what to correct.", unsupported),
	rule.New("ApplyStrategy", "Nothing is changed while a child lacks the annotation of what Metacontroller applied last: --apply-strategy=server-side-apply removes it, and Quorate refuses that strategy.", applyStrategy),

	rule.New("Empty", "A cluster with replicas 0 that never began makes nothing yet.", empty),
	rule.New("Record", "The epoch record is written first: its creation decides once who the initial members are (S8).", record),
	rule.New("Pause", "replicas 0 stops all members and keeps their data; a pod that alone keeps a claim from being deleted stays.", pause),
	rule.New("WaitForCertificates", "No member is begun or changed before the certificates of members and of Quorate are there and in order (S19); pods of members that have run are brought back all the same.", certify),
	rule.New("SwitchEpoch", "The next epoch takes over from this one in moves that are written on its record: its members' data is made ready, this epoch is stopped, and only when nothing of that is left the next one begins (S8).", succeed),
	rule.New("Provision", "What the initial members start on (claims, or memory pods held back) is made, then recorded by UID, and on HostPath their nodes are; after that it is never made again (S10).", found),

	rule.New("WrongCluster", "An answer from another cluster, by the recorded ID or because it lists none of our members that have run, is not ours to act on (S8).", foreign),
	rule.New("Join", "Before the members join an existing etcd, a quorum of it must answer and suit them; which cluster that is, is recorded first (S8).", join),
	rule.New("Recover", "With the quorum's data lost, the next epoch is recorded, by spec.recovery after a while or when a person asks for it: from the survivor that has the most, from a snapshot, or without data (S8).", recoverQuorum),
	rule.New("Restore", "A changed spec.restore.id has the next epoch recorded; this one runs on until its data is ready (S8).", restore),
	rule.New("QuorumLost", "With fewer volumes left than a quorum needs, what is left is kept running and a person decides (S8).", quorumLost),
	rule.New("Reschedule", "Before the first quorum, a pod that no node has taken and that was made from an outdated template is made anew, one at a time.", reschedule),
	rule.New("Start", "The initial members start together; nothing else happens before they first have quorum.", start),
	rule.New("Blind", "Without an answer from a quorum nothing is changed; pods are only brought back (S11).", blind),

	rule.New("Elect", "While no leader is known nothing is changed.", elect),
	rule.New("ReserveName", "Before a member's last trace goes, its number is recorded as used (S9).", mark),
	rule.New("Corrupt", "While members' data differs (alarm CORRUPT) nobody joins and nothing else is changed; a voter that a quorum of equal hashes proves wrong is replaced, and without that proof a person decides (S6).", corrupt),
	rule.New("LearnerLost", "A learner whose data is gone is removed; the next one gets a new name (S9, S10).", learnerLost),
	rule.New("LearnerSurplus", "A learner that is no longer wanted is removed, and on Memory one that was made from an outdated template.", learnerSurplus),
	rule.New("Promote", "A learner that answered in this call, has caught up and has its volume becomes a voter (S5).", promote),
	rule.New("CancelDowngrade", "A downgrade that is no longer wanted is cancelled in etcd before anything else: it would keep members of the wanted version from starting (S18).", cancelDowngrade),
	rule.New("SetVersion", "Another patch release is the members' version from now on; so is the minor version that they come from, while the cluster has not agreed on the new one (S18).", retarget),
	rule.New("LearnerYields", "A learner that does not serve gives way while a voter's data is lost: one change at a time (S3).", learnerYields),
	rule.New("Fence", "A member that the annotation etcd.quorate.dev/fence names is stopped and stays a member, while the others can do without it (S1); which pod that takes is recorded first (S2).", fence),
	rule.New("LearnerLate", "A learner that has not caught up in time is counted, and then removed; the next one gets a new name, after a pause that grows from failure to failure (S9).", learnerLate),
	rule.New("RecreatePod", "A pod that is down and was made from an outdated template, or in the wrong way, is made anew, one at a time (S2), and so is one that can't hear the others because it does not trust their authority; a learner's also while it serves. Which pod goes is recorded first.", remake),
	rule.New("Learner", "While a learner catches up no other member is added or removed (S3).", learnerCatchesUp),
	rule.New("WaitForRemoved", "The pod of a removed member must be gone before the next change of members (S3).", depart),
	rule.New("Replace", "A voter whose data is lost is removed while the rest has quorum; growth brings its successor. One that still serves stays until its successor votes (S6, S10).", replace),
	rule.New("Shrink", "Voters above the wanted number are removed one by one: not serving first, then followers, the leader last (S6).", shrink),
	rule.New("ReplaceDead", "A voter that has not served for longer than spec.memberReplacement.after is removed while the rest has quorum, and growth brings its successor; its claim is marked first, and kept for a while; after others in a row, it is removed after a pause that grows with their number (S6, S7).", giveUp),
	rule.New("Grow", "A missing voter joins as a learner under a new name, while all others serve and the pause after one that did not catch up is over (S3, S4, S9).", grow),
	rule.New("RetireForeign", "Once spec.bootstrap.existing.retireForeign is true, the members that are not ours are removed one by one while all others serve: not serving first, then followers, the leader last (S6).", retireForeign),
	rule.New("ForeignMembers", "While there are members that are not ours, nothing but what is above is changed.", beside),

	rule.New("Authorize", "etcd's users and roles are made as the spec declares them, grants before revokes; their names are recorded first (S20).", authorize),
	rule.New("WaitForMembers", "All members are there, but not all of them serve.", heal),
	rule.New("RollingUpdate", "Members that are not as the spec wants them are restarted one at a time, the leader last, and which pod is next is recorded first; a member that does not come back stops that (S2, S19).", roll),
	rule.New("UpdatePeerURLs", "Once everybody can dial by TLS, one voter after the other is listed with its https URL, and restarted before the next (S4).", readdress),
	rule.New("NoSpace", "Databases that have reached their quota (alarm NOSPACE) are compacted and defragmented one at a time, and the alarm is disarmed once all are below 90 %; every ten minutes at most.", noSpace),
	rule.New("Defragment", "By a schedule or when asked, members give free space back to the file system, one at a time and the leader last, while all serve (S2).", defragment),
	rule.New("Upgrade", "The next version on the way to the wanted one, a minor version at a time, is recorded once all members run the one before; downwards by etcd's own protocol (S18).", upgrade),
	rule.New("Resize", "Volumes grow to the wanted size beside everything else, all at once; their members are restarted when they have.", resize),
	rule.New("OutOfSpace", "An alarm NOSPACE that no compaction and no defragmentation can clear waits for a larger quota or for less data.", full),
	rule.New("VolumePending", "Volumes that can't become what the spec asks for stay as they are, or, with migration Replace, their members are succeeded by new ones while the data fits.", volumePending),
	rule.New("PrepareRestore", "The cluster is as the rest of the spec wants it, and does not have the data that spec.restore asks for: the next epoch is being made ready, or can't be.", stage),
	rule.New("Converged", "The cluster is as the spec wants it.", converged),
}

// ---- words

// change asks for a step, or reports what became of the one that this call has taken: there is never a second (S3).
func (v *view) change(s Step, message string) *verdict {
	switch {
	case v.Taken == nil:
		return &verdict{step: s, message: message, resync: rule.Soon}
	case v.Taken.Err != "":
		return &verdict{message: fmt.Sprintf("%s; etcd did not %s: %s", message, v.Taken.Step, v.Taken.Err), resync: rule.Patience}
	}
	return &verdict{message: message, resync: rule.Soon}
}

func serving(list []*member) int { return len(filter(list, (*member).serving)) }

func names(list []*member) []string {
	var all []string
	for _, m := range list {
		all = append(all, cmp.Or(m.called(), "stranger "+hex(m.ID)))
	}
	return all
}

// nameOf is what the member with this ID is called; empty for none and for a stranger.
func (v *view) nameOf(id uint64) string {
	if m := v.byID(id); m != nil {
		return m.called()
	}
	return ""
}

// byID is the listed member with this ID; nil when the list omits it.
func (v *view) byID(id uint64) *member {
	i := slices.IndexFunc(v.members, func(m *member) bool { return m.ID == id })
	if i < 0 {
		return nil
	}
	return v.members[i]
}

// leader is the member that leads; nil while none is known.
func (v *view) leader() *member { return v.byID(v.Etcd.Leader) }

func hex(id uint64) string { return fmt.Sprintf("%x", id) }
