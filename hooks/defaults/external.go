package defaults

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/users"
)

// Tellable is a name or URL of an external member that has the form of one, in some length: others are told to no
// person and written nowhere.
var Tellable = regexp.MustCompile(`^(https?://)?[0-9A-Za-z_.:\[\]-]{1,100}$`)

// UrlsOf are the client URLs of an external member that have the form of one.
func UrlsOf(m observation.Member) []string {
	return objects.Filter(m.ClientURLs, func(raw string) bool {
		return Tellable.MatchString(raw) &&
			strings.Contains(raw, "://")
	})
}

// Members that join a running etcd (spec.bootstrap.external). Its epoch has no initial members: ours join one by one
// as learners, by the same rules that let a cluster grow. The members that were there before are external: voters like
// any other whenever a quorum is counted, asked for their health like any other, and left alone. When the spec says
// spec.removeExternalMembers, they are removed one by one. With the last of them the record forgets that there were
// any, and the cluster is like one that began empty.
//
// While they are there nothing else is done: who restarts, upgrades or defragments members would have to do it to all
// of them.
//
// Back it goes by replicas 0, or by the deletion of the EtcdCluster: ours are removed one by one, and the external
// etcd is as before.

// External is what the spec says of the etcd that the members join; nil for a cluster of its own.
func External(c *v1beta1.EtcdCluster) *v1beta1.ExternalCluster {
	if c.Spec.Bootstrap == nil {
		return nil
	}
	return c.Spec.Bootstrap.External
}

// SpeaksTLS reports whether the members of an external etcd have certificates.
func SpeaksTLS(e *v1beta1.ExternalCluster) bool { return e != nil && e.CASecretRef.Name != "" }

// Joins reports whether a new cluster joins a running etcd.
func Joins(c *v1beta1.EtcdCluster) bool { return External(c) != nil }

// validateExternal says what is wrong with spec.bootstrap.external. The API server refuses nearly all of it.
func validateExternal(s *v1beta1.EtcdClusterSpec) error {
	if s.Bootstrap == nil || s.Bootstrap.External == nil {
		return nil
	}
	e := s.Bootstrap.External
	for i, endpoint := range e.Endpoints {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil || u.Hostname() == "" || u.Port() == "",
			u.Scheme+"://"+u.Host != endpoint || u.Scheme != "http" && u.Scheme != "https":
			return fmt.Errorf("spec.bootstrap.external.endpoints[%d] is not a URL such as https://10.1.2.3:2379", i)
		case (u.Scheme == "https") != SpeaksTLS(e):
			return fmt.Errorf("spec.bootstrap.external.caSecretRef is for endpoints that begin with https://, and "+
				"endpoints[%d] does not fit", i)
		}
	}
	switch {
	case len(e.Endpoints) == 0:
		return fmt.Errorf("spec.bootstrap.external.endpoints is empty")
	case !SpeaksTLS(e) && e.ClientSecretRef.Name+e.UserSecretRef.Name != "":
		return fmt.Errorf("spec.bootstrap.external.clientSecretRef and userSecretRef need caSecretRef: nothing secret goes " +
			"over plain text")
	}
	return nil
}

// Keys of spec.bootstrap.external.userSecretRef.
const (
	KeyUsername = corev1.BasicAuthUsernameKey
	KeyPassword = users.PasswordKey
)
