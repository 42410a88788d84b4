package snapshot

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Unless is what a cluster was like when it was last stored. A snapshot whose annotation says that is not taken while
// the cluster still is so; its phase is Skipped. A schedule writes it.
type Unless struct {
	// Revision of the keys, and AuthRevision of users and roles, which don't raise that of the keys.
	Revision, AuthRevision int64
	// ClusterID in hexadecimal. A cluster that was made again under the same name has another one.
	ClusterID string
}

var unlessClusters = regexp.MustCompile(`^[0-9a-f]{1,16}$`)

// String is what [UnlessOf] reads.
func (u *Unless) String() string {
	return fmt.Sprintf("revision=%d,auth-revision=%d,cluster=%s", u.Revision, u.AuthRevision, u.ClusterID)
}

// UnlessOf is what the annotation of a snapshot says; nil for none, and where it can't be read.
func UnlessOf(s *v1beta1.EtcdSnapshot) *Unless {
	told := objects.ParsePairs(s.Annotations[objects.AnnotationUnless], "=")
	revision, err := strconv.ParseInt(told["revision"], 10, 64)
	auth, err2 := strconv.ParseInt(told["auth-revision"], 10, 64)
	if err != nil || err2 != nil || min(revision, auth) < 1 || !unlessClusters.MatchString(told["cluster"]) {
		return nil
	}
	return &Unless{Revision: revision, AuthRevision: auth, ClusterID: told["cluster"]}
}
