package facts

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// What certificates are needed for. Three things need them, and what one of them lacks is no reason to withhold
// another:
//
//	a pod, to run its member      the Secrets that it mounts         podCertificateProblems
//	Quorate, to talk with etcd    its own, and the external members'  quorateCertificateProblems
//	a change of the members       all of these, in order, and to     allCertificateProblems
//	                              stay so
//
// A pod that begins a member is a change: it waits until nothing is lacking. A pod that resumes one waits only until
// the owners of the Secrets that it mounts agree: whatever else is wrong with them, its containers would be started
// with it again at any time, and the quorum may be waiting for it.

// MayExist reports whether a desired pod may be in the answer: one that is there, one that resumes a member with
// Secrets whose owners agree, and while no certificate is lacking any other.
func (f *Facts) MayExist(pod *corev1.Pod) bool {
	resumes := PodStart(pod) == objects.StartResume && f.OwnersAgree()
	return pod.UID != "" || resumes || len(f.CertificateProblems) == 0
}

// podCertificateProblems says which of the Secrets that pods mount is not there or can't be used, and why; empty for
// none.
func (f *Facts) podCertificateProblems() []string {
	list := f.problemsOf(func(l defaults.Leaf) bool { return l.Server })
	token := defaults.TokenSecret(f.Cluster.Name)
	if s := f.Secret(token); s == nil {
		list = append(list, fmt.Sprintf("Secret %s: it is not there yet", token))
	} else if s.Flaw != "" { // etcd would not start with it
		list = append(list, fmt.Sprintf("Secret %s: %s; delete it, and Quorate makes it again", token, s.Flaw))
	}
	return list
}

// quorateCertificateProblems says the same of the Secrets by which Quorate talks with the members, ours and external
// ones.
func (f *Facts) quorateCertificateProblems() []string {
	return append(f.problemsOf(func(l defaults.Leaf) bool { return l.What == "operator" }),
		f.externalCertificateProblems()...)
}

// allCertificateProblems says all that is lacking before a member is begun or changed.
func (f *Facts) allCertificateProblems() []string {
	if !objects.Encrypted(f.Cluster) {
		return nil
	}
	var list []string
	if why := f.WithoutCertManager(); why != "" {
		if list = append(list, why); !f.everHadQuorum() {
			return list // nothing else can be there
		}
	}
	if why := f.CRLAwaited(); why != "" {
		list = append(list, why)
	}
	list = append(list, f.podCertificateProblems()...)
	if list = append(list, f.quorateCertificateProblems()...); len(list) == 0 {
		list = f.notAdopted()
	}
	return list
}

// problemsOf says which of these certificates can't be used, and why. What applications use is none of them: neither
// a member nor Quorate waits for it.
func (f *Facts) problemsOf(these func(defaults.Leaf) bool) []string {
	var list []string
	for _, l := range f.Leaves {
		if !these(l) {
			continue
		}
		if why := f.Flaw(l); why != "" {
			list = append(list, fmt.Sprintf("Secret %s: %s", l.Secret, why))
		}
	}
	return list
}

// WhileCertificatesWait says what becomes of a cluster that has run, until its certificates are in order; empty for a
// new one.
func (f *Facts) WhileCertificatesWait() string {
	switch {
	case !f.everHadQuorum():
		return ""
	case f.Etcd == nil && len(f.quorateCertificateProblems()) > 0:
		return "; without them Quorate can't reach the members, so it only keeps or recreates pods"
	}
	return "; Quorate only keeps or recreates pods"
}

// everHadQuorum reports whether the epoch has had a quorum, so that its members may have data to serve.
func (f *Facts) everHadQuorum() bool { return f.Epoch != nil && f.Epoch.HadQuorum() }

// SeesMounted reports whether all authorities are known that a pod made now would trust: not while Quorate can't
// see a Secret that the kubelet may, or one has no authorities yet.
func (f *Facts) SeesMounted() bool {
	for _, name := range []string{defaults.ServerSecret(f.Cluster), defaults.PeerSecret(f.Cluster)} {
		if s := f.Secret(name); s == nil || len(s.Trust) == 0 {
			return false
		}
	}
	return objects.TLSMode(f.Cluster) != v1beta1.TLSDisabled
}

// examine works out once what is wrong with the certificates of the epoch that runs, and of the next.
func (f *Facts) examine() *Facts {
	for w := f; w != nil; w = w.Next {
		members, nodes := w.Addresses()
		w.Leaves = defaults.Leaves(w.Cluster, defaults.Places{Members: members, Nodes: nodes, External: w.LoadBalancerAddresses(),
			Domain: w.Settings.ClusterDomain})
		w.CertificateProblems = w.allCertificateProblems()
		w.Serves = w.served()
		w.Untrusted = w.findUntrusted()
	}
	return f
}
