package world

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	selected "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Cached is, by name, what Metacontroller's cache of a kind shows.
func (w *World) Cached(kind Kind) map[string]metav1.Object {
	if seen, frozen := w.Frozen[kind]; frozen {
		return seen
	}
	return w.current(kind)
}

// current is, by name, what the API server has of a kind.
func (w *World) current(kind Kind) map[string]metav1.Object {
	all := map[string]metav1.Object{}
	for key, o := range w.Objects {
		if key.Kind == kind {
			all[key.Name] = o
		}
	}
	return all
}

func (w *World) cachedCluster() *v1beta1.EtcdCluster {
	for _, o := range w.Cached(ClusterKind) {
		return o.(*v1beta1.EtcdCluster)
	}
	return nil
}

func (w *World) childrenOf(parent types.UID) map[Key]metav1.Object {
	children := map[Key]metav1.Object{}
	for _, kind := range childKinds {
		for name, o := range w.Cached(kind) {
			if owned(o, parent) {
				children[Key{kind, name}] = o
			}
		}
	}
	return children
}

// relatedTo are the Secrets that others keep for the cluster: see hooks.RelatedSelector.
func (w *World) relatedTo(c *v1beta1.EtcdCluster) observation.Related {
	chosen, err := metav1.LabelSelectorAsSelector(new(facts.RelatedSelector(c)))
	if err != nil {
		panic(err) // the selector is ours
	}
	secrets := such(w.Cached(SecretKind), func(s *observation.Secret) bool {
		return chosen.Matches(selected.Set(s.Labels))
	})
	return observation.Related{
		Secrets:    facts.Of(defaults.AskedKeys(c), secrets), // what the edge leaves out, no decision may miss
		Labelled:   labelled(w.Cached(SecretKind)),
		Remains:    w.remainsOf(c),
		Snapshots:  such(w.Cached(snapshotKind), func(*v1beta1.EtcdSnapshot) bool { return true }),
		Operations: such(w.Cached(OperationKind), func(op *v1beta1.EtcdOperation) bool { return !op.Status.Phase.Ended() }),
	}
}

// labelled are the Secrets that pods may have for what Quorate does not run.
func labelled(secrets map[string]metav1.Object) map[string]bool {
	all := map[string]bool{}
	for name, s := range secrets {
		if _, is := s.GetLabels()[objects.LabelExternal]; is {
			all[name] = true
		}
	}
	return all
}

// such are the objects of one type of which that is so, by name.
func such[T metav1.Object](all map[string]metav1.Object, is func(T) bool) map[string]T {
	found := map[string]T{}
	for name, o := range all {
		if t := o.(T); is(t) {
			found[name] = t
		}
	}
	return found
}

// remainsOf are the claims and ConfigMaps that were made for another cluster of this name.
func (w *World) remainsOf(c *v1beta1.EtcdCluster) (all []observation.Remain) {
	chosen, err := metav1.LabelSelectorAsSelector(new(facts.RemainsSelector(c, true)))
	if err != nil {
		panic(err) // the selector is ours
	}
	for kind, words := range map[Kind]string{ClaimKind: "PersistentVolumeClaim", ConfigMapKind: "ConfigMap"} {
		for _, o := range w.Cached(kind) {
			if remain, is := observation.RemainOf(words, o, c.UID); is && chosen.Matches(selected.Set(o.GetLabels())) {
				all = append(all, remain)
			}
		}
	}
	slices.SortFunc(all, func(a, b observation.Remain) int { return strings.Compare(a.Kind+a.Name, b.Kind+b.Name) })
	return all
}

// grouped are children by kind. Certificates are there only where the installation has a rule for them.
func (w *World) grouped(all map[Key]metav1.Object) observation.Children {
	c := group(all)
	if w.CertManager {
		c.Certificates = map[string]*decision.CertManagerCertificate{}
		for _, made := range w.Certificates {
			noted := *made
			noted.Annotations = maps.Clone(made.Annotations)
			if noted.Annotations == nil {
				noted.Annotations = map[string]string{}
			}
			noted.Annotations[objects.AnnotationLastApplied] = "{}"
			c.Certificates[made.Name] = &noted
		}
	}
	return c
}

func group(all map[Key]metav1.Object) observation.Children {
	return observation.Children{
		Pods: only[*corev1.Pod](all), Claims: only[*corev1.PersistentVolumeClaim](all),
		ConfigMaps: only[*corev1.ConfigMap](all), Services: only[*corev1.Service](all),
		Budgets: only[*policyv1.PodDisruptionBudget](all), Policies: only[*networkingv1.NetworkPolicy](all),
		Secrets: only[*observation.Secret](all),
	}
}

// only are the objects of one type, by name.
func only[T metav1.Object](all map[Key]metav1.Object) map[string]T {
	found := map[string]T{}
	for key, o := range all {
		if t, is := o.(T); is {
			found[key.Name] = t
		}
	}
	return found
}

func ungroup(d decision.Desired, secrets map[string]*observation.Secret) map[Key]metav1.Object {
	all := map[Key]metav1.Object{}
	add(all, PodKind, d.Pods)
	add(all, ClaimKind, d.Claims)
	add(all, ConfigMapKind, d.ConfigMaps)
	add(all, ServiceKind, d.Services)
	add(all, BudgetKind, d.Budgets)
	add(all, PolicyKind, d.Policies)
	add(all, SecretKind, slices.Collect(maps.Values(secrets)))
	return all
}

func add[T metav1.Object](all map[Key]metav1.Object, kind Kind, objects []T) {
	for _, o := range objects {
		all[Key{kind, o.GetName()}] = o
	}
}
