package objects

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// Images are where the images come from that run in pods.
type Images struct {
	// Image is the image of Quorate itself: its `prepare` runs in every member's pod before etcd.
	Image string
	// ImagePullPolicy of that image; empty leaves it to Kubernetes.
	ImagePullPolicy corev1.PullPolicy
	// EtcdRepository is where etcd's image comes from when a cluster does not say it itself; empty for
	// [DefaultEtcdRepository].
	EtcdRepository string
	// AllowedRepositories are those that spec.image.repository may name: whole ones, and beginnings
	// that end with a slash. That of the installation always may be. Empty allows all.
	AllowedRepositories []string
}

// DefaultEtcdRepository is where etcd's own project publishes its image.
const DefaultEtcdRepository = "gcr.io/etcd-development/etcd"

// Etcd is the image of etcd in this version: the cluster's own repository goes before that of the installation, and its
// own tag before that of etcd's project.
func (s Images) Etcd(spec *v1beta1.EtcdClusterSpec, version string) string {
	tag := cmp.Or(string(spec.Image.Tags[version]), "v"+tagged(version))
	return cmp.Or(spec.Image.Repository, s.EtcdRepository, DefaultEtcdRepository) + ":" + tag
}

// tagged is as much of a version as a tag can have. A version may be that of a record, which others can write: behind a
// tag a digest would count, and not the tag.
func tagged(version string) string {
	end := strings.IndexFunc(version, func(r rune) bool {
		digit := r >= '0' && r <= '9'
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !digit && !letter && !strings.ContainsRune("._-", r)
	})
	if end >= 0 {
		version = version[:end]
	}
	return version[:min(len(version), 64)]
}

// repositories are how those of images look.
var repositories = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9A-Za-z]([-._0-9A-Za-z]*[0-9A-Za-z])?(:[0-9]{1,5}/[0-9a-z]([-._0-9a-z]*[0-9a-z])?)?(/[0-9a-z]([-._0-9a-z]*[0-9a-z])?)*$`)
})

// tags are how those of images look: a version, what its maker says of it, and a digest.
var tags = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^v?([0-9]+[.][0-9]+[.][0-9]+)([-_][-._0-9A-Za-z]*)?(@sha256:[0-9a-f]{64})?$`)
})

// IsRepository reports whether a text can be the repository of an image: without https://, a tag or
// a digest.
func IsRepository(text string) bool { return repositories().MatchString(text) }

// Validate says why no image may come from where the spec says. Who chooses the image chooses what runs in pods with
// the keys of the cluster, and in Jobs with the credentials of its store.
func (s Images) Validate(spec *v1beta1.EtcdClusterSpec) error {
	for _, version := range slices.Sorted(maps.Keys(spec.Image.Tags)) {
		if named := tags().FindStringSubmatch(string(spec.Image.Tags[version])); named == nil || named[1] != version {
			return errors.New("one of spec.image.tags does not begin with its version: write it as " +
				"3.6.16: v3.6.16-r2, with @sha256: and the digest behind it or without")
		}
	}
	repository := spec.Image.Repository
	ours := cmp.Or(s.EtcdRepository, DefaultEtcdRepository)
	switch {
	case repository == "" || repository == ours:
		return nil
	case !IsRepository(repository):
		return errors.New("spec.image.repository is not an image repository: write it without https://, tag and digest")
	case len(s.AllowedRepositories) == 0 || slices.ContainsFunc(s.AllowedRepositories,
		func(allowed string) bool { return holds(allowed, repository) }):
		return nil
	}
	return fmt.Errorf("this installation of Quorate does not allow spec.image.repository "+
		"(--allowed-image-repositories): leave it out for %s, or use %s",
		ours, strings.Join(s.AllowedRepositories, ", "))
}

// holds reports whether what is allowed is this repository, or a beginning of it.
func holds(allowed, repository string) bool {
	return repository == allowed || strings.HasSuffix(allowed, "/") && strings.HasPrefix(repository, allowed)
}

// VersionOf is the version in the tag of an etcd image; empty when there is none.
func VersionOf(image string) string {
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	named := tags().FindStringSubmatch(tag)
	if named == nil {
		return ""
	}
	return named[1]
}
