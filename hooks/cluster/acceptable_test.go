package cluster

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// TestWhatNoObjectMayHave: a spec of which Kubernetes would take no object, or no etcd that runs, changes nothing and
// says what to correct.
func TestWhatNoObjectMayHave(t *testing.T) {
	labelled := func(key, value string) func(*v1alpha1.EtcdClusterSpec) {
		return func(s *v1alpha1.EtcdClusterSpec) {
			s.AdditionalMetadata.Labels = map[string]v1alpha1.LabelValue{key: v1alpha1.LabelValue(value)}
		}
	}
	limited := func(memory string) func(*v1alpha1.EtcdClusterSpec) {
		return func(s *v1alpha1.EtcdClusterSpec) {
			s.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
		}
	}
	annotated := func(key string) func(*v1alpha1.EtcdClusterSpec) {
		return func(s *v1alpha1.EtcdClusterSpec) {
			s.AdditionalMetadata.Annotations = map[string]string{key: "any text"}
		}
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.EtcdClusterSpec)
		wrong  string // empty for nothing
	}{
		"a key with a space": {labelled("two words", "x"),
			`spec.additionalMetadata.labels has the invalid key "two words": use at most 63 letters`},
		"an empty key":        {labelled("", "x"), `has the invalid key ""`},
		"a long key":          {labelled(strings.Repeat("n", 64), "x"), "at most 63 letters"},
		"a key with a domain": {labelled("example.com/team", "x"), ""},
		"capitals":            {labelled("Team", "DB"), ""},
		"a value with a space": {labelled("team", "two words"),
			"spec.additionalMetadata.labels has an invalid label value for team"},
		"an empty value":      {labelled("team", ""), ""},
		"an annotation's key": {annotated("-x"), "spec.additionalMetadata.annotations has the invalid key"},
		// ValidateAnnotations of Kubernetes looks at its small letters
		"an annotation's key in capitals": {annotated("Example.com/x"), ""},
		"too little memory": {limited("10Mi"), "spec.resources.limits.memory 10Mi is too little for etcd: set 32Mi " +
			"or more"},
		"enough memory": {limited("32Mi"), ""},
	} {
		o := serve(3)
		c.change(&o.Cluster.Spec)
		d := Decide(o)
		assert.Equal(t, c.wrong != "", d.Reason.Rule == "Unsupported", name)
		assert.Contains(t, d.Reason.Message, c.wrong, name)
	}
}
