package hooks

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
)

// What people hold in their own hands: members whose etcd is to be stopped for a while, and what becomes of a cluster
// that is deleted.

// ---- fencing

// fenced reports whether a person wants this member's etcd stopped, without its removal. Its data would not outlive
// that on Memory.
func (v *view) fenced(name string) bool {
	return !v.memory() && slices.Contains(fencedBy(v.Cluster), name)
}

// fencedBy are the members that the annotation names.
func fencedBy(c *v1alpha1.EtcdCluster) []string {
	return strings.FieldsFunc(c.Annotations[objects.AnnotationFence], func(r rune) bool { return r == ',' || r == ' ' })
}

func fence(v *view) *verdict {
	for _, m := range v.chosenFirst(v.voters) {
		if m.name == "" || !v.fenced(m.name) || m.pod == nil || m.pod.DeletionTimestamp != nil || !v.mayStop(m) {
			continue
		}
		why := fmt.Sprintf("stopping %s: the annotation %s asks for it", m.name, objects.AnnotationFence)
		if v.leads(m) == 1 {
			return v.change(v.handOver(m), why+"; it leads and hands over first")
		}
		if decision := v.chooseForRestart(m, false, why); decision != nil {
			return decision
		}
		return &verdict{message: why, deletePod: m.name, resync: rule.ResyncSoon}
	}
	return nil
}

// mayStop reports whether the others can do without the member (S1), and nobody else is missing or joining when it
// serves (S2).
func (v *view) mayStop(m *member) bool {
	return v.quorumWithout(m) && (!m.serving() || v.learner() == nil && serving(v.voters) == len(v.voters))
}

// unfenceable says which of the names of the annotation can't be followed, and why; empty for none.
func unfenceable(v *view) string {
	var all []string
	for _, name := range fencedBy(v.Cluster) {
		m := v.find(name)
		switch {
		case v.memory():
			all = append(all, name+" is not stopped: its data is in memory and would be lost")
		case v.Etcd == nil:
		case m == nil:
			all = append(all, name+" is no member")
		case m.pod != nil && !v.mayStop(m):
			all = append(all, name+" is not stopped: the others can't do without it now")
		}
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("the annotation %s: %s", objects.AnnotationFence, strings.Join(all, "; "))
}

// ---- deletion

// Protected reports whether a cluster that is being deleted is to run on: it is looked after as before, until
// somebody takes the protection away.
func Protected(c *v1alpha1.EtcdCluster) bool { return c.Spec.DeletionProtection }

// Finalize is the answer while the cluster is being deleted: everything is left as it is, and nothing stands in the
// way. The children go with their owner, by Kubernetes' own garbage collection, in the way that was asked for
// (background, foreground or orphan). Nothing is asked of etcd and nobody is waited for (S17). A hook that deleted
// children itself could take, on a stale view, the volumes that somebody has just orphaned.
//
// With deletionPolicy Retain the claims are taken from their owner before it goes. Metacontroller removes from an
// object what it has applied and is no longer told: so the owner is told once, with a note that it was, and then no
// more (dynamic/apply in Metacontroller). Where that note got lost, the owner is told once more. By server-side apply
// Metacontroller never gives up an owner: the claims stay owned, and the cluster stays, until it applies as before.
func Finalize(o Observation) (remaining Desired, finalized bool) {
	remaining = asObserved(o)
	if o.Cluster.Spec.DeletionPolicy != v1alpha1.DeletionRetain {
		return remaining, true
	}
	owned := false
	for _, claim := range remaining.Claims {
		old := o.Children.Claims[claim.Name]
		if old.DeletionTimestamp != nil {
			continue
		}
		owned = true
		claim.OwnerReferences = old.OwnerReferences
		if old.Annotations[objects.AnnotationRetained] != "" && !slices.Contains(o.WithoutLastApplied,
			childName("PersistentVolumeClaim", old)) {
			claim.OwnerReferences = nil
		}
		claim.Annotations[objects.AnnotationRetained] = o.Cluster.Name
	}
	return remaining, !owned
}

// AsObserved are the children as they are, all of them: the answer that changes nothing.
func AsObserved(o Observation) Desired { return asObserved(o) }

// ToldOwners are the owners that a claim of an answer is told: none, but on the way of [Finalize].
func ToldOwners(claim *corev1.PersistentVolumeClaim) []metav1.OwnerReference {
	if claim.Annotations[objects.AnnotationRetained] == "" {
		return nil
	}
	return claim.OwnerReferences
}

// ---- history

// historyLength is how many decisions the status remembers.
const historyLength = 20

// history is the observed one with what this call has decided, if that changed anything or differs from what was
// decided last.
func history(v *view, because rule.Reason, auth *v1alpha1.AuthStatus) []v1alpha1.HistoryEntry {
	list := slices.Clone(v.Cluster.Status.History)
	for _, e := range v.Recent {
		if !slices.Contains(list, e) {
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b v1alpha1.HistoryEntry) int { return a.Time.Compare(b.Time.Time) })
	now := v.Now
	if n := len(list); n > 0 && now.Before(list[n-1].Time.Time) {
		now = list[n-1].Time.Time // somebody else's clock is ahead
	}
	add := func(rule, step, message string) {
		if len(message) > 500 {
			message = strings.ToValidUTF8(message[:500], "")
		}
		entry := v1alpha1.HistoryEntry{Time: metav1.NewTime(now.Truncate(1e9)), Rule: rule, Step: step,
			Message: message}
		if step == "" || !slices.Contains(list, entry) { // else the same call, made again
			list = append(list, entry)
		}
	}
	looked := func(t *Outcome) bool { // users and roles are looked at every so often
		return t.Err == "" && t.Step.Verb() == Authorize{}.Verb() && reflect.DeepEqual(auth, v.Cluster.Status.Auth)
	}
	if t := v.Taken; t != nil && !looked(t) {
		add(t.Rule, t.Step.String(), t.Err)
	}
	if len(list) == 0 || list[len(list)-1].Rule != because.Rule {
		add(because.Rule, "", because.Message)
	}
	return list[max(0, len(list)-historyLength):]
}
