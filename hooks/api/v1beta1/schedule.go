package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdSnapshotSchedule takes EtcdSnapshots by the clock, and deletes old ones.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=qsched,categories=all;quorate
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.template.spec.clusterRef.name`
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="Suspended",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Last-Success",type=date,JSONPath=`.status.lastSuccess.time`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduleTime`
// +kubebuilder:printcolumn:name="Kept",type=integer,JSONPath=`.status.kept`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name is too long: snapshots have it as a label; use 63 characters at most"
type EtcdSnapshotSchedule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is when to take snapshots of what, and how many to keep.
	// +required
	Spec EtcdSnapshotScheduleSpec `json:"spec"`

	// Status is what came of it.
	// +optional
	// +default={"observedGeneration": -1}
	Status EtcdSnapshotScheduleStatus `json:"status,omitzero"`
}

// EtcdSnapshotScheduleList is a list of EtcdSnapshotSchedules.
//
// +kubebuilder:object:root=true
type EtcdSnapshotScheduleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EtcdSnapshotSchedule `json:"items"`
}

// EtcdSnapshotScheduleSpec is when to take snapshots of what, and how many to keep.
//
// +kubebuilder:validation:XValidation:rule="!has(self.stream) || !has(self.template.spec.verify) || self.template.spec.verify",message="stream needs template.spec.verify: changes are stored from a verified snapshot on"
type EtcdSnapshotScheduleSpec struct {
	// Schedule in the five fields of cron, such as "0 */6 * * *". When clocks go forward, a run in the time that they
	// skip happens at that moment. When they go back, a run in the repeated time happens the first time only. With
	// every hour in the second field, it follows the time that passes. A run waits until the snapshot before is
	// finished; of those that were missed, the latest alone is taken.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9*/,-]+ +){3}[0-9A-Za-z*/,-]+ +[0-9A-Za-z*/,-]+$')",message="schedule has five fields, minute, hour, day of the month, month and day of the week, such as \"0 */6 * * *\""
	Schedule string `json:"schedule"`

	// TimeZone that the schedule is read in, such as Europe/Berlin. Unset, UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[-+_/0-9A-Za-z]*$`
	TimeZone string `json:"timeZone,omitempty"`

	// Suspend takes and deletes no snapshots, and stops the stream. When it ends, one snapshot is taken for all runs
	// that were missed.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// SkipUnchanged takes no snapshot while cluster, keys, users and roles are those of the last one that succeeded.
	// Set it to false when something other than this schedule deletes what is stored, such as a rule of the bucket.
	// +optional
	// +default=true
	SkipUnchanged *bool `json:"skipUnchanged,omitempty"`

	// Retention says which snapshots are kept. A snapshot that one rule keeps is kept; without any rule, all stored
	// ones are.
	// +optional
	Retention Retention `json:"retention,omitzero"`

	// DeletionPolicy says what becomes of the snapshots of this schedule when it is deleted. Retain (the default)
	// leaves them. Delete deletes them; their own deletionPolicy says what becomes of what is stored.
	// +optional
	// +default="Retain"
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// Stream stores all changes between the snapshots too, so that a restore can end at any revision. A pod
	// does so, from a verified snapshot on; the first is taken at once. Unset, what was written after the last snapshot
	// is lost with the quorum.
	// +optional
	Stream *Stream `json:"stream,omitempty"`

	// Template of the snapshots. With deletionPolicy Delete in its spec, what is stored goes with a snapshot that
	// retention lets go.
	// +required
	Template EtcdSnapshotTemplate `json:"template"`
}

// Stream is how changes are stored between snapshots: a pod watches etcd, and stores them in files beside the
// snapshots.
type Stream struct {
	// FlushAfter is how long a change waits at most before it is stored, between 1s and 10m. So much is lost with the
	// quorum.
	// +optional
	// +default="10s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="stream.flushAfter must be between 1s and 10m"
	FlushAfter metav1.Duration `json:"flushAfter,omitzero"`
}

// EtcdSnapshotTemplate is what every EtcdSnapshot of a schedule is made of.
type EtcdSnapshotTemplate struct {
	// Spec of each.
	// +required
	Spec EtcdSnapshotSpec `json:"spec"`
}

// Retention says which snapshots of a schedule are kept. The newest that is stored, the newest that succeeded, and
// the newest that was verified always are, and so is one that an EtcdCluster restores.
type Retention struct {
	// Last is how many of the newest snapshots that are stored are kept.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Last *int32 `json:"last,omitempty"`

	// MaxAge keeps those that were taken less than this, such as 720h, before the newest that is stored. It counts from
	// that and not from now: while snapshots fail, the old ones stay.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="retention.maxAge must be more than 0s"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`

	// Hourly keeps the newest of each hour, for this many of the last hours that have one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Hourly *int32 `json:"hourly,omitempty"`

	// Daily keeps the newest of each day in the schedule's time zone, for this many of the last days that have one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Daily *int32 `json:"daily,omitempty"`

	// Weekly keeps the newest of each week (from Monday), for this many of the last weeks that have one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Weekly *int32 `json:"weekly,omitempty"`

	// Monthly keeps the newest of each month, for this many of the last months that have one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Monthly *int32 `json:"monthly,omitempty"`

	// Yearly keeps the newest of each year, for this many of the last years that have one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Yearly *int32 `json:"yearly,omitempty"`

	// Failed is how many of the last that failed or were skipped are kept, so that you can see why. The newest snapshot
	// always stays: it records which run was the last.
	// +optional
	// +default=3
	// +kubebuilder:validation:Minimum=0
	Failed *int32 `json:"failed,omitempty"`
}

// EtcdSnapshotScheduleStatus is what came of a schedule.
type EtcdSnapshotScheduleStatus struct {
	// ObservedGeneration is the generation of the spec that this status was made for; -1 before there is one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready, Stalled, and Streaming with spec.stream. A schedule is ready when it can be read, also while
	// it is suspended or snapshots fail.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Message says what it waits for or what is wrong.
	// +optional
	Message string `json:"message,omitempty"`

	// LastScheduleTime is the scheduled time of the last run that made a snapshot.
	// +optional
	LastScheduleTime metav1.Time `json:"lastScheduleTime,omitzero"`

	// NextScheduleTime is when the next run is due. It is unset while the schedule is suspended.
	// +optional
	NextScheduleTime metav1.Time `json:"nextScheduleTime,omitzero"`

	// Active are the names of the snapshots that are being taken.
	// +optional
	// +listType=atomic
	Active []string `json:"active,omitempty"`

	// LastSuccess is the newest snapshot that succeeded. Its time moves on while later ones are skipped because
	// nothing has changed since.
	// +optional
	LastSuccess *SnapshotReference `json:"lastSuccess,omitempty"`

	// LastVerified is the newest snapshot that was restored on trial. As with lastSuccess, everything that was written
	// before its time is in it.
	// +optional
	LastVerified *SnapshotReference `json:"lastVerified,omitempty"`

	// LastFailure is the newest snapshot that failed, or is stored and could not be verified, while none has
	// succeeded since.
	// +optional
	LastFailure *SnapshotReference `json:"lastFailure,omitempty"`

	// Kept is the number of snapshots that are stored and kept.
	// +optional
	Kept int32 `json:"kept,omitempty"`

	// Stream says what stores the changes between snapshots; unset without spec.stream, and before its first base.
	// +optional
	Stream *StreamStatus `json:"stream,omitempty"`
}

// Streaming is a condition of an EtcdSnapshotSchedule with spec.stream: True while its pod stores what changes. Its
// message says what it waits for when it is False.
const Streaming = "Streaming"

// StreamStatus is what stores the changes between snapshots.
type StreamStatus struct {
	// Pod that watches etcd.
	// +optional
	Pod string `json:"pod,omitempty"`

	// Base is the verified EtcdSnapshot that it began after.
	// +optional
	Base string `json:"base,omitempty"`

	// ClusterID of the etcd, in hexadecimal.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
}

// SnapshotReference is one snapshot of a schedule.
type SnapshotReference struct {
	// Name of the EtcdSnapshot.
	Name string `json:"name"`

	// Time up to which everything that was written is in it.
	// +optional
	Time metav1.Time `json:"time,omitzero"`

	// Revision of the keys.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// Message of a failure.
	// +optional
	Message string `json:"message,omitempty"`
}
