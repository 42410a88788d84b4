package hooks

import (
	"cmp"
	"encoding/json"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// template is all that a spec decides of a member's pod and that only another pod can change. It is in one form for
// all specs that mean the same: a default that is said is one that is not, no list is empty, and a quantity is
// written in one way. A running pod carries the hash of the template that it was made from, so an edit without an
// effect on pods restarts no member, by construction. Pods are made from a template, and not from a spec;
// TestPodsAreMadeFromTheirTemplate holds the two against each other, field by field.
//
// What a spec does not decide is in podSpec alone, and so a new Quorate does not mean new pods. A release that
// changes a value in here, such as a default, restarts the members that have it, one at a time.
// TestTemplatesOfThisRelease says so beforehand.
//
// Not in here is what comes to running members in another way: the version and the image (imageDiffers), the quota on
// a volume (quotaDiffers), how members speak (tlsFlagsDiffer, allowsAnyPeer), their volumes (volumeDiffers), and labels
// and annotations, which Kubernetes changes in place.
type template struct {
	PullPolicy  corev1.PullPolicy
	PullSecrets []corev1.LocalObjectReference `json:",omitempty"`
	// Affinity and Spread are nil for what members have by default.
	Affinity      *corev1.Affinity                  `json:",omitempty"`
	Spread        []corev1.TopologySpreadConstraint `json:",omitempty"`
	NodeSelector  map[string]string                 `json:",omitempty"`
	Tolerations   []corev1.Toleration               `json:",omitempty"`
	PriorityClass string                            `json:",omitempty"`
	// Server and Peer are the Secrets with the certificates; empty in plain text.
	Server, Peer string `json:",omitempty"`
	// Tmpfs is the size of the data volume on Memory; nil on others.
	Tmpfs     *resource.Quantity `json:",omitempty"`
	Resources corev1.ResourceRequirements
	Options   v1alpha1.Options
	// MinTLS, CipherSuites and SimpleToken are empty in plain text.
	MinTLS       string   `json:",omitempty"`
	CipherSuites []string `json:",omitempty"`
	SimpleToken  bool     `json:",omitempty"`
}

// templateRevision is raised by a change of podSpec that running members should get.
const templateRevision = 1

// hash is what pods carry in [AnnotationTemplate].
func (t *template) hash() string { return fingerprint([]any{templateRevision, t}) }

// templateOf is the template for pods that are made for this version of etcd.
func templateOf(c *v1alpha1.EtcdCluster, version string) *template {
	s := &c.Spec
	t := &template{
		PullPolicy: cmp.Or(s.Image.PullPolicy, corev1.PullIfNotPresent), PullSecrets: unlessEmpty(s.Image.PullSecrets),
		Affinity: affinity(c), Spread: spread(c), Tolerations: tolerations(s.Tolerations),
		PriorityClass: s.PriorityClassName, Resources: containerResources(s), Options: options(s, version),
	}
	if len(s.NodeSelector) > 0 {
		t.NodeSelector = s.NodeSelector
	}
	if objects.Encrypted(c) {
		t.Server, t.Peer = serverSecret(c), peerSecret(c)
		t.MinTLS, t.CipherSuites = cmp.Or(s.TLS.MinVersion, minTLS), unlessEmpty(s.TLS.CipherSuites)
		t.SimpleToken = s.Auth != nil && s.Auth.Token == v1alpha1.TokenSimple
	}
	if s.Storage.Medium == v1alpha1.Memory {
		t.Tmpfs = new(objects.Canonical(storageSize(s)))
	}
	return t
}

// templateNow is the hash of the template for pods that are made for this version of etcd, remembered once it is
// known.
func (v *view) templateNow(version string) string {
	known := &v.templates[0]
	if !experimental(version) {
		known = &v.templates[1]
	}
	if *known == "" {
		*known = templateOf(v.Cluster, version).hash()
	}
	return *known
}

// templateOutdated reports whether the pod was made from another template than the spec asks for now.
func (v *view) templateOutdated(pod *corev1.Pod) bool {
	if has, told := pod.Annotations[objects.AnnotationTemplate]; told {
		return has != v.templateNow(madeForVersion(pod))
	}
	return pod.Annotations[annotationFormerTemplate] != v.formerTemplate()
}

// noteTemplate puts on a pod of what template it is.
func (v *view) noteTemplate(pod *corev1.Pod, version string) {
	pod.Annotations[objects.AnnotationTemplate] = v.templateNow(version)
	pod.Annotations[annotationFormerTemplate] = v.formerTemplate()
}

func unlessEmpty[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

var (
	defaultSize     = resource.MustParse("1Gi")
	defaultRequests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi"),
	}
)

// containerResources are the spec's with defaults for requests; another one that has only a limit gets that, as in
// every pod of Kubernetes. On Memory the tmpfs counts against the container's memory, so its size is added.
func containerResources(s *v1alpha1.EtcdClusterSpec) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{}, Limits: maps.Clone(s.Resources.Limits),
		Claims: unlessEmpty(s.Resources.Claims),
	}
	maps.Copy(r.Requests, s.Resources.Limits)
	for name, fallback := range defaultRequests {
		if limit, limited := r.Limits[name]; !limited || limit.Cmp(fallback) > 0 {
			r.Requests[name] = fallback
		}
	}
	maps.Copy(r.Requests, s.Resources.Requests)
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		if memory, set := list[corev1.ResourceMemory]; set && s.Storage.Medium == v1alpha1.Memory {
			memory.Add(storageSize(s))
			list[corev1.ResourceMemory] = memory
		}
		for name, q := range list {
			list[name] = objects.Canonical(q)
		}
	}
	return r
}

// affinity is the spec's, without the parts of it that ask for nothing; nil for what members have by default.
func affinity(c *v1alpha1.EtcdCluster) *corev1.Affinity {
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
	if equality.Semantic.DeepEqual(&a, apart(c)) {
		return nil
	}
	return &a
}

// apart is the affinity by default: members prefer to be on different nodes.
func apart(c *v1alpha1.EtcdCluster) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100,
			PodAffinityTerm: corev1.PodAffinityTerm{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: selector(c)},
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
func spread(c *v1alpha1.EtcdCluster) []corev1.TopologySpreadConstraint {
	var list []corev1.TopologySpreadConstraint
	for _, t := range c.Spec.TopologySpreadConstraints {
		if t.LabelSelector == nil {
			t.LabelSelector = &metav1.LabelSelector{MatchLabels: selector(c)}
		}
		t.MinDomains = unless(t.MinDomains, 1)
		t.NodeAffinityPolicy = unless(t.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor)
		t.NodeTaintsPolicy = unless(t.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore)
		list = append(list, t)
	}
	if len(list) == 1 && equality.Semantic.DeepEqual(list, overZones(c)) {
		return nil
	}
	return list
}

// overZones are the constraints by default: members are in different zones, where there are some.
func overZones(c *v1alpha1.EtcdCluster) []corev1.TopologySpreadConstraint {
	return []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector: &metav1.LabelSelector{MatchLabels: selector(c)},
	}}
}

// unless is the value, or nil when it is the one that nil means.
func unless[T comparable](value *T, meant T) *T {
	if value != nil && *value == meant {
		return nil
	}
	return value
}

// selector matches the cluster's pods.
func selector(c *v1alpha1.EtcdCluster) map[string]string {
	return map[string]string{objects.LabelCluster: c.Name}
}

// options are those of etcd that only a restart changes, with their defaults said; those of etcd's own that are meant
// anyway are left out.
func options(s *v1alpha1.EtcdClusterSpec, version string) v1alpha1.Options {
	o := s.Options
	o.QuotaBackendBytes = nil // on a volume it follows that: see quotaDiffers
	if s.Storage.Medium == v1alpha1.Memory {
		o.QuotaBackendBytes = new(quotaBytes(s.Options, storageSize(s)))
	}
	o.HeartbeatInterval, o.ElectionTimeout, o.LogLevel = heartbeatMillis(o), electionMillis(o),
		cmp.Or(o.LogLevel, "info")
	o.SnapshotCount = unless(o.SnapshotCount, snapshotCount(version))
	o.MaxRequestBytes, o.MaxTxnOps = unless(o.MaxRequestBytes, 3<<19), unless(o.MaxTxnOps, 128)
	o.AutoCompaction = autoCompaction(o.AutoCompaction)
	return o
}

// snapshotCount is etcd's own default (DefaultSnapshotCount in its etcdserver/server.go; those of the other options,
// which are the same in all releases, are in its embed/config.go). It differs only between versions that no pod goes
// between with its flags: see sameFlags.
func snapshotCount(version string) int64 {
	if experimental(version) {
		return 100_000
	}
	return 10_000
}

// autoCompaction with its retention as it is written by itself: 1h, not 60m. What can't be read is refused by
// validate.
func autoCompaction(c v1alpha1.AutoCompaction) v1alpha1.AutoCompaction {
	switch c.Mode {
	case v1alpha1.CompactOff:
		c.Retention = ""
	case v1alpha1.CompactRevision:
		c.Retention = cmp.Or(c.Retention, "10000")
		if n, err := strconv.ParseInt(c.Retention, 10, 64); err == nil {
			c.Retention = strconv.FormatInt(n, 10)
		}
	default:
		c.Mode, c.Retention = v1alpha1.CompactPeriodic, cmp.Or(c.Retention, "1h")
		if d, err := time.ParseDuration(c.Retention); err == nil {
			c.Retention = brief(d)
		}
	}
	return c
}
