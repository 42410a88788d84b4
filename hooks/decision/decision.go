// Package decision is what a call decides: the step in etcd, the children that should exist, and what is said of it.
// It knows no rule.
package decision

import (
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/rule"
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
	Status v1alpha1.EtcdClusterStatus
	// ResyncAfter is when to ask again at the latest; 0 leaves it to the controller's resync period.
	ResyncAfter time.Duration
	// Mode is the name of the mode that the cluster is in: one of Modes.
	Mode string
	// Reason is the rule that fired.
	Reason rule.Reason
	// Quiet: there is nothing to tell.
	Quiet bool
	// Outlook is what the rule says of what comes next, before the rules after it are asked (Aside).
	Outlook rule.Outlook
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
	rule.Outlook
	Reason, Message string
}

// DefragmentationRun is a run of defragmentation: what the status says of it, and what Quorate remembers beside that.
type DefragmentationRun struct {
	v1alpha1.DefragmentationStatus
	v1alpha1.DefragmentationMemory
}

// Told is the run as the status has it; nil when nothing was ever done.
func (r *DefragmentationRun) Told() (*v1alpha1.DefragmentationStatus, v1alpha1.DefragmentationMemory) {
	switch {
	case r == nil:
		return nil, v1alpha1.DefragmentationMemory{}
	case reflect.ValueOf(r.DefragmentationStatus).IsZero():
		return nil, r.DefragmentationMemory
	}
	return &r.DefragmentationStatus, r.DefragmentationMemory
}

// Verdict is what a rule says.
type Verdict struct {
	Message string
	Step    Step
	// DeletePod names the pod that should be deleted now so that it is made again; empty for none.
	DeletePod string
	// PatchImage names the pod whose image should be exchanged now; empty for none.
	PatchImage string
	// Choose is the restart or removal that the record is to name; without a name it is left.
	Choose record.Choice
	// Withdraw names the chosen voter for which others wait, and whose restart is withdrawn; empty for none.
	Withdraw string
	// Leaving names the voters that clients are led away from.
	Leaving []string
	// Failed names the member that is given up, whose claim gets this failure as its mark; empty for none.
	Failed, Failure string
	// Version that the record is to say from now on; empty leaves it.
	Version string
	// Snapshotted: the log that etcd 3.5 wrote lies before a snapshot on every member's disk.
	Snapshotted bool
	// DefragRun is what the status is to say of a run of defragmentation; nil leaves it.
	DefragRun *DefragmentationRun
	// NextRecord is the record of the next epoch, to be made; phase and survivor are what the record that there is is
	// to say from now on. See epochs/succession.go.
	NextRecord      *corev1.ConfigMap
	Phase, Survivor string
	// Outlook is what to expect of it, where the rule may have several: see cluster/outlook.go.
	Outlook rule.Outlook
	// Resync is how soon to ask again at first; 0 leaves it to the controller's resync period. Due is in how long a
	// time is over that the rule waits for; 0 or less for none. See cluster/resync.go.
	Resync rule.Pause
	Due    time.Duration
}
