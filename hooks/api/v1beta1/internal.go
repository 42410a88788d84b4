package v1beta1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InternalStatus is what Quorate remembers from one call to the next. It is no part of the API, and changes without
// notice. Without it Quorate only waits longer, tries again sooner, or forgets what it has asked people.
type InternalStatus struct {
	// Restoring are the URLs of artifacts that the members of an epoch restore; none once they have had a quorum. It
	// keeps the EtcdSnapshots of these artifacts from being deleted.
	// +optional
	// +listType=set
	Restoring []string `json:"restoring,omitempty"`

	// Awaited are objects that Quorate has asked Kubernetes for and does not see. One that is here for more than 10
	// seconds was refused, by a quota or an admission policy, say.
	// +optional
	// +listType=atomic
	Awaited []AwaitedStatus `json:"awaited,omitempty"`

	// Replacement is about learners that did not catch up, and about voters that were given up.
	// +optional
	Replacement *ReplacementStatus `json:"replacement,omitempty"`

	// Watched is the time for which Quorate has looked without a gap. By it Quorate counts how long a member has not
	// served or the quorum has been lost. It is only there while something of the kind is counted.
	// +optional
	Watched *WatchedStatus `json:"watched,omitempty"`

	// ClockTime is what Quorate's clock said when it last asked the API server for the time, by writing this.
	// +optional
	ClockTime metav1.Time `json:"clockTime,omitzero"`

	// Defragmentation is about the run in status.defragmentation.
	// +optional
	Defragmentation DefragmentationMemory `json:"defragmentation,omitzero"`

	// EarlierLife are the claims of an earlier EtcdCluster of this name that were seen before there was a record: until
	// spec.bootstrap says which data is meant, the cluster does not begin, also when they are gone.
	// +optional
	// +listType=set
	EarlierLife []string `json:"earlierLife,omitempty"`

	// Leadership is about spec.leadership.
	// +optional
	Leadership LeadershipMemory `json:"leadership,omitzero"`

	// AppliedAuth is a hash of the users and roles that etcd was last made to match.
	// +optional
	AppliedAuth string `json:"appliedAuth,omitempty"`
}

// AwaitedStatus is an object that Quorate has asked Kubernetes for, in the namespace of the EtcdCluster.
type AwaitedStatus struct {
	// Kind of the object, such as Pod.
	// +required
	Kind string `json:"kind"`

	// Name of the object.
	// +required
	Name string `json:"name"`

	// RequestTime is when it was first asked for.
	// +required
	RequestTime metav1.Time `json:"requestTime"`
}

// DefragmentationMemory is about a run of defragmentation.
type DefragmentationMemory struct {
	// Compacted is the revision that the keys were compacted to, in a run because of the alarm NOSPACE.
	// +optional
	Compacted int64 `json:"compacted,omitempty"`

	// LastMemberTime is when a member was last defragmented: the next one follows after a pause.
	// +optional
	LastMemberTime metav1.Time `json:"lastMemberTime,omitzero"`

	// Before is the size that the database of the last member had before, until that member tells what it is now.
	// +optional
	Before *resource.Quantity `json:"before,omitempty"`
}

// LeadershipMemory is about moves of the leadership. Without it the next one may come sooner.
type LeadershipMemory struct {
	// NextMoveTime is when Quorate may move the leadership again for spec.leadership.
	// +optional
	NextMoveTime metav1.Time `json:"nextMoveTime,omitzero"`

	// Pause is how long it stayed where it is after the last move.
	// +optional
	Pause metav1.Duration `json:"pause,omitzero"`

	// SlowDisks are voters with a slow disk, for ten minutes at least.
	// +optional
	// +listType=map
	// +listMapKey=name
	SlowDisks []SlowDisk `json:"slowDisks,omitempty"`
}

// SlowDisk is a voter's disk that was found to be slow.
type SlowDisk struct {
	// Name of the member.
	// +required
	Name string `json:"name"`

	// StartTime is when it was found.
	// +required
	StartTime metav1.Time `json:"startTime"`

	// Sync is how long it took then to sync etcd's log, and OthersSync how long a quorum takes without it.
	// +required
	Sync metav1.Duration `json:"sync"`
	// +required
	OthersSync metav1.Duration `json:"othersSync"`
}

// ReplacementStatus is what Quorate remembers about learners that did not catch up, and about voters that were given
// up. Without it the next one is only tried, or given up, sooner.
type ReplacementStatus struct {
	// Failures is the number of learners in a row that did not catch up.
	// +optional
	Failures int32 `json:"failures,omitempty"`

	// Learner is the last one that was counted. Quorate removes it once its name is here.
	// +optional
	Learner string `json:"learner,omitempty"`

	// Spare is whether that one was to be a spare: what voters wait for is not counted with those.
	// +optional
	Spare bool `json:"spare,omitempty"`

	// CutOff is the learner that has caught up and that does not get what the leader writes now. It has as long to get
	// that as it has for catching up.
	// +optional
	CutOff string `json:"cutOff,omitempty"`

	// CutOffTime is since when.
	// +optional
	CutOffTime metav1.Time `json:"cutOffTime,omitzero"`

	// NextLearnerTime is when the next learner may be added.
	// +optional
	NextLearnerTime metav1.Time `json:"nextLearnerTime,omitzero"`

	// GivenUp is the number of voters that were given up in a row: each less than an hour after the pause that
	// followed the one before.
	// +optional
	GivenUp int32 `json:"givenUp,omitempty"`

	// Voter is the last of them. Quorate removes it once its name is here.
	// +optional
	Voter string `json:"voter,omitempty"`

	// NextReplacementTime is when the next one may be given up.
	// +optional
	NextReplacementTime metav1.Time `json:"nextReplacementTime,omitzero"`
}

// WatchedStatus is a time in which Quorate has looked at the cluster without a gap. After a gap, such as an outage of
// Metacontroller, a new one begins. Without it every wait begins again.
type WatchedStatus struct {
	// StartTime is that of the first look.
	// +optional
	StartTime metav1.Time `json:"startTime,omitzero"`

	// LastProbeTime is that of the last look. It is written once in two resync periods, so that the status seldom
	// changes.
	// +optional
	LastProbeTime metav1.Time `json:"lastProbeTime,omitzero"`
}
