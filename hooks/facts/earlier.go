package facts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// An EtcdCluster that is made again, as by a backup of its namespace, is another one than before: it has another UID,
// and no status. What was made for the one before belongs to that, so Kubernetes deletes it, and its data stays on
// volumes that no one looks at. So a cluster is not founded beside anything of an earlier life: it waits for what
// Kubernetes deletes because that was asked for, and for the spec to say which data is meant where something was made
// from a backup, or stays.

// EarlierLife is why a new cluster is not founded yet, and whether it will be by itself: something of an earlier one of
// its name is there; empty for nothing.
func (f *Facts) EarlierLife() (why string, outlook decision.Outlook) {
	claims := f.otherRemains("PersistentVolumeClaim")
	records := f.otherRemains("ConfigMap")
	named := f.namedClaims()
	lost := namesOf(claims, func(r observation.Remain) bool { return r.Going && slices.Contains(named, r.Name) })
	staying := namesOf(records, func(r observation.Remain) bool { return !r.Going })
	switch {
	case len(lost) > 0:
		return fmt.Sprintf("Kubernetes deletes %s, because the EtcdCluster that they were made for is gone: take away "+
			"metadata.ownerReferences, or bind new claims to the volumes; see "+v1beta1.Docs+"how-to/velero.md",
			strings.Join(lost, ", ")), decision.Waits
	case len(staying) > 0:
		return fmt.Sprintf("there is the record of an earlier EtcdCluster of this name: kubectl delete configmap -n %s %s",
			f.Cluster.Namespace, strings.Join(staying, " ")), decision.Waits
	case f.Cluster.Spec.Bootstrap == nil:
		if why = f.unanswered(claims); why != "" {
			return why, decision.Waits
		}
	}
	if going := namesOf(append(records, claims...), func(r observation.Remain) bool {
		return r.Going && (r.Kind == "ConfigMap" || f.Cluster.Spec.Bootstrap == nil)
	}); len(going) > 0 {
		return "waiting until Kubernetes has deleted what was made for an earlier EtcdCluster of this name: " +
			strings.Join(going, ", "), decision.Works
	}
	return "", ""
}

// unanswered is why the spec must say which data is meant; empty when nothing speaks of other data than none.
func (f *Facts) unanswered(claims []observation.Remain) string {
	ns := f.Cluster.Namespace
	seen := f.SeenOfEarlierLife()
	staying := namesOf(claims, func(r observation.Remain) bool { return !r.Going })
	switch {
	case len(staying) > 0:
		return fmt.Sprintf("there are claims of an earlier EtcdCluster of this name (%s), and Quorate does not know "+
			"whether you mean their data: name them in spec.bootstrap.claims.names, or another source in spec.bootstrap; to "+
			"begin without data, kubectl delete pvc -n %s %s", strings.Join(staying, ", "), ns, strings.Join(staying, " "))
	case len(seen) > 0:
		return fmt.Sprintf("claims of an earlier EtcdCluster of this name were made from a backup (%s), and Kubernetes "+
			"deletes them, because their owner is gone: say in spec.bootstrap which data you mean, maybe that of their "+
			"volumes (kubectl get pv); to begin without data, delete this EtcdCluster and create it again; see "+
			v1beta1.Docs+"how-to/velero.md", strings.Join(seen, ", "))
	case f.Cluster.Labels[objects.LabelRestored] != "":
		return fmt.Sprintf("Velero has made this EtcdCluster from a backup, and Quorate does not know which data you "+
			"mean: say so in spec.bootstrap; to begin without data, kubectl label -n %s etcdcluster/%s %s-", ns, f.Cluster.Name,
			objects.LabelRestored)
	}
	return ""
}

// SeenOfEarlierLife are the claims of an earlier cluster that were made from a backup and are deleted by Kubernetes, as
// far as they were seen before this one began.
func (f *Facts) SeenOfEarlierLife() []string {
	if f.Epoch != nil || f.RanBefore() || f.Cluster.Spec.Bootstrap != nil {
		return nil
	}
	seen := slices.Concat(f.Cluster.Status.Internal.EarlierLife, namesOf(f.otherRemains("PersistentVolumeClaim"),
		func(r observation.Remain) bool { return r.Going && r.Restored }))
	slices.SortFunc(seen, objects.ByOrdinal)
	return slices.Compact(seen)
}

// otherRemains is what is left of one kind.
func (f *Facts) otherRemains(kind string) []observation.Remain {
	return objects.Filter(f.Related.Remains, func(r observation.Remain) bool { return r.Kind == kind })
}

// namesOf are the names of those that are so, sorted.
func namesOf(all []observation.Remain, is func(observation.Remain) bool) []string {
	var names []string
	for _, r := range all {
		if is(r) {
			names = append(names, r.Name)
		}
	}
	slices.SortFunc(names, objects.ByOrdinal)
	return names
}

// namedClaims are those that the spec says to begin with.
func (f *Facts) namedClaims() []string {
	var names []string
	if c := f.FormerClaims(); c != nil {
		for _, of := range VolumesOf(c) {
			names = append(names, of.Name)
			if of.WAL != "" {
				names = append(names, of.WAL)
			}
		}
	}
	return names
}

// AboveRemains is the lowest number that no claim of an earlier cluster is named by.
func (f *Facts) AboveRemains() int {
	first := 0
	for _, r := range f.otherRemains("PersistentVolumeClaim") {
		member, _ := MemberOfClaim(f.Cluster.Name, r.Name)
		if n, ours := objects.Ordinal(f.Cluster.Name, member); ours {
			first = max(first, n+1)
		}
	}
	return first
}
