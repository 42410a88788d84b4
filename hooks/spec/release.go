package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// Release is an etcd version.
type Release [3]int

// Major is the first number.
func (r Release) Major() int { return r[0] }

// Minor is the second number.
func (r Release) Minor() int { return r[1] }

func (r Release) patch() int { return r[2] }

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
		n[i], rest = int(v), after
	}
	return n, nil
}

// Less reports whether the release is older than o.
func (r Release) Less(o Release) bool {
	for i := range r {
		if r[i] != o[i] {
			return r[i] < o[i]
		}
	}
	return false
}

// runs reports whether Quorate runs members of the release.
func (r Release) runs() bool {
	old := r.Less(Release{3, 5, 26}) || r.Major() == 3 && r.Minor() == 6 && r.patch() < 4
	return !old && r.Less(Release{3, 8, 0})
}

func (r Release) String() string { return fmt.Sprintf("%d.%d.%d", r.Major(), r.Minor(), r.patch()) }

// Base is the version that etcd's own protocols speak of: without the patch release.
func (r Release) Base() string { return fmt.Sprintf("%d.%d.0", r.Major(), r.Minor()) }
