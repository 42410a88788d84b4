package facts

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// A new cluster may begin with the newest snapshot of a store, and without data where there is none. A pod looks into
// the store before the first record is written. The record is immutable and names the artifact that was found, or none:
// so that is decided once, before any member starts (S8, S21), and a snapshot that is stored later changes nothing.
// What could not be read is not known to have none: the kubelet has the pod look again, with longer and longer waits
// between, and nothing is written meanwhile.

// LatestSnapshot is where a new cluster looks for the snapshot to begin with; nil for nowhere.
func (f *Facts) LatestSnapshot() *v1beta1.LatestSnapshot {
	if b := f.Cluster.Spec.Bootstrap; b != nil && f.BeginsWith() == nil && b.Claims == nil && !defaults.Joins(f.Cluster) {
		return b.LatestSnapshot
	}
	return nil
}

// folderOf is the folder of the store that is looked into.
func (f *Facts) folderOf(l *v1beta1.LatestSnapshot) string {
	return cmp.Or(l.Folder, path.Join(f.Cluster.Namespace, f.Cluster.Name))
}

// LookArgs have a pod look for the newest snapshot.
func (f *Facts) LookArgs(l *v1beta1.LatestSnapshot) []string {
	access := stores.AccessTo(l.Store, l.ServiceAccountName, true)
	args := append([]string{"inspect", "--latest=" + f.folderOf(l)}, access.Args...)
	if l.IfNone != v1beta1.BeginEmpty {
		args = append(args, "--wait") // it fails, and so is started again
	}
	return args
}

// LookPod is the name of the pod that looks into the store: that of the first inspection of claims, of which there are
// none then.
func (f *Facts) LookPod() string { return f.ClaimInspection(0) }

// LooksIn is the observed pod that looks where the spec says; nil for none.
func (f *Facts) LooksIn(l *v1beta1.LatestSnapshot) *corev1.Pod {
	pod := f.All.Pods[f.LookPod()]
	const ofNamespace = "default" // which the API server puts in
	if pod == nil || cmp.Or(pod.Spec.ServiceAccountName, ofNamespace) != cmp.Or(l.ServiceAccountName, ofNamespace) {
		return nil
	}
	wanted := f.LookArgs(l)
	looks := slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == objects.ContainerInspect && slices.Equal(c.Args, wanted)
	})
	if !looks {
		return nil
	}
	return pod
}

// Latest is what the pod has told of its store at last; nil for nothing.
func Latest(pod *corev1.Pod) *stores.Latest {
	return stores.Last[stores.Latest](pod, objects.ContainerInspect)
}

// LooksOnceMore reports whether the pod has ended for good without a word of its store, as when it was evicted, and
// another one should look.
func (f *Facts) LooksOnceMore(pod *corev1.Pod) bool {
	return Finished(pod) && !conclusive(Latest(pod)) && f.Now.Sub(pod.CreationTimestamp.Time) >= InspectAgain
}

// conclusive reports whether it is known what the store has.
func conclusive(report *stores.Latest) bool {
	return report != nil && report.Error == "" && report.None != (report.Artifact != "")
}

// LatestChoice is what is said of the store that a new cluster looks into.
type LatestChoice struct {
	// Decided: the cluster begins with Found, or without data where that is nil; Evidence says why.
	Decided  bool
	Found    *record.Resolved
	Evidence string
	// Message is what it waits for.
	Message string
	Outlook decision.Outlook
}

// ChooseLatest is what follows from what was found in the store.
func (f *Facts) ChooseLatest(l *v1beta1.LatestSnapshot) LatestChoice {
	folder := fmt.Sprintf("the folder %s %s", f.folderOf(l), stores.URLOf(&l.Store).Words())
	pod := f.LooksIn(l)
	report := Latest(pod)
	switch why := f.unagreedLook(l); {
	case why != "":
		return LatestChoice{Message: why, Outlook: decision.Works}
	case report != nil && report.None && l.IfNone != v1beta1.BeginEmpty:
		return LatestChoice{Message: fmt.Sprintf("%s has no snapshot, and spec.bootstrap.latestSnapshot.ifNone is %s: "+
			"it is looked at again every few minutes; set that to BeginEmpty to begin without data", folder, l.IfNone),
			Outlook: decision.Works}
	case report != nil && report.Error != "":
		choice := LatestChoice{Message: fmt.Sprintf("what %s has is not known, and is looked at again every few minutes: %s",
			folder, report.Error), Outlook: decision.Waits}
		if report.Reason == "Unreachable" { // for now, maybe
			choice.Outlook = decision.Works
		}
		return choice
	case !conclusive(report):
		return LatestChoice{Message: fmt.Sprintf("looking for the newest snapshot in %s%s", folder,
			f.WhyNotStarted(pod)), Outlook: decision.Works}
	case report.None:
		return LatestChoice{Decided: true, Evidence: folder + " has no snapshot"}
	}
	found, why := f.resolveLatest(l, report)
	if why != "" {
		return LatestChoice{Message: why, Outlook: decision.Waits}
	}
	return LatestChoice{Decided: true, Found: found, Evidence: fmt.Sprintf("%s is the newest of %s in %s: revision %d of "+
		"etcd cluster %s, completed %s", path.Base(report.Artifact), objects.Count(report.Snapshots, "snapshot"),
		folder, report.Revision, report.ClusterID, report.Completed.UTC().Format(time.RFC3339))}
}

// MayLook reports whether a pod may have the Secrets that it needs for the store.
func (f *Facts) MayLook(l *v1beta1.LatestSnapshot) bool { return f.unagreedLook(l) == "" }

// unagreedLook is why it may not; empty when it may.
func (f *Facts) unagreedLook(l *v1beta1.LatestSnapshot) string {
	named := append(stores.Secrets(&l.Store), l.IdentitySecretRef.Name)
	if l.Until != nil {
		named = append(named, l.Until.KeysSecretRef.Name)
	}
	return objects.Unagreed(f.Related.Labelled, f.Cluster.Namespace, "spec.bootstrap.latestSnapshot", named...)
}

// resolveLatest is the snapshot that was found, or why it can't be used.
func (f *Facts) resolveLatest(l *v1beta1.LatestSnapshot, report *stores.Latest) (*record.Resolved, string) {
	url := stores.URLOf(&l.Store).Join(report.Artifact).String()
	if _, err := stores.ParseArtifactURL(url); err != nil || path.Dir(report.Artifact) != f.folderOf(l) {
		return nil, "what was found in the store can't be a snapshot there, by its name"
	}
	r := &record.Resolved{URL: url, SHA256: report.SHA256, ClusterID: report.ClusterID, Store: l.Store,
		Identity: l.IdentitySecretRef, ServiceAccountName: l.ServiceAccountName}
	if l.Until == nil || r.ClusterID == "" {
		return r, ""
	}
	f.followed(r, l.Until, path.Join(f.folderOf(l), snapshot.TailFolder), r.ClusterID)
	r.AsFar = true
	return r, ""
}

// beginningWithLatest is where the data comes from when it comes from a store that was looked into, or what that waits
// for.
func (f *Facts) beginningWithLatest(from record.Origin, l *v1beta1.LatestSnapshot) (record.Origin, string) {
	choice := f.ChooseLatest(l)
	if choice.Found != nil {
		from.Source = record.SourceSnapshot
		from.Snapshot = choice.Found
	}
	return from, choice.Message
}
