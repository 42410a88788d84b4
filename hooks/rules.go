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
	// deletePod names the pod that is to be deleted now so that it is made anew; empty for none.
	deletePod string
	// patchImage names the pod whose image is to be exchanged now; empty for none.
	patchImage string
	// choose is the restart or removal that the record is to name; empty leaves it.
	choose string
	// withdraw names the chosen voter for which others wait, and whose restart is withdrawn; empty for none.
	withdraw string
	// failed names the member that is given up, whose claim gets this failure as its mark; empty for none.
	failed, failure string
	// version that the record is to say from now on; empty leaves it.
	version string
	// snapshotted: the log that etcd 3.5 wrote lies before a snapshot on every member's disk.
	snapshotted bool
	// defragRun is what the status is to say of a run of defragmentation; nil leaves it.
	defragRun *v1alpha1.DefragmentationStatus
	// nextRecord is the record of the next epoch, to be made; phase and survivor are what the record that there is is
	// to say from now on. See succession.go.
	nextRecord      *corev1.ConfigMap
	phase, survivor string
	// outlook is what to expect of it, where the rule may have several: see outlook.go.
	outlook Outlook
	resync  time.Duration
}

// ---- words

// change asks for a step, or reports what became of the one that this call has taken: there is never a second (S3).
func (v *view) change(s Step, message string) *verdict {
	switch {
	case v.Taken == nil:
		return &verdict{step: s, message: message, resync: rule.ResyncSoon}
	case v.Taken.Err != "":
		return &verdict{message: fmt.Sprintf("%s; etcd did not %s: %s", message, v.Taken.Step, v.Taken.Err),
			resync: rule.ResyncLater}
	}
	return &verdict{message: message, resync: rule.ResyncSoon}
}

func serving(list []*member) int { return len(filter(list, (*member).serving)) }

func names(list []*member) []string {
	var all []string
	for _, m := range list {
		all = append(all, cmp.Or(m.displayName(), "stranger "+hex(m.ID)))
	}
	return all
}

// nameOf is what the member with this ID is called; empty for none and for a stranger.
func (v *view) nameOf(id uint64) string {
	if m := v.byID(id); m != nil {
		return m.displayName()
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
