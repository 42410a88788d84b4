package hooks

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
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

// mayExist reports whether a desired pod may be in the answer: one that is there, one that resumes a member, and
// while no certificate is lacking any other.
func (v *view) mayExist(pod *corev1.Pod) bool {
	return pod.UID != "" || podStart(pod) == objects.StartResume || len(v.certificateProblems) == 0
}

// podCertificateProblems says which of the Secrets that pods mount is not there or can't be used, and why; empty for
// none.
func (v *view) podCertificateProblems() []string {
	list := v.problemsOf(func(l leaf) bool { return l.server })
	if token := TokenSecret(v.Cluster.Name); v.secret(token) == nil {
		list = append(list, fmt.Sprintf("Secret %s: it is not there yet", token))
	}
	return list
}

// quorateCertificateProblems says the same of the Secrets by which Quorate talks with the members, ours and foreign
// ones.
func (v *view) quorateCertificateProblems() []string {
	return append(v.problemsOf(func(l leaf) bool { return l.what == "operator" }), v.foreignCertificateProblems()...)
}

// allCertificateProblems says all that is lacking before a member is begun or changed.
func (v *view) allCertificateProblems() []string {
	if !objects.Encrypted(v.Cluster) {
		return nil
	}
	var list []string
	if why := v.withoutCertManager(); why != "" {
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
func (v *view) problemsOf(these func(leaf) bool) []string {
	var list []string
	for _, l := range v.leaves {
		if !these(l) {
			continue
		}
		if why := v.flaw(l); why != "" {
			list = append(list, fmt.Sprintf("Secret %s: %s", l.secret, why))
		}
	}
	return list
}

// whileCertificatesWait says what becomes of a cluster that has run, until its certificates are in order; empty for a
// new one.
func (v *view) whileCertificatesWait() string {
	switch {
	case !v.everHadQuorum():
		return ""
	case v.Etcd == nil && len(v.quorateCertificateProblems()) > 0:
		return ", without which Quorate can't reach the members; nothing is changed, pods are kept or brought back"
	}
	return "; nothing is changed, pods are kept or brought back"
}

// everHadQuorum reports whether the epoch has had a quorum, so that its members may have data to serve.
func (v *view) everHadQuorum() bool { return v.epoch != nil && v.epoch.hadQuorum() }

// seesMounted reports whether all authorities are known that a pod made now would trust: not while Quorate can't
// see a Secret that the kubelet may, or one has no authorities yet.
func (v *view) seesMounted() bool {
	for _, name := range []string{serverSecret(v.Cluster), peerSecret(v.Cluster)} {
		if s := v.secret(name); s == nil || len(s.Trust) == 0 {
			return false
		}
	}
	return objects.TLSMode(v.Cluster) != v1alpha1.TLSDisabled
}
