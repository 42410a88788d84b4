package rules

import (
	"slices"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
)

// Rule is one of a cluster's.
type Rule = decision.Rule[*facts.Facts, *decision.Plan]

// Mode is what may be done while a cluster is in it: the rules that are asked. What becomes of the record, the claims
// and the pods meanwhile is in children.go, and a rule says only what differs from that.
type Mode struct {
	Name string
	// Why is the sentence that documents the mode.
	Why string
	// Rules are asked in this order until one applies. The last one always does.
	Rules decision.Rules[*facts.Facts, *decision.Plan]
}

// Rules that are asked in several modes.
var (
	// Waits: a pod is the last that keeps a claim from being deleted
	pauseRule = decision.NewRule("Pause",
		"replicas 0 stops all members and keeps their data; a pod that alone keeps a claim from being deleted "+
			"stays.", pause, decision.Works, decision.Rests, decision.Waits)
	// Waits: one that others keep is there and can't be used; one that is not there may be on its way
	certificatesRule = decision.NewRule("WaitForCertificates",
		"No member is begun or changed before the certificates of members and of Quorate are there and in order "+
			"(S19); pods of members that have run are brought back all the same, with Secrets that "+
			"have the cluster's label.",
		waitForCertificates, decision.Works, decision.Waits)
	// Waits: the data can't be restored
	epochRule = decision.NewRule("SwitchEpoch",
		"The next epoch takes over from this one in moves that are written on its record: its members' data is "+
			"made ready, this epoch is stopped, and only when nothing of that is left the next one begins (S8).",
		switchEpoch, decision.Works, decision.Waits)
	wrongClusterRule = decision.NewRule("WrongCluster",
		"An answer from another cluster, by the recorded ID or because it lists none of our members that have run, "+
			"is not ours to act on (S8).", wrongCluster, decision.Waits).Holding()
	// Waits: the external etcd does not suit
	joinRule = decision.NewRule("Join",
		"Before the members join an external etcd, a quorum of it must answer and suit them; which cluster that "+
			"is, is recorded first (S8).", join, decision.Works, decision.Waits)
	// Waits: what the policy asks for can't be done
	recoverRule = decision.NewRule("Recover",
		"With the quorum's data lost, the next epoch is recorded, by spec.recovery after a while or when a person "+
			"asks for it: from the survivor that has the most, from a snapshot, or without data (S8).",
		recoverQuorum, decision.Works, decision.Waits)
	restoreRule = decision.NewRule("Restore",
		"An EtcdOperation of type Restore has the next epoch recorded; this one runs on until its data is ready (S8).",
		restore)
	// Works: the next epoch is being made ready
	lostRule = decision.NewRule("QuorumLost",
		"With fewer volumes left than a quorum needs, what is left is kept running and a person decides (S8).",
		quorumLost, decision.Waits, decision.Works).Holding()
)

// Modes are all of them, in the order of facts.Mode. Only with a quorum's answer in hand there are changes of members:
// finish the one that is under way, heal, shrink, grow.
var Modes = []Mode{
	{
		Name: facts.ModeHeldBack,
		Why:  "A person holds every change back, or an answer could not be followed: every child stays as it is.",
		Rules: decision.Rules[*facts.Facts, *decision.Plan]{
			// Aside: held back is what the rules after it would do: if they would do something, it waits for a person
			decision.NewRule("Suspended", "spec.suspend holds every change back; members run on as they are.",
				suspended, decision.Aside).Holding(),
			decision.NewRule("Unsupported",
				"A spec that can't be run changes nothing; the message says what to correct.",
				unsupported, decision.Waits).Holding(),
			decision.NewRule("RecordRefused",
				"Nothing is changed by a record that no key of the installation has sealed as it is, or that can't be "+
					"read (S8). While etcd answers, its own record is written again, and one of a later epoch goes.",
				recordRefused, decision.Waits).Holding(),
			// Works: by dynamic-apply it ends with the next call
			decision.NewRule("ApplyStrategy",
				"Nothing is changed while a child lacks the annotation of what Metacontroller applied last: "+
					"--apply-strategy=server-side-apply removes it, and Quorate refuses that strategy.",
				applyStrategy, decision.Works, decision.Waits).Holding(),
		},
	},
	{
		Name: facts.ModeStopping,
		Why:  "The next epoch takes over: none of the pods of this one comes back, and its volumes are kept.",
		Rules: decision.Rules[*facts.Facts, *decision.Plan]{
			pauseRule,
			certificatesRule,
			epochRule,
		},
	},
	{
		Name: facts.ModeUnrecorded,
		Why:  "No record says who the members are: what is there stays.",
		Rules: decision.Rules[*facts.Facts, *decision.Plan]{
			// replicas 0 asks for nothing
			decision.NewRule("ScaledToZero", "A cluster with replicas 0 that never began makes nothing yet.", scaledToZero, decision.Rests),
			// Works: a snapshot to begin with may still be on its way
			decision.NewRule("RecordEpoch",
				"The epoch record is written first: its creation decides once who the initial members are (S8).",
				recordEpoch, decision.Works, decision.Waits),
		},
	},
	{
		Name: facts.ModePaused,
		Why:  "replicas is 0: every claim stays, and no pod.",
		Rules: decision.Rules[*facts.Facts, *decision.Plan]{
			pauseRule,
		},
	},
	{
		Name: facts.ModeCreatingVolumes,
		Why:  "The record names the initial members, and not yet what they start on.",
		Rules: decision.Rules[*facts.Facts, *decision.Plan]{
			certificatesRule,
			epochRule,
			// Waits: too few nodes are named
			decision.NewRule("CreateVolumes",
				"What the initial members start on (claims, or memory pods held back) is made, then recorded by "+
					"UID, and on HostPath their nodes are; after that it is never made again (S10).",
				createVolumes, decision.Works, decision.Waits),
		},
	},
	{
		Name: facts.ModeStarting,
		Why:  "The initial members may start, and have never had a quorum.",
		Rules: decision.Rules[*facts.Facts, *decision.Plan]{
			certificatesRule,
			epochRule,
			wrongClusterRule,
			joinRule,
			recoverRule,
			restoreRule,
			lostRule,
			decision.NewRule("Reschedule",
				"Before the first quorum, a pod that can't go on as it was made, and would be made otherwise now, is "+
					"replaced, one at a time.", reschedule),
			// Waits: not started in time, or can't be
			decision.NewRule("Start",
				"The initial members start together; nothing else happens before they first have quorum.",
				start, decision.Works, decision.Waits),
		},
	},
	{
		Name: facts.ModeBlind,
		Why: "A cluster that has run does not answer: its pods are kept or brought back, and nothing else is " +
			"changed (S11).",
		Rules: decision.Rules[*facts.Facts, *decision.Plan]{
			certificatesRule,
			epochRule,
			wrongClusterRule,
			recoverRule,
			restoreRule,
			lostRule,
			// Works: pods and nodes come back. Waits: too many members must be restarted
			decision.NewRule("Blind",
				"Without an answer from a quorum nothing is changed; pods are only brought back (S11).",
				blind, decision.Works, decision.Waits).Holding(),
		},
	},
	{
		Name: facts.ModeHasQuorum,
		Why:  "A quorum has answered in this call: by its list of members there are pods and claims.",
		Rules: decision.Rules[*facts.Facts, *decision.Plan]{
			certificatesRule,
			epochRule,
			joinRule,
			restoreRule,
			decision.NewRule("NoLeader", "While no leader is known nothing is changed.", noLeader).Holding(),
			decision.NewRule("ReserveName", "Before a member's last trace goes, its number is recorded as used (S9).",
				reserveName),
			// Waits: whose data is right is not proven
			decision.NewRule("Corrupt",
				"While members' data differs (alarm CORRUPT) no member joins and nothing else is changed; a voter "+
					"that a quorum of equal hashes proves wrong is replaced, and without that proof a person decides "+
					"(S6).", corrupt, decision.Works, decision.Waits).Holding(),
			decision.NewRule("LearnerLost",
				"A learner whose data is gone is removed; the next one gets a new name (S9, S10).", learnerLost),
			decision.NewRule("LearnerSurplus",
				"A learner that is no longer wanted is removed, and on Memory one that was made from an outdated "+
					"template; so is a spare that can't be made as the others are.", learnerSurplus),
			decision.NewRule("Promote",
				"A learner that answered in this call, has caught up and has its volume becomes a voter (S5); a spare "+
					"when one is missing.", promote),
			decision.NewRule("CancelDowngrade",
				"A downgrade that is no longer wanted is cancelled in etcd before anything else: it would keep "+
					"members of the wanted version from starting (S18).", cancelDowngrade),
			decision.NewRule("RecordVersion",
				"Another patch release is the members' version from now on; so is the minor version that they come "+
					"from, while the cluster has not agreed on the new one (S18).", recordVersion),
			// Waits: as Replace does
			decision.NewRule("ReplaceFirst",
				"A voter whose data is lost is removed before a learner that does not serve has started: its etcd "+
					"would look for the voter's name (S3, S6).", replaceFirst, decision.Works, decision.Waits),
			decision.NewRule("Fence",
				"A member that an EtcdOperation of type Fence names is stopped and stays a member, while "+
					"the others can do without it (S1); which pod that takes is recorded first (S2).", fence),
			decision.NewRule("LearnerOverdue",
				"A learner that has not caught up in time, or is cut off from the leader for as long, is counted, and "+
					"then removed; the next one gets a new name, after a pause that grows from failure to "+
					"failure (S9).", learnerOverdue),
			decision.NewRule("RecreatePod",
				"A pod that is down and was made from an outdated template, or in the wrong way, is replaced, one "+
					"at a time (S2), and so is one that can't hear the others because it does not trust their "+
					"authority; a learner's also while it serves. Which pod goes is recorded first.", recreatePod),
			// Waits: it is an unmanaged member's, or answers as another member
			decision.NewRule("LearnerCatchingUp",
				"While a learner catches up, or a spare does not serve, no other member is added or removed (S3).",
				learnerCatchingUp, decision.Works, decision.Waits),
			decision.NewRule("WaitForRemoved",
				"The pod of a removed member must be gone before the next change of members, and stop before another voter "+
					"that is too many is removed (S3).", waitForRemoved),
			// Waits: those who would have to serve first wait for a person
			decision.NewRule("Replace",
				"A voter whose data is lost is removed while the rest has quorum; growth brings its successor. One "+
					"that still serves stays until its successor votes (S6, S10).", replace, decision.Works, decision.Waits),
			// Waits: only unmanaged members are left to remove
			decision.NewRule("Shrink",
				"Voters above the wanted number are removed one by one: not serving first, then followers, the "+
					"leader last (S6).", shrink, decision.Works, decision.Waits),
			decision.NewRule("ReplaceUnreachable",
				"A voter that has not served for longer than spec.memberReplacement.after is removed while the "+
					"rest has quorum, and growth brings its successor; its claim is marked first, and kept for a "+
					"while; after others in a row, it is removed after a pause that grows with their number (S6, S7).",
				replaceUnreachable, decision.Works, decision.Waits),
			// Waits: there is no node, a downgrade is open, or a person decides about a member that is unreachable
			decision.NewRule("Grow",
				"A missing voter joins as a learner under a new name, while all others serve and the pause after "+
					"one that did not catch up is over (S3, S4, S9). Claims and pods of all that are missing are "+
					"made before.", grow, decision.Works, decision.Waits),
			decision.NewRule("RemoveExternal",
				"Once spec.removeExternalMembers is true, the members that are not ours are removed one "+
					"by one while all others serve: not serving first, then followers, the leader last (S6).",
				removeExternal, decision.Works, decision.Waits),
			// Waits: something of the spec is not done before the external members are gone
			decision.NewRule("ExternalMembers",
				"While there are members that are not ours, nothing but what is above is changed.",
				externalMembers, decision.Rests, decision.Works, decision.Waits),
			decision.NewRule("MoveLeader", "The leadership goes to the voter that an EtcdOperation names.", moveLeader),
			decision.NewRule("LeaveSlowDisk",
				"The leadership leaves a voter whose disk takes four times as long as a quorum needs without it, and 40 ms "+
					"or more; every ten minutes at most.", leaveSlowDisk),
			decision.NewRule("Authorize",
				"etcd's users and roles are made as the spec declares them, grants before revokes; their names are "+
					"recorded first (S20).", authorize),
			// Waits: a person decides about a member, has fenced it, or must take a change back that does not work
			decision.NewRule("WaitForMembers", "All members are there, but not all of them serve, or a pod of theirs stops.",
				waitForMembers, decision.Works, decision.Waits),
			// Waits: an image holds another version than its tag says
			decision.NewRule("RollingUpdate",
				"Members that are not as the spec wants them are restarted one at a time, the leader last, and "+
					"which pod is next is recorded first; a member that does not come back stops that (S2, S19).",
				rollingUpdate, decision.Works, decision.Waits),
			decision.NewRule("UpdatePeerURLs",
				"Once every member can dial by TLS, one voter after the other is listed with its https URL, and "+
					"restarted before the next (S4).", updatePeerURLs),
			decision.NewRule("NoSpace",
				"Databases that have reached their quota (alarm NOSPACE) are compacted and defragmented one at a "+
					"time, and the alarm is disarmed once all are below 90 %; every ten minutes at most.", noSpace),
			// upkeep
			decision.NewRule("Defragment",
				"By a schedule, when asked, or when a database with free space is at 90 % of its quota, members give "+
					"free space back to the file system, one at a time and the leader last, while all serve (S2).",
				defragment, decision.Aside),
			// Waits: the way is refused
			decision.NewRule("Upgrade",
				"The next version on the way to the wanted one, a minor version at a time, is recorded once all "+
					"members run the one before; downwards by etcd's own protocol (S18).",
				upgrade, decision.Works, decision.Waits),
			decision.NewRule("Resize",
				"Volumes grow to the wanted size beside everything else, all at once; their members are restarted "+
					"when they have.", resize),
			decision.NewRule("PreferZone",
				"From a leader outside of spec.leadership.preferredZones the leadership goes to a voter in one; every ten "+
					"minutes at most.", preferZone),
			decision.NewRule("OutOfSpace",
				"An alarm NOSPACE that no compaction and no defragmentation can clear waits for a larger quota or "+
					"for less data.", outOfSpace, decision.Waits),
			decision.NewRule("VolumePending",
				"Volumes that can't become what the spec asks for stay as they are, or, with migration Replace, "+
					"their members are succeeded by new ones while the data fits.", volumePending, decision.Waits),
			// Waits: the data can't be restored
			decision.NewRule("PrepareRestore",
				"The cluster is as the spec wants it, and does not have the data that an EtcdOperation asks for: "+
					"the next epoch is being made ready, or can't be.", prepareRestore, decision.Works, decision.Waits),
			// Waits: the snapshot failed
			decision.NewRule("WaitForSnapshot",
				"Another minor version begins once a schedule has taken a verified snapshot.",
				waitForSnapshot, decision.Works, decision.Waits),
			// Waits: there is no place for its pod
			decision.NewRule("AddSpare",
				"With all voters there, and nothing else to do, a learner joins that stays one (spec.spares): its pod waits "+
					"where it will run before etcd lists it (S3, S4, S9).", addSpare, decision.Works, decision.Waits),
			// Waits: no window ever opens
			decision.NewRule("WaitForWindow",
				"All serve, and what is left to do disturbs members and can wait: it begins when a window of "+
					"spec.maintenance.windows opens.", waitForWindow, decision.Rests, decision.Waits),
			decision.NewRule("Converged", "The cluster is as the spec wants it.", converged, decision.Rests).Quiet(),
		},
	},
}

// modeOf is the one that a cluster is in.
func modeOf(f *facts.Facts) *Mode {
	is := f.Mode()
	return &Modes[slices.IndexFunc(Modes, func(m Mode) bool { return m.Name == is })]
}

// All are all rules, in the order of the modes; one that is asked in several is at its first place.
func All() []Rule {
	var all []Rule
	for _, m := range Modes {
		for _, r := range m.Rules {
			if !slices.ContainsFunc(all, func(o Rule) bool { return o.Name == r.Name }) {
				all = append(all, r)
			}
		}
	}
	return all
}
