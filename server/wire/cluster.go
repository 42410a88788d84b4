package wire

import (
	"context"
	"io"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
)

// A ClusterCall is a call about an EtcdCluster. Of the CompositeController itself only the resync period is read.
type ClusterCall struct {
	Cluster    *v1beta1.EtcdCluster
	Children   observation.Children
	Related    observation.Related
	Finalizing bool
	// Resync is how often Metacontroller calls while nothing happens; 0 for never, or when the call does not say.
	Resync time.Duration
	// Made is how many bytes all of this takes in memory, rather too many.
	Made int64
	// secrets and related are what the Secrets of Children and Related hold. It goes nowhere but into the answer
	// (children) and to the members (a client's certificate and key).
	secrets, related map[string]map[string][]byte
	labelled         labelledSecrets          // related, of whatever namespace
	snapshots        []*v1beta1.EtcdSnapshot  // related, of whatever namespace
	operations       []*v1beta1.EtcdOperation // likewise, that have not ended
	remains          []metav1.Object          // likewise, claims and ConfigMaps
	// Keys are those of the installation by which records are sealed; none believes all.
	Keys [][]byte
}

// ReadCluster reads a call about an EtcdCluster. The error is a *Refusal, unless reading the body failed, or ctx has
// ended.
func ReadCluster(ctx context.Context, body io.Reader) (*ClusterCall, error) {
	in, err := newSource(body)
	if err != nil {
		return nil, err
	}
	r := &ClusterCall{}
	f := r.form(&secretReader{ctx: ctx, call: r, body: in.all})
	if r.Finalizing, err = f.read(in); err != nil {
		return nil, err
	}
	r.pick()
	r.Made = f.made
	return r, nil
}

func (r *ClusterCall) form(secrets *secretReader) *form {
	f := &form{
		controller: r.readController,
		parent:     parentTo(v1beta1.Kind, &r.Cluster),
		related: []group{
			maybe(group{name: groupSecrets, read: secrets.others}),
			maybe(group{name: groupSnapshots, read: r.readSnapshots}),
			maybe(group{name: groupOperations, read: r.readOperations}),
			maybe(group{name: "PersistentVolumeClaim.v1", read: readRemains[corev1.PersistentVolumeClaim](r, kindClaim)}),
			maybe(group{name: "ConfigMap.v1", read: readRemains[corev1.ConfigMap](r, kindConfigMap)}),
		},
	}
	for i := range observation.Kinds {
		g := childrenOf(&observation.Kinds[i], &r.Children)
		if g.name == groupSecrets {
			g.read = secrets.children
		}
		f.children = append(f.children, g)
	}
	return f
}

// Groups name the kinds of children that a call about an EtcdCluster must have, each "Kind.version" or
// "Kind.group/version".
func Groups() []string {
	var all []string
	for _, k := range observation.Kinds {
		if !k.Optional {
			all = append(all, k.Group())
		}
	}
	return all
}

// readController reads of the CompositeController how often it calls while nothing happens.
func (r *ClusterCall) readController(in *source) error {
	var controller struct {
		Spec struct {
			ResyncPeriodSeconds int32 `json:"resyncPeriodSeconds"`
		} `json:"spec"`
	}
	if err := value(in, "controller", &controller); err != nil {
		return err
	}
	r.Resync = time.Duration(max(0, controller.Spec.ResyncPeriodSeconds)) * time.Second
	return nil
}

// readSnapshots reads the related EtcdSnapshots. Asked for by name alone, Metacontroller (1.5.20, and 4.17.2) sends
// those of all namespaces; pick leaves only those of the parent's.
func (r *ClusterCall) readSnapshots(in *source, where string) error {
	return members(in, where, func(key string) error {
		s, err := one[v1beta1.EtcdSnapshot](in, member(where, key), v1beta1.GroupVersion.String(), v1beta1.KindSnapshot)
		if err == nil {
			r.snapshots = append(r.snapshots, s)
		}
		return err
	})
}

// readOperations reads the related EtcdOperations, and keeps those that have not ended.
func (r *ClusterCall) readOperations(in *source, where string) error {
	return members(in, where, func(key string) error {
		op, err := one[v1beta1.EtcdOperation](in, member(where, key), v1beta1.GroupVersion.String(),
			v1beta1.KindOperation)
		if err == nil && !op.Status.Phase.Ended() {
			r.operations = append(r.operations, op)
		}
		return err
	})
}

const (
	kindClaim     = "PersistentVolumeClaim"
	kindConfigMap = "ConfigMap"
)

// readRemains reads what may have been made for an earlier cluster.
func readRemains[T any, O objectOf[T]](r *ClusterCall, kind string) func(in *source, where string) error {
	return func(in *source, where string) error {
		return members(in, where, func(key string) error {
			o, err := one[T, O](in, member(where, key), "v1", kind)
			if err == nil {
				r.remains = append(r.remains, O(o))
			}
			return err
		})
	}
}

// pickRemains leaves what was made for another EtcdCluster of this name and namespace.
func (r *ClusterCall) pickRemains() {
	for _, o := range r.remains {
		kind := kindConfigMap
		if _, is := o.(*corev1.PersistentVolumeClaim); is {
			kind = kindClaim
		}
		remain, is := observation.RemainOf(kind, o, r.Cluster.UID)
		if is && o.GetNamespace() == r.Cluster.Namespace && o.GetLabels()[objects.LabelCluster] == r.Cluster.Name {
			r.Related.Remains = append(r.Related.Remains, remain)
		}
	}
}

// pick leaves of the related objects those of the parent's namespace alone, whatever was sent, and of the snapshots
// and operations those that matter.
func (r *ClusterCall) pick() {
	r.pickRemains()
	ns := r.Cluster.Namespace
	kept := facts.RelatedSelector(r.Cluster)
	for name, s := range r.Related.Secrets {
		r.labelled = append(r.labelled, s.ObjectMeta)
		if s.Namespace != ns || !selects(&kept, s.Labels) {
			delete(r.Related.Secrets, name)
			delete(r.related, name)
		}
	}
	r.Related.Labelled = r.labelled.of(ns)
	named := facts.SnapshotsNamed(r.Cluster)
	for _, s := range r.snapshots {
		if s.Namespace != ns || s.Labels[objects.LabelCluster] != r.Cluster.Name && !slices.Contains(named, s.Name) {
			continue
		}
		if r.Related.Snapshots == nil {
			r.Related.Snapshots = map[string]*v1beta1.EtcdSnapshot{}
		}
		r.Related.Snapshots[s.Name] = s
	}
	for _, op := range r.operations {
		if op.Namespace != ns || op.Spec.ClusterRef.Name != r.Cluster.Name {
			continue
		}
		if r.Related.Operations == nil {
			r.Related.Operations = map[string]*v1beta1.EtcdOperation{}
		}
		r.Related.Operations[op.Name] = op
	}
}

// Observation is what the call says, without etcd's answers.
func (r *ClusterCall) Observation(now time.Time, s observation.Settings) observation.Observation {
	unsealed, fresh := r.seals()
	return observation.Observation{
		Cluster: r.Cluster, Children: r.Children, Related: r.Related,
		WithoutLastApplied: observation.WithoutLastApplied(r.Children), Unsealed: unsealed, Fresh: fresh, Now: now,
		Resync: r.Resync, Settings: s,
		Zones: zones(&r.Cluster.Spec.Maintenance),
	}
}

func (r *ClusterCall) seals() (unsealed, fresh []string) {
	return record.Seals(r.Keys, r.Cluster, r.Children.ConfigMaps,
		r.Children.Services[objects.PeerService(r.Cluster.Name)])
}

// Secret is what a Secret holds, the cluster's own or one that the spec names; nil when the call has none of this name.
func (r *ClusterCall) Secret(name string) map[string][]byte {
	if own := r.secrets[name]; own != nil {
		return own
	}
	return r.related[name]
}

// sources are the Secrets that a recipe may read: the cluster's own, and that which it names of others.
func (r *ClusterCall) sources(recipe decision.Recipe) map[string]map[string][]byte {
	from := ""
	switch recipe := recipe.(type) {
	case decision.Adopt:
		from = recipe.From
	case decision.Revoked:
		from = recipe.From
	default:
		return r.secrets
	}
	all := maps.Clone(r.secrets)
	all[from] = r.Secret(from)
	return all
}

// Answer is the body of the answer, which holds what the decision lets make of Secrets: that is made again in each,
// and is secret. Finalized is nil unless the hook finalize is answered. It fails when the children can't be what was
// meant: without a name, twice, or in another namespace.
func (r *ClusterCall) Answer(d decision.Decision, finalized *bool) ([]byte, error) {
	var all []answerChild
	unsealed, _ := r.seals()
	d.Children.ConfigMaps = slices.Clone(d.Children.ConfigMaps)
	for i, cm := range d.Children.ConfigMaps {
		d.Children.ConfigMaps[i] = record.Sealed(r.Keys, r.Cluster, cm, unsealed)
	}
	for _, k := range observation.Kinds {
		observed := map[string]metav1.Object{}
		for o := range k.Observed(&r.Children) {
			observed[o.GetName()] = o
		}
		for o := range k.Wanted(&d.Children) {
			content, err := r.content(o, observed[o.GetName()])
			if err != nil {
				return nil, err
			}
			all = append(all, outgoing(r.Cluster.Namespace, k.APIVersion, k.Kind, o, content, observed[o.GetName()]))
		}
	}
	return encode(r.Cluster.Namespace, &d.Status, all, d.ResyncAfter, finalized)
}

// content is what an answer says of a wanted object beside its metadata.
func (r *ClusterCall) content(o, observed metav1.Object) (answerChild, error) {
	owned := answerMeta{OwnerReferences: o.GetOwnerReferences()}
	switch o := o.(type) {
	case *decision.DesiredSecret:
		content, err := r.secret(o)
		content.Metadata = owned
		return content, err
	case *decision.CertManagerCertificate: // whole: fields that others add and we don't set stay
		return answerChild{Metadata: owned, Spec: &o.Spec}, nil
	case *corev1.ConfigMap:
		return answerChild{Metadata: owned, Data: o.Data, Immutable: o.Immutable}, nil
	case *corev1.PersistentVolumeClaim:
		owned.OwnerReferences = answer.ToldOwners(o)
		return answerChild{Metadata: owned, Spec: specTold(o, observed)}, nil
	}
	return answerChild{Spec: specTold(o, observed)}, nil
}

// selects reports whether labels are those that a selector asks for. What Metacontroller sends may be there by another
// rule of customize.
func selects(s *metav1.LabelSelector, all map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(all))
}
