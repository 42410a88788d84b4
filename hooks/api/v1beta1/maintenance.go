package v1beta1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReplacementPolicy says who replaces a member that does not serve for too long.
// +kubebuilder:validation:Enum=Automatic;Manual
type ReplacementPolicy string

const (
	// ReplaceAutomatic lets Quorate replace it.
	ReplaceAutomatic ReplacementPolicy = "Automatic"
	// ReplaceManual has Quorate say so and wait for a person. Members whose data is lost are replaced all the same:
	// there is nothing left to wait for.
	ReplaceManual ReplacementPolicy = "Manual"
)

// MemberReplacement says when a member that does not serve is given up.
type MemberReplacement struct {
	// Policy is Automatic or Manual.
	// +optional
	// +default="Automatic"
	Policy ReplacementPolicy `json:"policy,omitempty"`

	// After is how long a member may fail to serve before it is replaced, while the others have quorum. A learner has
	// this time to catch up, and one minute more for each GiB of data.
	// +optional
	// +default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('30s')",message="memberReplacement.after must be at least 30s: a restart of a node's kubelet takes that long"
	After metav1.Duration `json:"after,omitzero"`

	// KeepVolumesFor is how long the claim of a replaced member is kept, with its data, before it is deleted. It
	// carries the annotation etcd.quorate.dev/quarantined. 0s deletes it at once.
	// +optional
	// +default="24h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="memberReplacement.keepVolumesFor can't be negative"
	KeepVolumesFor *metav1.Duration `json:"keepVolumesFor,omitempty"`
}

// Maintenance is what Quorate does from time to time, and when it may disturb members.
type Maintenance struct {
	// Windows are the times in which changes that can wait begin: restarts, upgrades and scheduled defragmentations.
	// Without any, these begin at any time. What heals, scales, restores or renews certificates waits for no window.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []MaintenanceWindow `json:"windows,omitempty"`

	// Defragmentation gives the free space in the database files back to the file system.
	// +optional
	Defragmentation *Defragmentation `json:"defragmentation,omitempty"`
}

// MaintenanceWindow is a time that comes again and again. A change that has begun for a member is finished, also after
// the window closes.
type MaintenanceWindow struct {
	// Schedule says when the window opens, in the five fields of cron, such as "0 2 * * 6". When clocks change, it
	// follows the rules of spec.schedule of an EtcdSnapshotSchedule.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9*/,-]+ +){3}[0-9A-Za-z*/,-]+ +[0-9A-Za-z*/,-]+$')",message="maintenance.windows.schedule has five fields, minute, hour, day of the month, month and day of the week, such as \"0 2 * * 6\""
	Schedule string `json:"schedule"`

	// Duration is how long the window stays open, between 10m and 168h (a week).
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10m') && duration(self) <= duration('168h')",message="maintenance.windows.duration must be between 10m and 168h"
	Duration metav1.Duration `json:"duration"`

	// TimeZone that the schedule is read in, such as Europe/Berlin. Unset, UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[-+_/0-9A-Za-z]*$`
	TimeZone string `json:"timeZone,omitempty"`
}

// Defragmentation gives the free space in the database files back, one member at a time, the leader last. Meanwhile
// that member does not answer: about a second per 100 MB.
type Defragmentation struct {
	// Schedule in the five fields of cron, in UTC, such as "0 3 * * 0". Empty: only when an EtcdOperation of type
	// Defragment asks, or a database comes near its quota.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([0-9*/,-]+ +){3}[0-9A-Za-z*/,-]+ +[0-9A-Za-z*/,-]+)?$')",message="maintenance.defragmentation.schedule has five fields, minute, hour, day of the month, month and day of the week, such as \"0 3 * * 0\""
	Schedule string `json:"schedule,omitempty"`

	// FragmentationPercent is how much of a database file, in percent, must be free before the schedule defragments the
	// member. minReclaim must be free as well.
	// +optional
	// +default=50
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	FragmentationPercent *int32 `json:"fragmentationPercent,omitempty"`

	// MinReclaim is how much space must be free in the file before the schedule defragments the member.
	// +optional
	// +default="100Mi"
	MinReclaim *resource.Quantity `json:"minReclaim,omitempty"`
}

// DefragmentationTrigger is what began a run of defragmentation.
// +kubebuilder:validation:Enum=Schedule;Request;NearQuota;NoSpace
type DefragmentationTrigger string

const (
	// TriggerSchedule is spec.maintenance.defragmentation.schedule.
	TriggerSchedule DefragmentationTrigger = "Schedule"
	// TriggerRequest is an EtcdOperation of type Defragment.
	TriggerRequest DefragmentationTrigger = "Request"
	// TriggerNearQuota is a database at 90 % of its quota, a tenth of it free or more.
	TriggerNearQuota DefragmentationTrigger = "NearQuota"
	// TriggerNoSpace is etcd's alarm NOSPACE.
	TriggerNoSpace DefragmentationTrigger = "NoSpace"
)

// DefragmentationStatus is about a run of defragmentation: the one under way, or the last. When it is lost, a run is
// only repeated, or begins sooner.
type DefragmentationStatus struct {
	// Trigger is what began the run.
	// +optional
	Trigger DefragmentationTrigger `json:"trigger,omitempty"`

	// StartTime is when the run began.
	// +optional
	StartTime metav1.Time `json:"startTime,omitzero"`

	// CompletionTime is when it ended; unset while it is under way.
	// +optional
	CompletionTime metav1.Time `json:"completionTime,omitzero"`

	// Request is the UID of the EtcdOperation of type Defragment that was last answered with a run.
	// +optional
	Request string `json:"request,omitempty"`

	// Done are the members that the run has defragmented.
	// +optional
	// +listType=atomic
	Done []string `json:"done,omitempty"`

	// Reclaimed is what the run has given back to the file systems, all members together.
	// +optional
	Reclaimed *resource.Quantity `json:"reclaimed,omitempty"`

	// NextScheduleTime is when the schedule begins the next run.
	// +optional
	NextScheduleTime metav1.Time `json:"nextScheduleTime,omitzero"`
}

// VolumeStatus is a member's volume while it is not what the spec asks for.
type VolumeStatus struct {
	// Wanted is the size that the spec asks for.
	// +optional
	Wanted *resource.Quantity `json:"wanted,omitempty"`

	// Capacity is the size that the volume has.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`

	// RequestTime is when the API server was asked to let the claim grow to wanted. It has refused a claim that does
	// not follow within seconds; Quorate asks again after 10 minutes.
	// +optional
	RequestTime metav1.Time `json:"requestTime,omitzero"`

	// Message says what the volume waits for.
	// +optional
	Message string `json:"message,omitempty"`
}

// HistoryEntry is one decision.
type HistoryEntry struct {
	// Time of the decision.
	Time metav1.Time `json:"time"`

	// Rule that decided.
	Rule string `json:"rule"`

	// Step that was carried out in etcd, or tried; empty for none.
	// +optional
	Step string `json:"step,omitempty"`

	// Message of the rule, or the error of the step.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}
