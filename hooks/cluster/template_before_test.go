package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// theirTemplates are the templates of pods that the release before this one made, as it wrote them, by what their
// spec says.
var theirTemplates = map[string]func(*v1alpha1.EtcdClusterSpec){
	"ed7c666e349fcad5": func(*v1alpha1.EtcdClusterSpec) {},
	"76a2c12422b9552a": func(s *v1alpha1.EtcdClusterSpec) {
		s.Storage = v1alpha1.StorageSpec{Medium: v1alpha1.Memory, Size: *quantity("128Mi")}
	},
	"28df60b2ca21d076": func(s *v1alpha1.EtcdClusterSpec) {
		s.Tolerations = []corev1.Toleration{{Key: "etcd", Operator: corev1.TolerationOpExists}}
		s.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: *quantity("1Gi")}
		s.Options.SnapshotCount, s.TLS.MinVersion = new(int64(5000)), "TLS1.3"
	},
}

// byThePrevious makes the pods what the release before this one leaves behind: it knows the one annotation, and drops
// the other.
func byThePrevious(o *observation.Observation, template string) {
	for _, pod := range o.Children.Pods {
		delete(pod.Annotations, objects.AnnotationTemplate)
		pod.Annotations[children.AnnotationFormerTemplate] = template
	}
}

// TestNeitherReleaseRestartsMembers: not when this one takes over, not when the other does again, and not when a spec
// has meanwhile been given words without an effect.
func TestNeitherReleaseRestartsMembers(t *testing.T) {
	for template, says := range theirTemplates {
		o := onVolumes()
		if says(&o.Cluster.Spec); o.Cluster.Spec.Storage.Medium == v1alpha1.Memory {
			o = inMemory()
			says(&o.Cluster.Spec)
		}
		byThePrevious(&o, template)
		d := Decide(o)
		require.Equal(t, "Converged", d.Reason.Rule, "%s: %s", template, d.Reason.Message)
		for _, pod := range d.Children.Pods {
			assert.Equal(t, children.TemplateNow(newView(o), "3.6.16"), pod.Annotations[objects.AnnotationTemplate])
			assert.Equal(t, template, pod.Annotations[children.AnnotationFormerTemplate],
				"the release before knows it by this")
		}
		observe(&o, d)
		assert.Equal(t, d.Children.Pods, Decide(o).Children.Pods, "at rest nothing more is written")

		o.Cluster.Spec.NodeSelector = map[string]string{}
		o.Cluster.Spec.Options.MaxTxnOps = new(int64(128))
		d = Decide(o)
		require.Equal(t, "Converged", d.Reason.Rule, d.Reason.Message)
		for _, pod := range d.Children.Pods {
			kept := pod.Annotations[children.AnnotationFormerTemplate]
			assert.Equal(t, children.FormerTemplate(&o.Cluster.Spec), kept,
				"it would restart the member for these words")
		}
		observe(&o, d)
		byThePrevious(&o, children.FormerTemplate(&o.Cluster.Spec))
		assert.Equal(t, "Converged", Decide(o).Reason.Rule)
	}
}

// TestAChangeReachesPodsOfThePreviousRelease: those that it made are not taken for ones that are as the spec wants
// them.
func TestAChangeReachesPodsOfThePreviousRelease(t *testing.T) {
	o := serve(3)
	byThePrevious(&o, "ed7c666e349fcad5")
	o.Cluster.Spec.PriorityClassName = "high"
	d := Decide(o)
	assert.Equal(t, "RollingUpdate", d.Reason.Rule)
	for _, pod := range d.Children.Pods {
		assert.NotContains(t, pod.Annotations, objects.AnnotationTemplate)
		assert.Equal(t, "ed7c666e349fcad5", pod.Annotations[children.AnnotationFormerTemplate])
	}
}

// TestTemplatesOfThisRelease: a release whose hashes are others restarts the members that have them. When this test
// fails, either that is wanted, and CHANGELOG.md says so; or what was added belongs into podSpec, or is left out of a
// template where it is the default.
func TestTemplatesOfThisRelease(t *testing.T) {
	hashes := map[string]string{}
	for former, says := range theirTemplates {
		c := fresh(3).Cluster
		says(&c.Spec)
		hashes[former] = children.TemplateOf(c, c.Spec.Version).Hash()
	}
	plain := fresh(3).Cluster
	plain.Spec.TLS.Mode = v1alpha1.TLSDisabled
	hashes["plain"] = children.TemplateOf(plain, plain.Spec.Version).Hash()
	assert.Equal(t, map[string]string{
		"28df60b2ca21d076": "9eea15ea4364b12c", "76a2c12422b9552a": "ba4f3fa9ce0a5b65",
		"ed7c666e349fcad5": "33e0440c40507884",
		"plain":            "1bcac447288c7315",
	}, hashes)
}
