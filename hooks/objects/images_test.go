package objects

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

func TestImagesHaveTheirOwnTags(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0a", 32)
	spec := &v1beta1.EtcdClusterSpec{Image: v1beta1.ImageSpec{Repository: "registry:5000/etcd",
		Tags: map[string]v1beta1.ImageTag{"3.6.16": v1beta1.ImageTag("v3.6.16-r2" + digest), "3.7.3": "3.7.3"}}}
	images := Images{}
	assert.NoError(t, images.Validate(spec))
	for version, want := range map[string]string{
		"3.5.35": "registry:5000/etcd:v3.5.35",
		"3.6.16": "registry:5000/etcd:v3.6.16-r2" + digest,
		"3.7.3":  "registry:5000/etcd:3.7.3",
	} {
		image := images.Etcd(spec, version)
		assert.Equal(t, want, image)
		assert.Equal(t, version, VersionOf(image))
	}
	for _, tag := range []v1beta1.ImageTag{"latest", "v3.6.160", "3.6.1", "v3.6.16@sha256:12", "v3.6.16 x", "x3.6.16"} {
		spec.Image.Tags["3.6.16"] = tag
		assert.Error(t, images.Validate(spec), tag)
	}
	for _, image := range []string{"registry:5000/etcd", "etcd:latest", "etcd" + digest, ""} {
		assert.Empty(t, VersionOf(image), image)
	}
}

// TestEtcdsRepository: the cluster's own goes before that of the installation, and that before etcd's.
func TestEtcdsRepository(t *testing.T) {
	for _, c := range []struct{ cluster, installation, want string }{
		{"", "", "gcr.io/etcd-development/etcd:v3.6.16"},
		{"", "registry.example/etcd", "registry.example/etcd:v3.6.16"},
		{"quay.io/coreos/etcd", "registry.example/etcd", "quay.io/coreos/etcd:v3.6.16"},
	} {
		s := &v1beta1.EtcdClusterSpec{Image: v1beta1.ImageSpec{Repository: c.cluster}}
		assert.Equal(t, c.want, Images{EtcdRepository: c.installation}.Etcd(s, "3.6.16"))
	}
}
