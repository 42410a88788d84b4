package facts

import (
	"cmp"
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// TemplateOf is the template for pods that are made for this version of etcd.
func TemplateOf(c *v1beta1.EtcdCluster, version string) *defaults.Template {
	s := &c.Spec
	t := &defaults.Template{
		PullPolicy: cmp.Or(s.Image.PullPolicy, corev1.PullIfNotPresent), PullSecrets: UnlessEmpty(s.Image.PullSecrets),
		Affinity: affinity(c), Spread: spread(c), Tolerations: tolerations(s.Tolerations),
		PriorityClass: s.PriorityClassName, Resources: containerResources(s), Options: defaults.OptionsFor(s, version),
	}
	if len(s.NodeSelector) > 0 {
		t.NodeSelector = s.NodeSelector
	}
	if s.ServiceAccountName != "default" {
		t.ServiceAccount = s.ServiceAccountName
	}
	if t.Runtime = s.RuntimeClassName; s.SchedulerName != corev1.DefaultSchedulerName {
		t.Scheduler = s.SchedulerName
	}
	if own := objects.PodSecurity(s.SecurityContext); !equality.Semantic.DeepEqual(own, objects.PodSecurity(nil)) {
		t.Security = own
	}
	if s.HostNetwork != nil {
		t.Ports = &defaults.Ports{}
		t.Ports.Client, t.Ports.Peer, t.Ports.Metrics = objects.Ports(c)
	}
	if objects.Encrypted(c) {
		t.Server = defaults.ServerSecret(c)
		t.Peer = defaults.PeerSecret(c)
		t.MinTLS = cmp.Or(s.TLS.MinVersion, defaults.MinTLS)
		t.CipherSuites = UnlessEmpty(s.TLS.CipherSuites)
	}
	if s.Storage.Medium == v1beta1.Memory {
		t.Tmpfs = new(objects.Canonical(defaults.StorageSize(s)))
	}
	return t
}

// TemplateNow is the hash of the template for pods that are made for this version of etcd, remembered once it is
// known.
func (f *Facts) TemplateNow(version string) string {
	known := &f.Templates[0]
	if !defaults.Experimental(version) {
		known = &f.Templates[1]
	}
	if *known == "" {
		*known = TemplateOf(f.Cluster, version).Hash()
	}
	return *known
}

// TemplateOutdated reports whether the pod was made from another template than the spec asks for now.
func (f *Facts) TemplateOutdated(pod *corev1.Pod) bool {
	return pod.Annotations[objects.AnnotationTemplate] != f.TemplateNow(MadeForVersion(pod))
}

// UnlessEmpty is the list, and nil for an empty one, so that both make the same template.
func UnlessEmpty[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

var (
	defaultRequests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi"),
	}
)

// containerResources are the spec's with defaults for requests; another one that has only a limit gets that, as in
// every pod of Kubernetes. On Memory the tmpfs counts against the container's memory, so its size is added.
func containerResources(s *v1beta1.EtcdClusterSpec) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{}, Limits: maps.Clone(s.Resources.Limits),
		Claims: UnlessEmpty(s.Resources.Claims),
	}
	maps.Copy(r.Requests, s.Resources.Limits)
	for name, fallback := range defaultRequests {
		if limit, limited := r.Limits[name]; !limited || limit.Cmp(fallback) > 0 {
			r.Requests[name] = fallback
		}
	}
	maps.Copy(r.Requests, s.Resources.Requests)
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		if memory, set := list[corev1.ResourceMemory]; set && s.Storage.Medium == v1beta1.Memory {
			memory.Add(defaults.StorageSize(s))
			list[corev1.ResourceMemory] = memory
		}
		for name, q := range list {
			list[name] = objects.Canonical(q)
		}
	}
	return r
}

// affinity is the spec's, without the parts of it that ask for nothing; nil for what members have by default.
func affinity(c *v1beta1.EtcdCluster) *corev1.Affinity {
	if c.Spec.Affinity == nil {
		return nil
	}
	a := *c.Spec.Affinity
	for _, part := range []struct {
		of   any
		drop func()
	}{
		{a.NodeAffinity, func() { a.NodeAffinity = nil }},
		{a.PodAffinity, func() { a.PodAffinity = nil }},
		{a.PodAntiAffinity, func() { a.PodAntiAffinity = nil }},
	} {
		if raw, err := json.Marshal(part.of); err == nil && string(raw) == "{}" {
			part.drop()
		}
	}
	if equality.Semantic.DeepEqual(&a, Apart(c)) {
		return nil
	}
	return &a
}

// Apart is the affinity by default: members prefer to be on different nodes.
func Apart(c *v1beta1.EtcdCluster) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100,
			PodAffinityTerm: corev1.PodAffinityTerm{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: objects.Selector(c)},
			},
		}},
	}}
}

// tolerations are the spec's. One without an operator means Equal (the field operator of Toleration in
// k8s.io/api/core/v1/types.go).
func tolerations(list []corev1.Toleration) []corev1.Toleration {
	var all []corev1.Toleration
	for _, t := range list {
		if t.Operator == corev1.TolerationOpEqual {
			t.Operator = ""
		}
		all = append(all, t)
	}
	return all
}

// spread are the spec's constraints, without what they mean anyway (TopologySpreadConstraint in
// k8s.io/api/core/v1/types.go); nil for those that members have by default.
func spread(c *v1beta1.EtcdCluster) []corev1.TopologySpreadConstraint {
	var list []corev1.TopologySpreadConstraint
	for _, t := range c.Spec.TopologySpreadConstraints {
		if t.LabelSelector == nil {
			t.LabelSelector = &metav1.LabelSelector{MatchLabels: objects.Selector(c)}
		}
		t.MinDomains = unless(t.MinDomains, 1)
		t.NodeAffinityPolicy = unless(t.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor)
		t.NodeTaintsPolicy = unless(t.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore)
		list = append(list, t)
	}
	if len(list) == 1 && equality.Semantic.DeepEqual(list, OverZones(c)) {
		return nil
	}
	return list
}

// OverZones are the constraints by default: members are in different zones, where there are some.
func OverZones(c *v1beta1.EtcdCluster) []corev1.TopologySpreadConstraint {
	return []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector: &metav1.LabelSelector{MatchLabels: objects.Selector(c)},
	}}
}

// unless is the value, or nil when it is the one that nil means.
func unless[T comparable](value *T, meant T) *T {
	if value != nil && *value == meant {
		return nil
	}
	return value
}
