package world

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// For those who put real parts in the place of parts of this world: a hook that answers elsewhere, and a kubelet that
// runs processes. They take Collect with them, and neither Sync nor Pass.

// Question is a call of the hook sync or finalize. What it holds may only be read.
type Question struct {
	Parent     *v1alpha1.EtcdCluster
	Children   map[Key]metav1.Object
	Related    observation.Related
	Finalizing bool
}

// Reply is the answer to a Question. Finalized counts while it is being deleted only.
type Reply struct {
	Children  map[Key]metav1.Object
	Status    v1alpha1.EtcdClusterStatus
	Finalized bool
}

// Ask is the call that Metacontroller would make now; nil when there is no cluster.
func (w *World) Ask() *Question {
	parent := w.cachedCluster()
	if parent == nil {
		return nil
	}
	parent, alive := w.ensureFinalizer(parent)
	if !alive {
		return nil
	}
	return w.about(parent)
}

func (w *World) about(parent *v1alpha1.EtcdCluster) *Question {
	return &Question{Parent: parent, Children: w.childrenOf(parent.UID), Related: w.relatedTo(parent),
		Finalizing: parent.DeletionTimestamp != nil}
}

// Take applies the answer, whatever has changed since the question. Its objects are kept.
func (w *World) Take(q *Question, r Reply) {
	w.apply(&Call{
		parent: q.Parent, observed: q.Children, Finalizing: q.Finalizing, Finalized: q.Finalizing && r.Finalized,
		lookedAfter: true,
		Decision:    decision.Decision{Status: r.Status},
	}, r.Children)
}

// OfKind are the objects of one kind, in the order of their names.
func (w *World) OfKind(kind Kind) []metav1.Object { return list[metav1.Object](w, kind) }

// Schedule binds the pod to a node and gives it an address, unless something holds it back; false when it has none.
func (w *World) Schedule(pod *corev1.Pod) bool { return w.scheduled(pod) }

// Report writes the status of a pod that is there.
func (w *World) Report(name string, status corev1.PodStatus) {
	w.editPod(name, func(p *corev1.Pod) { p.Status = status })
}
