// Package decision is what a call decides: the step in etcd, the children that should exist, and what is said of it.
// It knows no rule.
package decision

import (
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/record"
)

// Decision is the answer to an observation: at most one step, and everything that should exist.
type Decision struct {
	// Step is the one change to etcd to make now; nil most of the time.
	Step Step
	// Children are complete: an observed child that is not among them will be deleted. A child that was observed
	// carries its UID and its observed spec (in which at most the image and the scheduling gates differ); a child
	// without UID is new.
	Children Desired
	// Status replaces the parent's status whole.
	Status v1beta1.EtcdClusterStatus
	// ResyncAfter is when to ask again at the latest; 0 leaves it to the controller's resync period.
	ResyncAfter time.Duration
	// Mode is the name of the mode that the cluster is in: one of Modes.
	Mode string
	// Reason is the rule that fired.
	Reason Reason
	// Quiet: there is nothing to tell.
	Quiet bool
	// Outlook is what the rule says of what comes next, before the rules after it are asked (Aside).
	Outlook Outlook
}

// Desired are the children that should exist, each kind sorted by name.
type Desired struct {
	Services     []*corev1.Service
	Budgets      []*policyv1.PodDisruptionBudget
	Policies     []*networkingv1.NetworkPolicy
	Secrets      []*DesiredSecret
	Certificates []*CertManagerCertificate
	ConfigMaps   []*corev1.ConfigMap
	Claims       []*corev1.PersistentVolumeClaim
	Pods         []*corev1.Pod
}

// Prospect is what people and tools are told of a decision: an outlook, with a reason and words.
type Prospect struct {
	Outlook
	Reason, Message string
}

// DefragmentationRun is a run of defragmentation: what the status says of it, and what Quorate remembers beside that.
type DefragmentationRun struct {
	v1beta1.DefragmentationStatus
	v1beta1.DefragmentationMemory
}

// Told is the run as the status has it; nil when nothing was ever done.
func (r *DefragmentationRun) Told() (*v1beta1.DefragmentationStatus, v1beta1.DefragmentationMemory) {
	switch {
	case r == nil:
		return nil, v1beta1.DefragmentationMemory{}
	case reflect.ValueOf(r.DefragmentationStatus).IsZero():
		return nil, r.DefragmentationMemory
	}
	return &r.DefragmentationStatus, r.DefragmentationMemory
}

// Plan is what a rule says: what becomes of etcd, of the records, of a pod and of a claim, the words for that, and when
// to look again. What it does not name stays as the mode has it.
type Plan struct {
	Message string
	// Outlook is what to expect of it, where the rule may have several: see rules/outlook.go.
	Outlook Outlook
	// Step is the one change in etcd.
	Step Step
	// Record is what the records are to say from now on, NextEpoch the record of another epoch, to be made; nil for
	// none.
	Record    RecordChange
	NextEpoch *corev1.ConfigMap
	// Pod is what becomes of a pod.
	Pod PodChange
	// Leaving are the voters that clients are led away from.
	Leaving []string
	// GivenUp is the member that is given up, whose claim is marked.
	GivenUp GivenUp
	// Defragmentation is what the status is to say of a run; nil leaves it.
	Defragmentation *DefragmentationRun
	// WantsSnapshot: the status is to ask for a snapshot, unless it does already.
	WantsSnapshot bool
	// Resync is how soon to ask again at first; 0 leaves it to the controller's resync period. Due is in how long a
	// time is over that the rule waits for; 0 or less for none. See answer/resync.go.
	Resync Pause
	Due    time.Duration
}

// RecordChange is what records are to say from now on. What is empty stays.
type RecordChange struct {
	// Choice is the member that is restarted or removed next.
	Choice record.Choice
	// Version of etcd that pods are made with.
	Version string
	// Snapshotted: the log that etcd 3.5 wrote lies before a snapshot on every member's disk.
	Snapshotted bool
	// Phase and Evidence are of the epoch that is to take over: how far that has come, and which survivor's volume
	// seeds it. See facts/switchover.go.
	Phase, Evidence string
}

// PodFate is what becomes of a pod.
type PodFate string

const (
	// Deleted pods are made again.
	Deleted PodFate = "Deleted"
	// Reimaged pods get another image.
	Reimaged PodFate = "Reimaged"
	// Unchosen pods are not restarted after all, because others wait.
	Unchosen PodFate = "Unchosen"
)

// PodChange is what becomes of one pod now; of none in the zero value.
type PodChange struct {
	Name string
	Fate PodFate
}

// Is reports whether this becomes of the pod of this name.
func (p PodChange) Is(fate PodFate, name string) bool { return p.Fate == fate && p.Name == name }

// GivenUp is a member that is given up; none in the zero value. Its claim gets the mark.
type GivenUp struct{ Member, Mark string }
