package server

import (
	"cmp"
	"io"
	"maps"
	"slices"

	"github.com/gin-gonic/gin"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// The groups in calls about EtcdSnapshots.
const (
	groupJobs     = "Job.batch/v1"
	groupClusters = "EtcdCluster.etcd.quorate.dev/v1alpha1"
)

// decodeSnapshotCall reads a call about an EtcdSnapshot.
func decodeSnapshotCall(body io.Reader) (o snapshot.Observation, finalizing bool, err error) {
	finalizing, err = parts{
		parent: func(in *source) error { return decodeSnapshotParent(in, &o.Snapshot) },
		children: map[string]func(*source, string) error{
			groupJobs: func(in *source, where string) error {
				return group(in, where, "batch/v1", "Job", &o.Jobs, func(w *wire[batchv1.JobSpec, batchv1.JobStatus]) *batchv1.Job {
					return &batchv1.Job{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
				})
			},
		},
		related: map[string]func(*source, string) error{
			groupPods: func(in *source, where string) error {
				return group(in, where, "v1", "Pod", &o.Pods, func(w *wire[corev1.PodSpec, corev1.PodStatus]) *corev1.Pod {
					return &corev1.Pod{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
				})
			},
			groupClusters: func(in *source, where string) error {
				return group(in, where, v1alpha1.GroupVersion.String(), v1alpha1.Kind, &o.Clusters, func(w *wire[v1alpha1.EtcdClusterSpec, v1alpha1.EtcdClusterStatus]) *v1alpha1.EtcdCluster {
					return &v1alpha1.EtcdCluster{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
				})
			},
		},
	}.read(body)
	if err != nil {
		return o, false, err
	}
	ns := o.Snapshot.Namespace
	return o, finalizing, cmp.Or(sameNamespace(groupJobs, ns, o.Jobs), sameNamespace(groupPods, ns, o.Pods), sameNamespace(groupClusters, ns, o.Clusters))
}

func decodeSnapshotParent(in *source, to **v1alpha1.EtcdSnapshot) error {
	var w wire[v1alpha1.EtcdSnapshotSpec, v1alpha1.EtcdSnapshotStatus]
	if err := value(in, "parent", &w); err != nil {
		return err
	}
	if err := identified("parent", &w.TypeMeta, &w.Metadata.ObjectMeta, v1alpha1.GroupVersion.String(), v1alpha1.KindSnapshot); err != nil {
		return err
	}
	if w.Metadata.Namespace == "" {
		return bad("parent.metadata.namespace is missing")
	}
	*to = &v1alpha1.EtcdSnapshot{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
	return nil
}

// snapshotHook answers the hooks sync and finalize of an EtcdSnapshot.
func (s *Server) snapshotHook(c *gin.Context) {
	began := s.now()
	o, finalizing, err := decodeSnapshotCall(c.Request.Body)
	if err == nil {
		err = s.options.Scope.elsewhere(v1alpha1.KindSnapshot, &o.Snapshot.ObjectMeta)
	}
	if err != nil {
		s.refuse(c, err)
		return
	}
	if finalizing && !s.options.Scope.selects(&o.Snapshot.ObjectMeta) {
		s.letSnapshotGo(c, o)
		return
	}
	if err := s.options.Scope.check(v1alpha1.KindSnapshot, &o.Snapshot.ObjectMeta); err != nil {
		s.refuse(c, err)
		return
	}
	// With --cascade=foreground the hook sync is sent while Kubernetes deletes the children, and then finalize.
	const hook = "/snapshots/finalize"
	if finalizing != (c.FullPath() == hook) || finalizing && o.Snapshot.DeletionTimestamp == nil {
		s.refuse(c, bad("the hook is %s, and finalizing is %t; a parent that is being deleted is finalized, by %s alone", c.FullPath(), finalizing, hook))
		return
	}
	o.Now, o.Images = began, s.options.Settings.Images
	d := snapshot.Decide(o)
	if s.options.Verify {
		if err := snapshot.Verify(o, d); err != nil {
			s.metrics.violations.Inc()
			s.refuse(c, err)
			return
		}
	}
	var finalized *bool
	if finalizing {
		finalized = &d.Finalized
	}
	body, err := encodeParts(o.Snapshot.Namespace, &d.Status, jobsTold(o, d.Jobs), d.ResyncAfter, finalized)
	if err != nil {
		s.refuse(c, err)
		return
	}
	s.metrics.snapshotDecided(o.Snapshot, &d)
	s.logParent("snapshot", &o.Snapshot.ObjectMeta, d.Because, d.Status.Phase == o.Snapshot.Status.Phase && !d.Finalized, began)
	if d.Finalized {
		s.saidOfOthers.forget(o.Snapshot.UID)
	}
	reply(c, body)
}

func jobsTold(o snapshot.Observation, jobs []*batchv1.Job) []answerChild {
	return specs(o.Snapshot.Namespace, "batch/v1", "Job", jobs, o.Jobs, func(j *batchv1.Job) *batchv1.JobSpec { return &j.Spec })
}

// letSnapshotGo answers as letGo does.
func (s *Server) letSnapshotGo(c *gin.Context, o snapshot.Observation) {
	finalized := true
	jobs := slices.SortedFunc(maps.Values(o.Jobs), func(a, b *batchv1.Job) int { return cmp.Compare(a.Name, b.Name) })
	body, err := encodeParts(o.Snapshot.Namespace, &o.Snapshot.Status, jobsTold(o, jobs), 0, &finalized)
	if err != nil {
		s.refuse(c, err)
		return
	}
	s.saidOfOthers.forget(o.Snapshot.UID)
	reply(c, body)
}

// snapshotCustomize answers the hook customize of an EtcdSnapshot. Where Metacontroller remembers answers by the name alone, it may depend on
// nothing else (see snapshot.Pods): then all EtcdClusters of the namespace are asked for, and each of their writes asks about the snapshot.
func (s *Server) snapshotCustomize(c *gin.Context) {
	var parent *v1alpha1.EtcdSnapshot
	in, err := newSource(c.Request.Body)
	if err == nil {
		err = object(in, "the request", func(key string) error {
			if key == "parent" {
				return decodeSnapshotParent(in, &parent)
			}
			return skip(in, key)
		})
	}
	if err == nil && parent == nil {
		err = bad("parent is missing")
	}
	if err == nil {
		err = s.options.Scope.elsewhere(v1alpha1.KindSnapshot, &parent.ObjectMeta)
	}
	if err != nil {
		s.refuse(c, err)
		return
	}
	clusters := relatedRule{APIVersion: v1alpha1.GroupVersion.String(), Resource: "etcdclusters"}
	if s.options.RelatedByUID {
		clusters.Namespace, clusters.Names = parent.Namespace, []string{parent.Spec.Cluster}
		if parent.DeletionTimestamp != nil { // any of them may restore it; a deletion is another generation (markAsDeleting in apiserver's registry/store.go)
			clusters.Names = nil
		}
	}
	body, err := encodeRules(
		relatedRule{APIVersion: "v1", Resource: "pods", LabelSelector: new(snapshot.Pods(parent.Name))},
		clusters,
	)
	if err != nil {
		s.refuse(c, err)
		return
	}
	reply(c, body)
}
