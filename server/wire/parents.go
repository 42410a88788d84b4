package wire

import (
	"io"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/mirror"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/operation"
	"github.com/quorate-dev/quorate/hooks/schedule"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// A Call is one to the hook sync or finalize about a parent that is no EtcdCluster, and O what is observed of it. What
// the clock and the installation say is for the caller to add.
type Call[O any] struct {
	Observation O
	Finalizing  bool
}

// readCall reads a call into an observation. The error is a *Refusal, unless reading the body failed.
func readCall[O any](body io.Reader, into func(o *O) *form) (*Call[O], error) {
	in, err := newSource(body)
	if err != nil {
		return nil, err
	}
	c := &Call[O]{}
	if c.Finalizing, err = into(&c.Observation).read(in); err != nil {
		return nil, err
	}
	return c, nil
}

// clustersTo reads the EtcdClusters that are related to a parent.
func clustersTo(all *map[string]*v1beta1.EtcdCluster) group {
	return groupTo(v1beta1.GroupVersion.String(), v1beta1.Kind, all)
}

// labelledTo reads which of the Secrets are there that are related to a parent; of what they hold nothing is read.
func labelledTo(all *map[string]bool) group {
	var seen labelledSecrets
	return maybe(group{name: groupSecrets, read: func(in *source, where string) error {
		return members(in, where, func(key string) error { return seen.read(in, member(where, key)) })
	}, within: func(namespace string) error {
		*all = seen.of(namespace)
		return nil
	}})
}

// labelledSecrets are Secrets that may have the label by which pods of ours have them.
type labelledSecrets []metav1.ObjectMeta

// read reads what a Secret is called and how it is labelled, and nothing that it holds.
func (l *labelledSecrets) read(in *source, where string) error {
	var meta metav1.ObjectMeta
	err := members(in, where, func(field string) error {
		if field == "metadata" {
			return value(in, where+".metadata", &meta)
		}
		return skip(in, field)
	})
	*l = append(*l, meta)
	return err
}

// of are those of a namespace, by name.
func (l labelledSecrets) of(namespace string) map[string]bool {
	all := map[string]bool{}
	for _, meta := range l {
		if _, is := meta.Labels[objects.LabelExternal]; is && meta.Namespace == namespace {
			all[meta.Name] = true
		}
	}
	return all
}

// ReadSnapshot reads a call about an EtcdSnapshot.
func ReadSnapshot(body io.Reader) (*Call[snapshot.Observation], error) {
	return readCall(body, func(o *snapshot.Observation) *form {
		return &form{
			parent:   parentTo(v1beta1.KindSnapshot, &o.Snapshot),
			children: []group{groupTo("batch/v1", "Job", &o.Jobs)},
			related:  []group{clustersTo(&o.Clusters), groupTo("v1", "Pod", &o.Pods), labelledTo(&o.Labelled)},
		}
	})
}

// ReadOperation reads a call about an EtcdOperation.
func ReadOperation(body io.Reader) (*Call[operation.Observation], error) {
	return readCall(body, func(o *operation.Observation) *form {
		return &form{
			parent:  parentTo(v1beta1.KindOperation, &o.Operation),
			related: []group{clustersTo(&o.Clusters)},
		}
	})
}

// ReadMirror reads a call about an EtcdMirror.
func ReadMirror(body io.Reader) (*Call[mirror.Observation], error) {
	return readCall(body, func(o *mirror.Observation) *form {
		return &form{
			parent:   parentTo(v1beta1.KindMirror, &o.Mirror),
			children: []group{groupTo("v1", "Pod", &o.Pods)},
			related:  []group{clustersTo(&o.Clusters), labelledTo(&o.Labelled)},
		}
	})
}

// ReadSchedule reads a call about an EtcdSnapshotSchedule.
func ReadSchedule(body io.Reader) (*Call[schedule.Observation], error) {
	c, err := readCall(body, func(o *schedule.Observation) *form {
		return &form{
			parent: parentTo(v1beta1.KindSchedule, &o.Schedule),
			children: []group{
				groupTo(v1beta1.GroupVersion.String(), v1beta1.KindSnapshot, &o.Snapshots),
				maybe(groupTo("v1", "Pod", &o.Pods)),
				maybe(streamSecretsTo(&o.Secrets)),
			},
			related: []group{maybe(clustersTo(&o.Clusters)), labelledTo(&o.Labelled)},
		}
	})
	if err == nil && c.Observation.Schedule.Spec.Stream != nil {
		for name, missing := range map[string]bool{"Pod.v1": c.Observation.Pods == nil,
			groupSecrets: c.Observation.Secrets == nil} {
			if missing {
				return nil, Bad("%s is missing: spec.stream needs the CompositeController of this version", child(name))
			}
		}
	}
	return c, err
}

// streamSecretsTo reads the Secrets of a schedule's own, and of what they hold a sum.
func streamSecretsTo(all *map[string]*schedule.Secret) group {
	var whole map[string]*corev1.Secret
	g := groupTo("v1", "Secret", &whole)
	read := g.read
	g.read = func(in *source, where string) error {
		err := read(in, where)
		*all = map[string]*schedule.Secret{}
		for name, s := range whole {
			(*all)[name] = &schedule.Secret{ObjectMeta: s.ObjectMeta, Sum: sumOf(s.Data[objects.KeyStream])}
		}
		return err
	}
	return g
}

// AnswerSnapshot is the body of the answer about an EtcdSnapshot. Finalized, here and below, is nil unless the hook
// finalize is answered.
func AnswerSnapshot(o *snapshot.Observation, d *snapshot.Decision, finalized *bool) ([]byte, error) {
	ns := o.Snapshot.Namespace
	return encode(ns, &d.Status, specs(ns, "batch/v1", "Job", d.Jobs, o.Jobs), d.ResyncAfter, finalized)
}

// AnswerOperation is that about an EtcdOperation.
func AnswerOperation(o *operation.Observation, d *operation.Decision, finalized *bool) ([]byte, error) {
	return encode(o.Operation.Namespace, &d.Status, nil, 0, finalized)
}

// AnswerMirror is that about an EtcdMirror.
func AnswerMirror(o *mirror.Observation, d *mirror.Decision, finalized *bool) ([]byte, error) {
	ns := o.Mirror.Namespace
	return encode(ns, &d.Status, specs(ns, "v1", "Pod", d.Pods, o.Pods), d.ResyncAfter, finalized)
}

// AnswerSchedule is that about an EtcdSnapshotSchedule. Labels are what each snapshot is labelled with besides what the
// decision says, and keys those of the installation.
//
// A snapshot that is kept is told what it was told when it was made, with the values that people have given to that
// since: a template that has changed is for new ones alone.
func AnswerSchedule(
	o *schedule.Observation, d *schedule.Decision, labels func(*v1beta1.EtcdSnapshot) map[string]string,
	keys [][]byte, finalized *bool,
) ([]byte, error) {
	ns := o.Schedule.Namespace
	var list []answerChild
	for _, snapshot := range d.Snapshots {
		var observed metav1.Object
		if old := o.Snapshots[snapshot.Name]; old != nil {
			observed = old
		}
		spec := specTold(snapshot.DeepCopy(), observed)
		m := schedule.Told(snapshot)
		all := labels(snapshot)
		maps.Copy(all, m.Labels)
		m.Labels = all
		list = append(list, outgoing(ns, v1beta1.GroupVersion.String(), v1beta1.KindSnapshot, m,
			answerChild{Metadata: answerMeta{OwnerReferences: m.OwnerReferences}, Spec: spec}, observed))
	}
	for _, s := range d.Secrets {
		var observed metav1.Object
		if old := o.Secrets[s.Name]; old != nil {
			observed = old
		}
		list = append(list, outgoing(ns, "v1", "Secret", s, streamKeys(keys, ns, s.Sum), observed))
	}
	list = append(list, specs(ns, "v1", "Pod", d.Pods, o.Pods)...)
	return encode(ns, &d.Status, list, d.ResyncAfter, finalized)
}
