package safety

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// claims checks what becomes of the data.
func claims(j *judgement) {
	for name, claim := range j.o.Children.Claims {
		if member, ours := facts.MemberOfClaim(j.o.Cluster.Name, name); ours && !hasClaim(j, name) &&
			claim.DeletionTimestamp == nil {
			claimGoes(j, member, claim)
		}
	}
	for _, claim := range j.d.Children.Claims {
		if old := j.o.Children.Claims[claim.Name]; old != nil {
			sameClaim(j, old, claim)
		} else {
			member, _ := facts.MemberOfClaim(j.o.Cluster.Name, claim.Name)
			newClaim(j, member)
		}
	}
}

func claimGoes(j *judgement, name string, claim *corev1.PersistentVolumeClaim) {
	j.require(j.f.Etcd != nil && j.f.Find(name) == nil, "S7", "the claim %s goes without a list in hand that omits it",
		name)
	j.require(j.f.Ours(claim), "S7", "the claim %s goes, which another cluster object owns", name)
	j.require(j.f.OrdinalReserved(name) || j.f.ToBeAdded(name) && j.f.Dropped(name), "S9",
		"the claim %s goes before its number is recorded, or that nothing starts there", name)
	keep := 24 * time.Hour
	if d := j.o.Cluster.Spec.MemberReplacement.KeepVolumesFor; d != nil {
		keep = d.Duration
	}
	if keep > 0 && claim.Annotations[objects.AnnotationFailedMember]+
		claim.Annotations[objects.AnnotationQuarantined] != "" {
		since, err := time.Parse(time.RFC3339, claim.Annotations[objects.AnnotationQuarantined])
		j.require(err == nil && j.o.Now.Sub(since) >= keep, "S7", "the claim %s goes, which must be kept for %s", name,
			keep)
	}
}

func newClaim(j *judgement, name string) {
	m := j.f.Find(name)
	provisioning := j.f.Etcd == nil && j.f.Epoch != nil && !j.f.Epoch.Provisioned() && j.f.Epoch.Initial[name] != ""
	ahead := j.f.ToBeAdded(name) && j.f.Epoch.Recorded(name) == ""
	j.require(provisioning || ahead || m != nil && j.f.MayBeMade(m), "S10",
		"a new claim for %s, which may have had one", name)
	j.require(!ahead || provisioning || len(readied(j)) <= max(0, j.f.Missing()), "S6",
		"a new claim for %s, and enough members are made ready", name)
	j.require(j.f.Etcd != nil || provisioning, "S11", "a new claim %s while blind", name)
}

// readied are the members of which an answer has a claim that are not added yet, except those that are given up.
func readied(j *judgement) map[string]bool {
	all := map[string]bool{}
	for _, claim := range j.d.Children.Claims {
		name, ours := facts.MemberOfClaim(j.o.Cluster.Name, claim.Name)
		if ours && j.f.ToBeAdded(name) && startsIn(j, name) != facts.NothingStarts {
			all[name] = true
		}
	}
	return all
}

// startsIn is what the answer's record says that the member may start on.
func startsIn(j *judgement, name string) types.UID {
	if now := records(j, j.f.Epoch.Record.Name); now != nil {
		return now.StartsOn[name]
	}
	return ""
}

// claimBeingDeleted reports whether a claim of this member's, for its data or its log, is being deleted.
func claimBeingDeleted(j *judgement, member string) bool {
	for _, name := range []string{member, member + "-wal"} {
		if claim := j.o.Children.Claims[name]; claim != nil && claim.DeletionTimestamp != nil && j.f.Ours(claim) {
			return true
		}
	}
	return false
}

func unlikeClaim(c *corev1.PersistentVolumeClaim, size resource.Quantity, class *string) bool {
	return c.Spec.Resources.Requests.Storage().Cmp(size) != 0 || class != nil &&
		(c.Spec.StorageClassName == nil || *c.Spec.StorageClassName != *class)
}

// sameClaim checks that a claim that stays changes in nothing but its size, and that only upwards to what is asked for.
func sameClaim(j *judgement, old, now *corev1.PersistentVolumeClaim) {
	was := old.Spec.Resources.Requests.Storage()
	is := now.Spec.Resources.Requests.Storage()
	bare := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimSpec {
		s := c.Spec.DeepCopy()
		s.Resources = corev1.VolumeResourceRequirements{}
		return s
	}
	j.require(reflect.DeepEqual(bare(old), bare(now)), "S12", "the claim %s is to change in what can't change",
		old.Name)
	wanted := defaults.StorageSize(&j.o.Cluster.Spec)
	if wal := j.o.Cluster.Spec.Storage.WAL; wal != nil && strings.HasSuffix(old.Name, "-wal") {
		wanted = defaults.WALSize(wal)
	}
	if !strings.HasSuffix(old.Name, "-wal") && growsByItself(j, *is) {
		wanted = *is
	}
	grows := is.Cmp(*was) > 0 && is.Cmp(wanted) == 0 && old.Status.Phase == corev1.ClaimBound && j.f.Ours(old)
	j.require(is.Cmp(*was) == 0 || grows, "S12", "the claim %s is to go from %s to %s", old.Name, was, is)
}

// growsByItself reports whether volumes may have this size without the spec saying so: another has it already, or a
// database uses four fifths of what etcd may take of the spec's, and it is not more than spec.storage.autoGrow.max.
func growsByItself(j *judgement, size resource.Quantity) bool {
	s := &j.o.Cluster.Spec
	auto := s.Storage.AutoGrow
	if auto == nil || size.Cmp(defaults.StorageSize(s)) <= 0 || size.Cmp(auto.Max) > 0 {
		return false
	}
	for name, claim := range j.o.Children.Claims {
		if !strings.HasSuffix(name, "-wal") && claim.Spec.Resources.Requests.Storage().Cmp(size) >= 0 {
			return true
		}
	}
	full := func(h observation.Health) bool {
		return h.DBSizeInUse >= defaults.QuotaOn(s.Options, defaults.RoomFor(s))/100*80
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(j.o.Health)), full)
}

func hasClaim(j *judgement, name string) bool {
	return slices.ContainsFunc(j.d.Children.Claims,
		func(c *corev1.PersistentVolumeClaim) bool { return c.Name == name })
}
