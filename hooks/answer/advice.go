package answer

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// ScheduleAdvice is what is wrong with a schedule; empty for nothing.
func ScheduleAdvice(f *facts.Facts) string {
	s, err := defaults.Schedule(f.Cluster)
	switch {
	case err != nil:
		return fmt.Sprintf("spec.maintenance.defragmentation.schedule can't be parsed and has no effect: %s", err)
	case s != nil && s.Next(f.Now.UTC()).IsZero():
		return "spec.maintenance.defragmentation.schedule never happens"
	}
	return ""
}

// offNodes says which members are on nodes that the spec does not name any more; empty for none.
func offNodes(f *facts.Facts) string {
	if !f.OnNamedNodes() {
		return ""
	}
	var all []string
	placed := f.Placed()
	for _, name := range f.Names {
		if node := placed[name]; node != "" && !slices.Contains(f.Nodes(), node) {
			all = append(all, fmt.Sprintf("%s stays on node %s", name, node))
		}
	}
	if len(all) == 0 {
		return ""
	}
	words := strings.Join(all, ", ") + ", which " + defaults.NodesField(&f.Cluster.Spec) + " no longer lists"
	if f.Etcd != nil && f.CanLoseOne() { // else it would be the data of all
		words += "; to replace a member, " + f.ToHaveReplaced() + ", one after the other"
	}
	return words
}

// wrongClock says that Quorate's clock is not that of the API server. It does not say by how much: that changes, and
// the log says it.
func wrongClock(f *facts.Facts) string {
	how := "ahead of"
	if f.Ahead < 0 {
		how = "behind"
	}
	return fmt.Sprintf("Quorate's clock is %s the API server's, so Quorate goes by the API server's and asks for it every "+
		"few minutes; set the clock of Quorate's node", how)
}

// Advice is what we would tell a user who runs this spec although it works; empty for nothing.
func Advice(f *facts.Facts) string {
	var all []string
	if f.Replicas > 0 && f.Replicas%2 == 0 {
		all = append(all, fmt.Sprintf("%d voters tolerate no more failures than %d and are slower; use an odd number",
			f.Replicas, f.Replicas-1))
	}
	if why := vulnerable(f.Cluster.Spec.Version); why != "" {
		all = append(all, fmt.Sprintf("etcd %s %s", f.Cluster.Spec.Version, why))
	}
	if f.Ahead != 0 {
		all = append(all, wrongClock(f))
	}
	if why := defaults.SharesIssuer(f.Observation); why != "" {
		all = append(all, why)
	}
	if why := f.CRLAdvice(); why != "" {
		all = append(all, why)
	}
	if why := offNodes(f); why != "" {
		all = append(all, why)
	}
	if err := defaults.ValidateRoom(&f.Cluster.Spec); err != nil {
		all = append(all, err.Error())
	}
	if why := littleMemory(f); why != "" {
		all = append(all, why)
	}
	if why := f.KeptQuotas(); why != "" {
		all = append(all, why)
	}
	if why := f.GrowsNoMore(); why != "" {
		all = append(all, fmt.Sprintf("a database uses %d %% of its quota, and the volumes grow no further: %s",
			facts.GrowAt, why))
	}
	if why := otherFamily(f); why != "" {
		all = append(all, why)
	}
	if why := ScheduleAdvice(f); why != "" {
		all = append(all, why)
	}
	if why := f.Windows.Advice(); why != "" {
		all = append(all, why)
	}
	all = append(all, f.LeadershipAdvice()...)
	return strings.Join(all, "; ")
}

// littleMemory says that the limit of memory is below the quota; empty for no. On the medium Memory the volume is added
// to the limit.
func littleMemory(f *facts.Facts) string {
	s := &f.Cluster.Spec
	limit := s.Resources.Limits[corev1.ResourceMemory]
	quota := defaults.QuotaOn(s.Options, defaults.RoomFor(s))
	if s.Storage.Medium == v1beta1.Memory || limit.IsZero() || limit.Value() >= quota {
		return ""
	}
	return fmt.Sprintf("spec.resources.limits.memory %s is less than the quota of %d MiB: a larger database is read "+
		"from the disk again and again, and etcd becomes slow; raise the limit, or lower spec.options.quotaBackendBytes; "+
		"`kubectl quorate size` says what a load needs", limit.String(), quota>>20)
}

// fixes are the first releases of each minor that are free of a known hole.
var fixes = []struct {
	why   string
	fixed [3]defaults.Release
}{
	{"does not authenticate every request: use 3.5.28, 3.6.9 or 3.7 or later",
		[3]defaults.Release{{3, 5, 28}, {3, 6, 9}, {3, 7, 0}}},
	{"shows a watch keys that its user may not read: use 3.5.33, 3.6.14 or 3.7.1 or later",
		[3]defaults.Release{{3, 5, 33}, {3, 6, 14}, {3, 7, 1}}},
}

func vulnerable(version string) string {
	r, err := defaults.ParseRelease(version)
	if err != nil {
		return ""
	}
	for _, f := range fixes {
		for _, fixed := range f.fixed {
			if r.Minor() == fixed.Minor() && r.Less(fixed) {
				return f.why
			}
		}
	}
	return ""
}

// otherFamily says that the Service has another first IP family than the spec; empty for no.
func otherFamily(f *facts.Facts) string {
	asked := f.Cluster.Spec.IP
	name := objects.ClientService(f.Cluster.Name)
	if s := f.Children.Services[name]; facts.OtherFamily(asked, s) {
		return fmt.Sprintf("spec.ip.families begins with %s, and the Service %s with %s, which Kubernetes "+
			"can't change: delete the Service, and Quorate makes it again", asked.Families[0], name,
			s.Spec.IPFamilies[0])
	}
	return ""
}
