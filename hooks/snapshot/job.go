package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/stores"
)

const (
	// etcd and etcdutl are where etcd's images have them.
	etcdBinary, etcdutlBinary = "/usr/local/bin/etcd", "/usr/local/bin/etcdutl"
	// deleteRetries and deleteDeadline are of one Job that deletes; another follows. None follows where nothing is
	// known to be stored, and the deadline is shorter then: its pod may lack the very Secret without which the snapshot
	// failed.
	deleteRetries      = 2
	deleteDeadline     = 10 * time.Minute
	deleteDeadlineVain = 90 * time.Second
	// inspectDeadline is that of the Job that looks what is stored.
	inspectDeadline = 90 * time.Second
)

// Key is where a snapshot is stored, below the folder of its store. It is the same whenever it is asked for, and no
// other snapshot has it: a Job that is repeated finds what the one before it has done.
func Key(s *v1beta1.EtcdSnapshot) string {
	key := path.Join(s.Namespace, s.Spec.SourceName(), s.Name+"-"+shortUID(s)+".db")
	if compression(s) == v1beta1.CompressZstd {
		key += ".zst"
	}
	if s.Spec.Encryption != nil {
		key += ".age"
	}
	return key
}

func compression(s *v1beta1.EtcdSnapshot) v1beta1.Compression {
	return cmp.Or(s.Spec.Compression, v1beta1.CompressZstd)
}

// shortUID is what tells snapshots of one name apart.
func shortUID(s *v1beta1.EtcdSnapshot) string {
	return string(s.UID[:min(8, len(s.UID))])
}

// jobNumber is n in the name of a Job; 1 for a name that is not ours.
func jobNumber(job *batchv1.Job) int {
	n, err := strconv.Atoi(job.Name[strings.LastIndexByte(job.Name, '-')+1:])
	if err != nil || n < 1 || n > 1_000_000 {
		return 1
	}
	return n
}

// oursByName reports whether a pod is of a Job of this very snapshot, be that Job gone.
func (v *view) oursByName(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	prefix := strings.TrimSuffix(objects.NumberedName(v.Snapshot, objects.ContainerSnapshot, 1), "1")
	return owner != nil && strings.HasPrefix(owner.Name, prefix)
}

// clientEndpoints are the client URLs of the voters.
func clientEndpoints(c *v1beta1.EtcdCluster) []string {
	var list []string
	for _, m := range c.Status.Members {
		if _, ours := objects.Ordinal(c.Name, m.Name); ours && m.Role == v1beta1.Voter {
			list = append(list, objects.ClientURL(c, m.Name, ""))
		}
	}
	return list
}

// takingJob is the nth Job that takes the snapshot. Nothing blocks it.
func (v *view) takingJob(n int) *batchv1.Job {
	s := v.Snapshot
	of := v.source()
	store := stores.AccessTo(s.Spec.Store, s.Spec.Job.ServiceAccountName, false)
	main := corev1.Container{
		Name:            objects.ContainerSnapshot,
		Image:           of.image,
		ImagePullPolicy: of.pullPolicy,
		Command:         append([]string{objects.ToolsBinary, "snapshot"}, snapshotArgs(s, of.args, store.Args)...),
		Env:             []corev1.EnvVar{objects.Temporary(objects.ScratchDir)},
		VolumeMounts: slices.Concat([]corev1.VolumeMount{objects.ToolsMount(), objects.ScratchMount()}, store.Mounts,
			of.mounts),
		Resources: Resources(s.Spec.Job.Resources, trialMemory(s, of.size)),
	}
	pod := v.jobPod(main, store, []corev1.Volume{objects.ToolsVolume(), objects.ScratchVolume()})
	pod.Spec.InitContainers = []corev1.Container{objects.ToolsContainer(v.Images, main.Resources)}
	pod.Spec.ImagePullSecrets = of.pull
	pod.Spec.Volumes = append(pod.Spec.Volumes, of.volumes...)
	retries := int32(3)
	if r := s.Spec.Job.Retries; r != nil {
		retries = *r
	}
	return v.job(objects.NumberedName(s, objects.ContainerSnapshot, n), retries, v.deadline(), pod)
}

// snapshotArgs are the flags of quorate-snapshot snapshot, with those by which it comes to etcd and to the store.
func snapshotArgs(s *v1beta1.EtcdSnapshot, etcd, store []string) []string {
	args := slices.Concat(etcd, store, []string{"--key=" + Key(s)}, compressedAs(s))
	if s3 := s.Spec.Store.S3; s3 != nil && s3.ObjectLock != nil {
		args = append(args, "--lock="+strings.ToLower(string(s3.ObjectLock.Mode)),
			"--retain-for="+s3.ObjectLock.RetainFor.Duration.String())
	}
	args = append(args, fmt.Sprintf("--verify=%t", s.Spec.Verify == nil || *s.Spec.Verify), "--etcd="+etcdBinary,
		"--etcdutl="+etcdutlBinary, "--scratch="+objects.ScratchDir)
	if u := UnlessOf(s); u != nil {
		args = append(args, fmt.Sprintf("--unless-revision=%d", u.Revision), "--unless-cluster="+u.ClusterID,
			fmt.Sprintf("--unless-auth-revision=%d", u.AuthRevision))
	}
	return args
}

// deleteJob is the nth Job that deletes what is stored.
func (v *view) deleteJob(n int) *batchv1.Job {
	deadline := deleteDeadline
	if v.Snapshot.Status.URI == "" {
		deadline = deleteDeadlineVain
	}
	return v.storeJob(objects.ContainerDelete, n, deadline)
}

// inspectJob is the next one that looks what is stored.
func (v *view) inspectJob() *batchv1.Job {
	n := 1
	if last := lastJob(v.inspecting); last != nil {
		n = jobNumber(last) + 1
	}
	return v.storeJob(objects.ContainerInspect, n, inspectDeadline)
}

// storeJob is the nth Job for a purpose that has to do with the store alone. It needs no cluster: that may be gone.
func (v *view) storeJob(purpose string, n int, deadline time.Duration) *batchv1.Job {
	s := v.Snapshot
	store := stores.AccessTo(s.Spec.Store, s.Spec.Job.ServiceAccountName, false)
	main := corev1.Container{
		Name:            purpose,
		Image:           v.Images.Image,
		ImagePullPolicy: v.Images.ImagePullPolicy,
		Command:         []string{objects.SnapshotProgram},
		Args:            append(append([]string{purpose}, store.Args...), "--key="+Key(s)),
		VolumeMounts:    store.Mounts,
		Resources:       Resources(s.Spec.Job.Resources, 0),
	}
	return v.job(objects.NumberedName(s, purpose, n), deleteRetries, deadline, v.jobPod(main, store, nil))
}

// jobPod is a pod with this one container and what it needs for its store.
func (v *view) jobPod(main corev1.Container, store stores.Access, volumes []corev1.Volume) corev1.PodTemplateSpec {
	s := v.Snapshot
	main.Env = append(main.Env, store.Env...)
	all := v.jobLabels()
	for k, value := range store.Labels {
		all[k] = value
	}
	spec := PodSpec(main, append(volumes, store.Volumes...), v.podSecurity())
	spec.RestartPolicy = corev1.RestartPolicyNever // each attempt leaves its own report
	spec.ServiceAccountName = s.Spec.Job.ServiceAccountName
	spec.NodeSelector = s.Spec.Job.NodeSelector
	spec.Tolerations = s.Spec.Job.Tolerations
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: all}, Spec: spec}
}

// Answering has a container answer at this port: /health, /status and /metrics.
func Answering(main *corev1.Container, name string, port int) {
	main.Ports = []corev1.ContainerPort{{Name: name, ContainerPort: int32(port), Protocol: corev1.ProtocolTCP}}
	main.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/health",
			Port: intstr.FromInt(port), Scheme: corev1.URISchemeHTTP}},
		PeriodSeconds: 5, TimeoutSeconds: 2, SuccessThreshold: 1, FailureThreshold: 3,
	}
}

// PodSpec is that of a pod with this one container, of quorate-snapshot, which may do nothing that it need not.
// Security may be nil.
func PodSpec(main corev1.Container, volumes []corev1.Volume, security *v1beta1.PodSecurity) corev1.PodSpec {
	main.SecurityContext = objects.Restricted()
	main.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	if memory, limited := main.Resources.Limits[corev1.ResourceMemory]; limited {
		main.Env = append(main.Env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: fmt.Sprint(memory.Value() / 10 * 9)})
	}
	return corev1.PodSpec{
		AutomountServiceAccountToken: new(false),
		EnableServiceLinks:           new(false),
		SecurityContext:              objects.PodSecurity(security),
		Containers:                   []corev1.Container{main},
		Volumes:                      volumes,
	}
}

// podSecurity is what the snapshot says of its pods, else what its cluster does, while it is there.
func (v *view) podSecurity() *v1beta1.PodSecurity {
	if s := v.Snapshot.Spec.Job.SecurityContext; s != nil || v.cluster == nil {
		return s
	}
	return v.cluster.Spec.SecurityContext
}

// jobLabels are on Jobs and their pods. LabelCluster is not: by that the members are found.
func (v *view) jobLabels() map[string]string {
	return map[string]string{
		objects.LabelSnapshot:          labelValue(v.Snapshot.Name),
		"app.kubernetes.io/name":       "etcd-snapshot",
		"app.kubernetes.io/instance":   v.Snapshot.Spec.SourceName(),
		"app.kubernetes.io/managed-by": "quorate",
	}
}

// trialMemory is what an etcd on trial may take beyond what is the same for all, of a database with so many bytes, in
// bytes. Its index of all keys grows with their number: a quarter of the database is enough where a key and its value
// have 250 bytes, and more than enough where they have more.
func trialMemory(s *v1beta1.EtcdSnapshot, database int64) int64 {
	if !verifies(s) {
		return 0
	}
	return database >> 22 << 20
}

// JobMemory is the limit of memory when the spec names none, in bytes: what the pod holds does not grow with the data,
// except for a trial.
const JobMemory = 256 << 20

// Resources are those of a spec with defaults; more is memory in bytes.
func Resources(r corev1.ResourceRequirements, more int64) corev1.ResourceRequirements {
	set := func(list corev1.ResourceList, defaults map[corev1.ResourceName]*resource.Quantity) corev1.ResourceList {
		all := corev1.ResourceList{}
		for name, q := range list {
			all[name] = objects.Canonical(q)
		}
		for name, fallback := range defaults {
			if _, there := all[name]; !there {
				all[name] = *fallback
			}
		}
		return all
	}
	parsed := func(text string) *resource.Quantity { q := resource.MustParse(text); return &q }
	limits := set(r.Limits,
		map[corev1.ResourceName]*resource.Quantity{corev1.ResourceMemory: resource.NewQuantity(JobMemory+more,
			resource.BinarySI)})
	requests := set(r.Requests, map[corev1.ResourceName]*resource.Quantity{corev1.ResourceCPU: parsed("100m"),
		corev1.ResourceMemory: parsed("64Mi")})
	for name, limit := range limits {
		if request, asked := requests[name]; asked && limit.Cmp(request) < 0 {
			requests[name] = limit
		}
	}
	return corev1.ResourceRequirements{Requests: requests, Limits: limits, Claims: r.Claims}
}

// job makes pods until one ends well, so many times more than once. A pod that Kubernetes itself takes away (a drain, a
// preemption) does not count, and two never run at once.
func (v *view) job(name string, retries int32, deadline time.Duration, pod corev1.PodTemplateSpec) *batchv1.Job {
	objects.Literal(&pod.Spec)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: v.jobLabels()},
		Spec: batchv1.JobSpec{
			BackoffLimit:          &retries,
			ActiveDeadlineSeconds: new(int64(deadline / time.Second)),
			PodReplacementPolicy:  new(batchv1.Failed),
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action: batchv1.PodFailurePolicyActionIgnore,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget,
					Status: corev1.ConditionTrue}},
			}}},
			Template: pod,
		},
	}
}

// validate says what is wrong with an EtcdSnapshot. Its cluster is a part of the name under
// which it is stored.
func validate(s *v1beta1.EtcdSnapshotSpec) error {
	if (s.External == nil) == (s.ClusterRef.Name == "") {
		return errors.New("set exactly one of spec.clusterRef and spec.external")
	}
	if !clusterNames().MatchString(s.SourceName()) {
		return errors.New("spec.clusterRef.name and spec.external.name must be valid names: use lower-case letters, " +
			"digits and '-', beginning with a letter")
	}
	return cmp.Or(validateExternal(s.External), stores.Validate("spec.store", &s.Store),
		objects.ValidatePodSecurity("spec.job.securityContext", s.Job.SecurityContext))
}

// validateExternal says why the Job must not come to this etcd: what is secret never goes over plain text.
func validateExternal(external *v1beta1.ExternalSource) error {
	if external == nil {
		return nil
	}
	if !externalVersions().MatchString(external.Version) {
		return errors.New("spec.external.version must be a release of etcd, such as 3.5.16")
	}
	return ValidateWay("spec.external", &external.ExternalEtcd)
}

// ValidateWay says why no pod must come to an etcd as a field says, where the API server did not refuse it.
func ValidateWay(field string, external *v1beta1.ExternalEtcd) error {
	for _, endpoint := range external.Endpoints {
		if strings.HasPrefix(endpoint, "https://") != (external.CASecretRef.Name != "") {
			return fmt.Errorf("%s.caSecretRef is for endpoints that begin with https://, and these need it; "+
				"use one of the two for all of them", field)
		}
	}
	switch {
	case len(external.Endpoints) == 0:
		return fmt.Errorf("%s.endpoints is empty", field)
	case external.CASecretRef.Name == "" && external.ClientSecretRef.Name+external.UserSecretRef.Name != "":
		return fmt.Errorf("%[1]s.clientSecretRef and %[1]s.userSecretRef need %[1]s.caSecretRef", field)
	}
	return nil
}

var externalVersions = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^3[.][567][.][0-9]{1,4}$`) })

var clusterNames = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z]([-a-z0-9]{0,46}[a-z0-9])?$`) })
