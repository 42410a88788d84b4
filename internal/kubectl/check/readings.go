package check

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// Names of the readings.
const (
	version        = "version"
	kinds          = "kinds"
	controllers    = "controllers"
	metacontroller = "metacontroller"
	workloads      = "workloads"
	trusted        = "trusted"
	rights         = "rights"
	quorate        = "quorate"
	secrets        = "secrets"
	namespaces     = "namespaces"
	clusters       = "clusters"
	policies       = "policies"
	classes        = "classes"
	apiServers     = "apiservers"
	log            = "log"
	own            = "own"
)

// What quorate install calls its Secrets and its ConfigMap.
const (
	forHooks  = "quorate-hooks"
	forCaller = "quorate-caller"
	callerCA  = "quorate-hook-ca"
)

// Labels by which Quorate and Metacontroller are told from others, and the parts of one Quorate from others.
const (
	nameLabel      = "app.kubernetes.io/name"
	partOf         = "app.kubernetes.io/part-of"
	ofInstallation = "quorate.dev/installation"
)

// MetacontrollersLabels choose the workloads that may be a Metacontroller: its own manifests and ours have the first
// name, its own chart the second.
const MetacontrollersLabels = nameLabel + " in (metacontroller,metacontroller-helm)"

// Options say where to look, and from where.
type Options struct {
	// Namespace is Quorate's, and Metacontroller that of Metacontroller; while that is empty, it is asked whether
	// Quorate has its own.
	Namespace, Metacontroller string
	// Version of this program, such as v0.1.0.
	Version string
	Now     time.Time
}

// Reading is one call of kubectl, which changes nothing.
type Reading struct {
	Name string
	// Right is what one must be allowed for it.
	Right string
	Args  []string
}

// First is the reading that tells whether there is any sense in the others.
func (o Options) First() Reading {
	return Reading{version, "none", []string{"version", "-o", "json"}}
}

// Own is the reading that tells whether Quorate has a Metacontroller of its own.
func (o Options) Own() Reading {
	return Reading{own, "list deployments in Quorate's namespace",
		[]string{"get", "deployments", "-n", o.Namespace, "-l", nameLabel + "=metacontroller," + partOf + "=quorate",
			"-o",
			"json"}}
}

// Found are the options with the namespace of Metacontroller, by the answer to that. What can't be read is taken for a
// Metacontroller that others have installed, in its usual namespace.
func (o Options) Found(own Answer) Options {
	o.Metacontroller = "metacontroller"
	var list struct{ Items []workload }
	if own.Err == "" && objects.Read(own.Out, &list) == nil && len(list.Items) > 0 {
		o.Metacontroller = o.Namespace
	}
	return o
}

// Readings are all others that do not depend on an answer. Each is a right of its own, so that a user who lacks one
// learns the rest.
func (o Options) Readings() []Reading {
	get := func(name, right string, args ...string) Reading {
		return Reading{name, right, append(append([]string{"get"}, args...), "-o", "json")}
	}
	crds := append([]string{"customresourcedefinitions", "--ignore-not-found", certificatesCRD}, shipped().itsKinds...)
	for _, k := range shipped().kinds {
		crds = append(crds, k.Metadata.Name)
	}
	return []Reading{
		get(kinds, "get customresourcedefinitions", crds...),
		get(controllers, "list compositecontrollers.metacontroller.k8s.io",
			"compositecontrollers.metacontroller.k8s.io"),
		get(metacontroller, "list statefulsets, deployments and pods in Metacontroller's namespace",
			"statefulsets,deployments,pods", "-n", o.Metacontroller),
		get(workloads, "list statefulsets and deployments in all namespaces", "statefulsets,deployments", "-A", "-l",
			MetacontrollersLabels),
		get(trusted, "get the ConfigMap "+callerCA+" in Metacontroller's namespace", "configmap", callerCA, "-n",
			o.Metacontroller, "--ignore-not-found", "--show-managed-fields"),
		get(rights, "list clusterroles and clusterrolebindings, and roles and rolebindings in Metacontroller's "+
			"namespace",
			"clusterroles,clusterrolebindings,roles,rolebindings", "-n", o.Metacontroller),
		get(quorate, "list deployments, services, networkpolicies and pods in Quorate's namespace",
			"deployments,services,networkpolicies,pods", "-n", o.Namespace, "-l", nameLabel+"=quorate"),
		get(namespaces, "list namespaces", "namespaces"),
		get(clusters, "list etcdclusters.etcd.quorate.dev in all namespaces", "etcdclusters.etcd.quorate.dev", "-A"),
		get(policies, "list validatingadmissionpolicies and validatingadmissionpolicybindings",
			"validatingadmissionpolicies,validatingadmissionpolicybindings"),
		get(classes, "list storageclasses", "storageclasses"),
		get(apiServers, "list pods in the namespace kube-system", "pods", "-n", metav1.NamespaceSystem, "-l",
			"component=kube-apiserver"), // as kubeadm labels them
	}
}

// Later are the readings that depend on the answers to the others: the Secrets that are named in them, and the log of
// Metacontroller's pods, if there are any.
func (s *Seen) Later() []Reading {
	names := s.secretNames()
	all := []Reading{{secrets, "get the Secrets " + strings.Join(names, " and ") + " in Quorate's namespace",
		slices.Concat([]string{"get", "secrets"}, names, []string{"-n", s.Namespace, "--ignore-not-found", "-o",
			"json"})}}
	w := s.metacontroller()
	if len(s.podsOf(w)) > 0 { // all of them: any may be the one that works
		all = append(all, Reading{log, "list pods, and get pods/log, in Metacontroller's namespace",
			[]string{"logs", "-l", metav1.FormatLabelSelector(w.Spec.Selector), "-n", s.Metacontroller, "-c",
				containerOf(w).Name, "--since=5m", "--tail=1000"}})
	}
	return all
}

// hooksSecret is the name of the Secret that Quorate's pods read.
func (s *Seen) hooksSecret() string {
	if w := s.deployment(); w != nil {
		for _, v := range w.Spec.Template.Spec.Volumes {
			if v.Secret != nil {
				return v.Secret.SecretName
			}
		}
	}
	return forHooks
}

// secretNames are that one and those that the CompositeControllers take the token from. There are always two at least,
// so that kubectl prints a list.
func (s *Seen) secretNames() []string {
	names := []string{s.hooksSecret(), forCaller}
	for _, w := range s.called() {
		if a := w.Authorization; a != nil && a.SecretRef.Namespace == s.Namespace &&
			!slices.Contains(names, a.SecretRef.Name) {
			names = append(names, a.SecretRef.Name)
		}
	}
	return names
}
