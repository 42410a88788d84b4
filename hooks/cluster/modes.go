// Package cluster decides: the modes of a cluster, the rules of each in their order, and what every rule does.
package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/volumes"
)

// mode is how much is known of a cluster, worked out once in a call. It owns what may be done while it lasts: the
// rules that are asked, in their order, and what becomes of the record, and of the claims and pods of the epoch's
// members. A rule says only what differs from that.
type mode struct {
	name string
	// why is the sentence that documents the mode.
	why string
	// is reports whether the cluster is in this mode, if it is in none before.
	is func(*state.View) bool
	// rules are asked until one applies. The last one always does.
	rules rule.List[*state.View, *decision.Verdict]
	// record, claims and pods are nil where every child stays as it is.
	record func(*state.View, *decision.Verdict) *corev1.ConfigMap
	claims func(*state.View, *decision.Verdict) []*corev1.PersistentVolumeClaim
	pods   func(*state.View, *decision.Verdict) []*corev1.Pod
}

// Rules that are asked in several modes.
var (
	// Waits: a pod is the last that keeps a claim from being deleted
	pauseRule = rule.New("Pause",
		"replicas 0 stops all members and keeps their data; a pod that alone keeps a claim from being deleted "+
			"stays.", pause, rule.Works, rule.Rests, rule.Waits)
	// Waits: one that others keep is there and can't be used; one that is not there may be on its way
	certificatesRule = rule.New("WaitForCertificates",
		"No member is begun or changed before the certificates of members and of Quorate are there and in order "+
			"(S19); pods of members that have run are brought back all the same, with Secrets that "+
			"have the cluster's label.",
		waitForCertificates, rule.Works, rule.Waits)
	// Waits: the data can't be restored
	epochRule = rule.New("SwitchEpoch",
		"The next epoch takes over from this one in moves that are written on its record: its members' data is "+
			"made ready, this epoch is stopped, and only when nothing of that is left the next one begins (S8).",
		switchEpoch, rule.Works, rule.Waits)
	wrongClusterRule = rule.New("WrongCluster",
		"An answer from another cluster, by the recorded ID or because it lists none of our members that have run, "+
			"is not ours to act on (S8).", wrongCluster, rule.Waits).Holding()
	// Waits: the existing etcd does not suit
	joinRule = rule.New("Join",
		"Before the members join an existing etcd, a quorum of it must answer and suit them; which cluster that "+
			"is, is recorded first (S8).", join, rule.Works, rule.Waits)
	// Waits: what the policy asks for can't be done
	recoverRule = rule.New("Recover",
		"With the quorum's data lost, the next epoch is recorded, by spec.recovery after a while or when a person "+
			"asks for it: from the survivor that has the most, from a snapshot, or without data (S8).",
		recoverQuorum, rule.Works, rule.Waits)
	restoreRule = rule.New("Restore",
		"An EtcdOperation of type Restore has the next epoch recorded; this one runs on until its data is ready (S8).",
		restore)
	// Works: the next epoch is being made ready
	lostRule = rule.New("QuorumLost",
		"With fewer volumes left than a quorum needs, what is left is kept running and a person decides (S8).",
		quorumLost, rule.Waits, rule.Works).Holding()
)

// modes are all of them in order: the first that is true holds. The order is the safety argument: what stops us comes
// first, then what is needed before there is a cluster, then blindness, and only with a quorum's answer in hand the
// changes: finish the one that is under way, heal, shrink, grow.
var modes = []mode{
	{
		name: "HeldBack",
		why:  "A person holds every change back, or an answer could not be followed: every child stays as it is.",
		is:   (*state.View).HeldBack,
		rules: rule.List[*state.View, *decision.Verdict]{
			// Aside: held back is what the rules after it would do: if they would do something, it waits for a person
			rule.New("Suspended", "spec.suspend holds every change back; members run on as they are.",
				suspended, rule.Aside).Holding(),
			rule.New("Unsupported",
				"A spec that can't be run changes nothing; the message says what to correct.",
				unsupported, rule.Waits).Holding(),
			rule.New("RecordRefused",
				"Nothing is changed by a record that no key of the installation has sealed as it is, or that can't be "+
					"read (S8); one of the etcd that answers, by the status too, is written again.",
				recordRefused, rule.Waits).Holding(),
			// Works: by dynamic-apply it ends with the next call
			rule.New("ApplyStrategy",
				"Nothing is changed while a child lacks the annotation of what Metacontroller applied last: "+
					"--apply-strategy=server-side-apply removes it, and Quorate refuses that strategy.",
				applyStrategy, rule.Works, rule.Waits).Holding(),
		},
	},
	{
		name: "Stopping",
		why:  "The next epoch takes over: none of the pods of this one comes back, and its volumes are kept.",
		is:   (*state.View).Ending,
		rules: rule.List[*state.View, *decision.Verdict]{
			pauseRule,
			certificatesRule,
			epochRule,
		},
		record: noRecord, claims: epochs.EndedClaims, pods: noPods,
	},
	{
		name: "Unrecorded",
		why:  "No record says who the members are: what is there stays.",
		is:   unrecorded,
		rules: rule.List[*state.View, *decision.Verdict]{
			// replicas 0 asks for nothing
			rule.New("Empty", "A cluster with replicas 0 that never began makes nothing yet.", empty, rule.Rests),
			// Works: a snapshot to begin with may still be on its way
			rule.New("Record",
				"The epoch record is written first: its creation decides once who the initial members are (S8).",
				recordEpoch, rule.Works, rule.Waits),
		},
		record: epochs.NewRecord, claims: allClaims, pods: allPods,
	},
	{
		name: "Paused",
		why:  "replicas is 0: every claim stays, and no pod.",
		is:   paused,
		rules: rule.List[*state.View, *decision.Verdict]{
			pauseRule,
		},
		record: epochs.Advance, claims: allClaims, pods: lastPods,
	},
	{
		name: "Provisioning",
		why:  "The record names the initial members, and not yet what they start on.",
		is:   unprovisioned,
		rules: rule.List[*state.View, *decision.Verdict]{
			certificatesRule,
			epochRule,
			// Waits: too few nodes are named
			rule.New("Provision",
				"What the initial members start on (claims, or memory pods held back) is made, then recorded by "+
					"UID, and on HostPath their nodes are; after that it is never made again (S10).",
				provision, rule.Works, rule.Waits),
		},
		record: epochs.Advance, claims: initialClaims, pods: children.InitialPods,
	},
	{
		name: "Starting",
		why:  "The initial members may start, and have never had a quorum.",
		is:   unstarted,
		rules: rule.List[*state.View, *decision.Verdict]{
			certificatesRule,
			epochRule,
			wrongClusterRule,
			joinRule,
			recoverRule,
			restoreRule,
			lostRule,
			rule.New("Reschedule",
				"Before the first quorum, a pod that can't go on as it was made, and would be made otherwise now, is "+
					"replaced, one at a time.", reschedule),
			// Waits: not started in time, or can't be
			rule.New("Start",
				"The initial members start together; nothing else happens before they first have quorum.",
				start, rule.Works, rule.Waits),
		},
		record: epochs.Advance, claims: allClaims, pods: children.BlindPods,
	},
	{
		name: "Blind",
		why: "A cluster that has run does not answer: its pods are kept or brought back, and nothing else is " +
			"changed (S11).",
		is: membersSilent,
		rules: rule.List[*state.View, *decision.Verdict]{
			certificatesRule,
			epochRule,
			wrongClusterRule,
			recoverRule,
			restoreRule,
			lostRule,
			// Works: pods and nodes come back. Waits: too many members must be restarted
			rule.New("Blind",
				"Without an answer from a quorum nothing is changed; pods are only brought back (S11).",
				blind, rule.Works, rule.Waits).Holding(),
		},
		record: epochs.Advance, claims: allClaims, pods: children.BlindPods,
	},
	{
		name: "Quorate",
		why:  "A quorum has answered in this call: by its list of members there are pods and claims.",
		is:   quorateNow,
		rules: rule.List[*state.View, *decision.Verdict]{
			certificatesRule,
			epochRule,
			joinRule,
			restoreRule,
			rule.New("Elect", "While no leader is known nothing is changed.", elect).Holding(),
			rule.New("ReserveName", "Before a member's last trace goes, its number is recorded as used (S9).",
				reserveName),
			// Waits: whose data is right is not proven
			rule.New("Corrupt",
				"While members' data differs (alarm CORRUPT) no member joins and nothing else is changed; a voter "+
					"that a quorum of equal hashes proves wrong is replaced, and without that proof a person decides "+
					"(S6).", corrupt, rule.Works, rule.Waits).Holding(),
			rule.New("LearnerLost",
				"A learner whose data is gone is removed; the next one gets a new name (S9, S10).", learnerLost),
			rule.New("LearnerSurplus",
				"A learner that is no longer wanted is removed, and on Memory one that was made from an outdated "+
					"template.", learnerSurplus),
			rule.New("Promote",
				"A learner that answered in this call, has caught up and has its volume becomes a voter (S5).",
				promote),
			rule.New("CancelDowngrade",
				"A downgrade that is no longer wanted is cancelled in etcd before anything else: it would keep "+
					"members of the wanted version from starting (S18).", cancelDowngrade),
			rule.New("SetVersion",
				"Another patch release is the members' version from now on; so is the minor version that they come "+
					"from, while the cluster has not agreed on the new one (S18).", setVersion),
			// Waits: as Replace does
			rule.New("ReplaceFirst",
				"A voter whose data is lost is removed before a learner that does not serve has started: its etcd "+
					"would look for the voter's name (S3, S6).", replaceFirst, rule.Works, rule.Waits),
			rule.New("Fence",
				"A member that an EtcdOperation of type Fence names is stopped and stays a member, while "+
					"the others can do without it (S1); which pod that takes is recorded first (S2).", fence),
			rule.New("LearnerLate",
				"A learner that has not caught up in time is counted, and then removed; the next one gets a new "+
					"name, after a pause that grows from failure to failure (S9).", learnerLate),
			rule.New("RecreatePod",
				"A pod that is down and was made from an outdated template, or in the wrong way, is replaced, one "+
					"at a time (S2), and so is one that can't hear the others because it does not trust their "+
					"authority; a learner's also while it serves. Which pod goes is recorded first.", recreatePod),
			// Waits: it is a stranger's, or answers as another member
			rule.New("Learner",
				"While a learner catches up no other member is added or removed (S3).",
				learner, rule.Works, rule.Waits),
			rule.New("WaitForRemoved",
				"The pod of a removed member must be gone before the next change of members (S3).", waitForRemoved),
			// Waits: those who would have to serve first wait for a person
			rule.New("Replace",
				"A voter whose data is lost is removed while the rest has quorum; growth brings its successor. One "+
					"that still serves stays until its successor votes (S6, S10).", replace, rule.Works, rule.Waits),
			// Waits: only strangers are left to remove
			rule.New("Shrink",
				"Voters above the wanted number are removed one by one: not serving first, then followers, the "+
					"leader last (S6).", shrink, rule.Works, rule.Waits),
			rule.New("ReplaceDead",
				"A voter that has not served for longer than spec.memberReplacement.after is removed while the "+
					"rest has quorum, and growth brings its successor; its claim is marked first, and kept for a "+
					"while; after others in a row, it is removed after a pause that grows with their number (S6, S7).",
				replaceDead, rule.Works, rule.Waits),
			// Waits: there is no node, a downgrade is open, or a person decides about a member that is silent
			rule.New("Grow",
				"A missing voter joins as a learner under a new name, while all others serve and the pause after "+
					"one that did not catch up is over (S3, S4, S9).", grow, rule.Works, rule.Waits),
			rule.New("RetireForeign",
				"Once spec.bootstrap.existing.retireForeign is true, the members that are not ours are removed one "+
					"by one while all others serve: not serving first, then followers, the leader last (S6).",
				retireForeign, rule.Works, rule.Waits),
			// Waits: something of the spec is not done before the foreign members are gone
			rule.New("ForeignMembers",
				"While there are members that are not ours, nothing but what is above is changed.",
				foreignMembers, rule.Rests, rule.Works, rule.Waits),
			rule.New("MoveLeader", "The leadership goes to the voter that an EtcdOperation names.", moveLeader),
			rule.New("Authorize",
				"etcd's users and roles are made as the spec declares them, grants before revokes; their names are "+
					"recorded first (S20).", authorize),
			// Waits: a person decides about a member, has fenced it, or must take a change back that does not work
			rule.New("WaitForMembers", "All members are there, but not all of them serve, or a pod of theirs stops.",
				waitForMembers, rule.Works, rule.Waits),
			// Waits: an image holds another version than its tag says
			rule.New("RollingUpdate",
				"Members that are not as the spec wants them are restarted one at a time, the leader last, and "+
					"which pod is next is recorded first; a member that does not come back stops that (S2, S19).",
				rollingUpdate, rule.Works, rule.Waits),
			rule.New("UpdatePeerURLs",
				"Once every member can dial by TLS, one voter after the other is listed with its https URL, and "+
					"restarted before the next (S4).", updatePeerURLs),
			rule.New("NoSpace",
				"Databases that have reached their quota (alarm NOSPACE) are compacted and defragmented one at a "+
					"time, and the alarm is disarmed once all are below 90 %; every ten minutes at most.", noSpace),
			// upkeep
			rule.New("Defragment",
				"By a schedule, when asked, or when a database with free space is at 90 % of its quota, members give "+
					"free space back to the file system, one at a time and the leader last, while all serve (S2).",
				defragment, rule.Aside),
			// Waits: the way is refused
			rule.New("Upgrade",
				"The next version on the way to the wanted one, a minor version at a time, is recorded once all "+
					"members run the one before; downwards by etcd's own protocol (S18).",
				upgrade, rule.Works, rule.Waits),
			rule.New("Resize",
				"Volumes grow to the wanted size beside everything else, all at once; their members are restarted "+
					"when they have.", resize),
			rule.New("OutOfSpace",
				"An alarm NOSPACE that no compaction and no defragmentation can clear waits for a larger quota or "+
					"for less data.", outOfSpace, rule.Waits),
			rule.New("VolumePending",
				"Volumes that can't become what the spec asks for stay as they are, or, with migration Replace, "+
					"their members are succeeded by new ones while the data fits.", volumePending, rule.Waits),
			// Waits: the data can't be restored
			rule.New("PrepareRestore",
				"The cluster is as the spec wants it, and does not have the data that an EtcdOperation asks for: "+
					"the next epoch is being made ready, or can't be.", prepareRestore, rule.Works, rule.Waits),
			// Waits: no window ever opens
			rule.New("WaitForWindow",
				"All serve, and what is left to do disturbs members and can wait: it begins when a window of "+
					"spec.maintenance.windows opens.", waitForWindow, rule.Rests, rule.Waits),
			rule.New("Converged", "The cluster is as the spec wants it.", converged, rule.Rests).Quiet(),
		},
		record: epochs.Advance, claims: listedClaims, pods: listedPods,
	},
}

// modeOf is the first of the modes that a cluster is in.
func modeOf(v *state.View) *mode { return firstMode(v, modes) }

// modeOfNext is that of an epoch that is to take over. It is not held back: nothing is asked of it then.
func modeOfNext(v *state.View) *mode { return firstMode(v, modes[1:]) }

func firstMode(v *state.View, among []mode) *mode {
	return &among[slices.IndexFunc(among, func(m mode) bool { return m.is(v) })]
}

func unrecorded(v *state.View) bool { return v.Epoch == nil || v.Epoch.Record == nil }

func unprovisioned(v *state.View) bool { return !v.Epoch.Provisioned() }

func unstarted(v *state.View) bool { return v.Etcd == nil && !v.Epoch.HadQuorum() }

func membersSilent(v *state.View) bool { return v.Etcd == nil }

func quorateNow(v *state.View) bool { return v.Etcd != nil }

// paused reports whether members should be stopped and kept. Beside foreign members they would be missed, so they
// leave.
func paused(v *state.View) bool { return v.Replicas == 0 && !v.BesideForeign() }

func noRecord(*state.View, *decision.Verdict) *corev1.ConfigMap { return nil }

func noPods(*state.View, *decision.Verdict) []*corev1.Pod { return nil }

func allClaims(v *state.View, _ *decision.Verdict) []*corev1.PersistentVolumeClaim {
	return volumes.KeptClaims(v, v.Names)
}

func allPods(v *state.View, _ *decision.Verdict) []*corev1.Pod { return children.KeptPods(v, v.Names) }

func lastPods(v *state.View, _ *decision.Verdict) []*corev1.Pod {
	return children.KeptPods(v, protectingPods(v))
}

// Rule is one of a cluster's.
type Rule = rule.Rule[*state.View, *decision.Verdict]

// Mode documents a mode.
type Mode struct {
	// Name is that of Decision.Mode.
	Name string
	// Why is a sentence.
	Why string
	// Rules are asked in this order.
	Rules []Rule
}

// Modes are all modes in order.
func Modes() []Mode {
	var all []Mode
	for _, m := range modes {
		all = append(all, Mode{m.name, m.why, m.rules})
	}
	return all
}

// Rules are all rules, in the order of the modes; one that is asked in several is at its first place.
func Rules() []Rule {
	var all []Rule
	for _, m := range modes {
		for _, r := range m.rules {
			if !slices.ContainsFunc(all, func(o Rule) bool { return o.Name == r.Name }) {
				all = append(all, r)
			}
		}
	}
	return all
}
