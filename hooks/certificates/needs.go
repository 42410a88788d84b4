package certificates

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/foreign"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
)

// What certificates are needed for. Three things need them, and what one of them lacks is no reason to withhold
// another:
//
//	a pod, to run its member      the Secrets that it mounts         podCertificateProblems
//	Quorate, to talk with etcd    its own, and the foreign members'  quorateCertificateProblems
//	a change of the members       all of these, in order, and to     allCertificateProblems
//	                              stay so
//
// A pod that begins a member is a change: it waits until nothing is lacking. A pod that resumes one waits only until
// the owners of the Secrets that it mounts agree: whatever else is wrong with them, its containers would be started
// with it again at any time, and the quorum may be waiting for it.

// MayExist reports whether a desired pod may be in the answer: one that is there, one that resumes a member with
// Secrets whose owners agree, and while no certificate is lacking any other.
func MayExist(v *state.View, pod *corev1.Pod) bool {
	resumes := state.PodStart(pod) == objects.StartResume && v.OwnersAgree()
	return pod.UID != "" || resumes || len(v.CertificateProblems) == 0
}

// podCertificateProblems says which of the Secrets that pods mount is not there or can't be used, and why; empty for
// none.
func podCertificateProblems(v *state.View) []string {
	list := problemsOf(v, func(l spec.Leaf) bool { return l.Server })
	token := spec.TokenSecret(v.Cluster.Name)
	if s := Secret(v, token); s == nil {
		list = append(list, fmt.Sprintf("Secret %s: it is not there yet", token))
	} else if s.Flaw != "" { // etcd would not start with it
		list = append(list, fmt.Sprintf("Secret %s: %s; delete it, and Quorate makes it again", token, s.Flaw))
	}
	return list
}

// quorateCertificateProblems says the same of the Secrets by which Quorate talks with the members, ours and foreign
// ones.
func quorateCertificateProblems(v *state.View) []string {
	return append(problemsOf(v, func(l spec.Leaf) bool { return l.What == "operator" }),
		foreign.ForeignCertificateProblems(v)...)
}

// allCertificateProblems says all that is lacking before a member is begun or changed.
func allCertificateProblems(v *state.View) []string {
	if !objects.Encrypted(v.Cluster) {
		return nil
	}
	var list []string
	if why := WithoutCertManager(v); why != "" {
		if list = append(list, why); !everHadQuorum(v) {
			return list // nothing else can be there
		}
	}
	list = append(list, podCertificateProblems(v)...)
	if list = append(list, quorateCertificateProblems(v)...); len(list) == 0 {
		list = foreign.NotAdopted(v)
	}
	return list
}

// problemsOf says which of these certificates can't be used, and why. What applications use is none of them: neither
// a member nor Quorate waits for it.
func problemsOf(v *state.View, these func(spec.Leaf) bool) []string {
	var list []string
	for _, l := range v.Leaves {
		if !these(l) {
			continue
		}
		if why := Flaw(v, l); why != "" {
			list = append(list, fmt.Sprintf("Secret %s: %s", l.Secret, why))
		}
	}
	return list
}

// WhileCertificatesWait says what becomes of a cluster that has run, until its certificates are in order; empty for a
// new one.
func WhileCertificatesWait(v *state.View) string {
	switch {
	case !everHadQuorum(v):
		return ""
	case v.Etcd == nil && len(quorateCertificateProblems(v)) > 0:
		return "; without it Quorate can't reach the members, so it only keeps or recreates pods"
	}
	return "; Quorate only keeps or recreates pods"
}

// everHadQuorum reports whether the epoch has had a quorum, so that its members may have data to serve.
func everHadQuorum(v *state.View) bool { return v.Epoch != nil && v.Epoch.HadQuorum() }

// SeesMounted reports whether all authorities are known that a pod made now would trust: not while Quorate can't
// see a Secret that the kubelet may, or one has no authorities yet.
func SeesMounted(v *state.View) bool {
	for _, name := range []string{spec.ServerSecret(v.Cluster), spec.PeerSecret(v.Cluster)} {
		if s := Secret(v, name); s == nil || len(s.Trust) == 0 {
			return false
		}
	}
	return objects.TLSMode(v.Cluster) != v1alpha1.TLSDisabled
}

// Examine works out once what is wrong with the certificates of the epoch that runs, and of the next.
func Examine(v *state.View) *state.View {
	for w := v; w != nil; w = w.Next {
		members, nodes := w.Addresses()
		w.Leaves = spec.Leaves(w.Cluster, spec.Places{Members: members, Nodes: nodes, External: w.External(),
			Domain: w.Settings.ClusterDomain})
		w.CertificateProblems, w.Serves = allCertificateProblems(w), served(w)
		w.Untrusted = findUntrusted(w)
	}
	return v
}
