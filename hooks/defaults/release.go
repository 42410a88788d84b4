package defaults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Release is an etcd version.
type Release [3]int

// Major is the first number.
func (r Release) Major() int { return r[0] }

// Minor is the second number.
func (r Release) Minor() int { return r[1] }

// ParseRelease reads a version such as 3.6.16, without a leading v and with nothing after the patch.
func ParseRelease(s string) (Release, error) {
	var n Release
	rest := s
	for i := range n {
		part, after, more := strings.Cut(rest, ".")
		if more == (i == 2) {
			return Release{}, fmt.Errorf("spec.version %q is not x.y.z", s)
		}
		v, err := strconv.ParseUint(part, 10, 16)
		if err != nil || len(part) > 1 && part[0] == '0' { // 3.6.016 names no image
			return Release{}, fmt.Errorf("spec.version %q is not x.y.z", s)
		}
		n[i] = int(v)
		rest = after
	}
	return n, nil
}

// Compare is negative when the release is older than o, and 0 when it is the same.
func (r Release) Compare(o Release) int { return slices.Compare(r[:], o[:]) }

// Less reports whether the release is older than o.
func (r Release) Less(o Release) bool { return r.Compare(o) < 0 }

// The oldest releases of 3.5 and 3.6 that members may run. Those of 3.5 before forget that a learner was promoted,
// those of 3.6 lose members when membership changes. The CRD has a rule for each.
var (
	Least35 = Release{3, 5, 26}
	Least36 = Release{3, 6, 4}
)

// Newest are the newest patch releases of each minor version that were known when this Quorate was built: the
// waypoints of upgradePolicy Step. The API has the minor versions, too; a test compares them.
var Newest = []Release{{3, 5, 35}, {3, 6, 16}, {3, 7, 3}}

// Supported reports whether the release's minor version is one that Quorate knows.
func Supported(r Release) bool {
	return r.Major() == 3 && r.Minor() >= Newest[0].Minor() && r.Minor() <= Newest[len(Newest)-1].Minor()
}

// LosesMembers reports whether the release is older than these.
func (r Release) LosesMembers() bool {
	return r.Less(Least35) || !r.Less(Release{3, 6, 0}) && r.Less(Least36)
}

func (r Release) String() string { return fmt.Sprintf("%d.%d.%d", r[0], r[1], r[2]) }

// Base is the version that etcd's own protocols speak of: without the patch release.
func (r Release) Base() string { return fmt.Sprintf("%d.%d.0", r.Major(), r.Minor()) }
