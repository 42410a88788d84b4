package facts

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// What certificates are needed for. Three things need them, and what one of them lacks is no reason to withhold
// another:
//
//	a pod, to run its member      the Secrets that it mounts         podCertificateProblems
//	Quorate, to talk with etcd    its own, and the foreign members'  quorateCertificateProblems
//	a change of the members       all of these, in order, and to     allCertificateProblems
//	                              stay so
//
// A pod that begins a member is a change: it waits until nothing is lacking. A pod that resumes one waits for
// nothing here. It mounts what its containers would be started with again at any time; the kubelet waits for a
// Secret or a key that is not there, and also where only Quorate can't see it; and the quorum may be waiting for
// it.

// MayExist reports whether a desired pod may be in the answer: one that is there, one that resumes a member, and
// while no certificate is lacking any other.
func (v *Facts) MayExist(pod *corev1.Pod) bool {
	return pod.UID != "" || PodStart(pod) == objects.StartResume || len(v.CertificateProblems) == 0
}

// podCertificateProblems says which of the Secrets that pods mount is not there or can't be used, and why; empty for
// none.
func (v *Facts) podCertificateProblems() []string {
	list := v.problemsOf(func(l defaults.Leaf) bool { return l.Server })
	token := defaults.TokenSecret(v.Cluster.Name)
	if s := v.Secret(token); s == nil {
		list = append(list, fmt.Sprintf("Secret %s: it is not there yet", token))
	} else if s.Flaw != "" { // etcd would not start with it
		list = append(list, fmt.Sprintf("Secret %s: %s; delete it, and Quorate makes it again", token, s.Flaw))
	}
	return list
}

// quorateCertificateProblems says the same of the Secrets by which Quorate talks with the members, ours and foreign
// ones.
func (v *Facts) quorateCertificateProblems() []string {
	return append(v.problemsOf(func(l defaults.Leaf) bool { return l.What == "operator" }),
		v.foreignCertificateProblems()...)
}

// allCertificateProblems says all that is lacking before a member is begun or changed.
func (v *Facts) allCertificateProblems() []string {
	if !objects.Encrypted(v.Cluster) {
		return nil
	}
	var list []string
	if why := v.WithoutCertManager(); why != "" {
		if list = append(list, why); !v.everHadQuorum() {
			return list // nothing else can be there
		}
	}
	list = append(list, v.podCertificateProblems()...)
	if list = append(list, v.quorateCertificateProblems()...); len(list) == 0 {
		list = v.notAdopted()
	}
	return list
}

// problemsOf says which of these certificates can't be used, and why. What applications use is none of them: neither
// a member nor Quorate waits for it.
func (v *Facts) problemsOf(these func(defaults.Leaf) bool) []string {
	var list []string
	for _, l := range v.Leaves {
		if !these(l) {
			continue
		}
		if why := v.Flaw(l); why != "" {
			list = append(list, fmt.Sprintf("Secret %s: %s", l.Secret, why))
		}
	}
	return list
}

// WhileCertificatesWait says what becomes of a cluster that has run, until its certificates are in order; empty for a
// new one.
func (v *Facts) WhileCertificatesWait() string {
	switch {
	case !v.everHadQuorum():
		return ""
	case v.Etcd == nil && len(v.quorateCertificateProblems()) > 0:
		return "; without it Quorate can't reach the members, so it only keeps or recreates pods"
	}
	return "; Quorate only keeps or recreates pods"
}

// everHadQuorum reports whether the epoch has had a quorum, so that its members may have data to serve.
func (v *Facts) everHadQuorum() bool { return v.Epoch != nil && v.Epoch.HadQuorum() }

// SeesMounted reports whether all authorities are known that a pod made now would trust: not while Quorate can't
// see a Secret that the kubelet may, or one has no authorities yet.
func (v *Facts) SeesMounted() bool {
	for _, name := range []string{defaults.ServerSecret(v.Cluster), defaults.PeerSecret(v.Cluster)} {
		if s := v.Secret(name); s == nil || len(s.Trust) == 0 {
			return false
		}
	}
	return objects.TLSMode(v.Cluster) != v1alpha1.TLSDisabled
}

// examine works out once what is wrong with the certificates of the epoch that runs, and of the next.
func (v *Facts) examine() *Facts {
	for w := v; w != nil; w = w.Next {
		members, nodes := w.Addresses()
		w.Leaves = defaults.Leaves(w.Cluster, defaults.Places{Members: members, Nodes: nodes, External: w.External(),
			Domain: w.Settings.ClusterDomain})
		w.CertificateProblems, w.Serves = w.allCertificateProblems(), w.served()
		w.Untrusted = w.findUntrusted()
	}
	return v
}
