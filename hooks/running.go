package hooks

import (
	"cmp"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// runningVersion is what the members run, for a table: see Running of [v1alpha1.EtcdClusterStatus]. While none
// answers it is what they ran, and before any has answered what they are started with.
func (v *view) runningVersion(members []v1alpha1.MemberStatus) string {
	wanted := v.Cluster.Spec.Version
	var runs []release
	for _, m := range members {
		if r, err := parseRelease(m.Version); err == nil && !m.Foreign {
			runs = append(runs, r)
		}
	}
	before, _, _ := strings.Cut(v.Cluster.Status.Running, " -> ")
	is := cmp.Or(before, v.Cluster.Status.Version, wanted)
	if others := filter(runs, func(r release) bool { return r.String() != wanted }); len(others) > 0 {
		is = slices.MinFunc(others, func(a, b release) int {
			if a.less(b) {
				return -1
			}
			return 1
		}).String()
	} else if len(runs) > 0 {
		is = wanted
	}
	if is == wanted {
		return wanted
	}
	return is + " -> " + wanted
}
