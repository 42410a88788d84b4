package objects

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// Ports of a member.
const (
	ClientPort  = 2379
	PeerPort    = 2380
	MetricsPort = 2381
)

// MemberName names member n of a cluster: its pod, its claim, its etcd name. Numbers count up and are never reused
// (S9).
func MemberName(cluster string, n int) string { return fmt.Sprintf("%s-%d", cluster, n) }

// MostMembers bounds the numbers: far more than a cluster ever has. What is above is not ours, and can't make the next
// one overflow.
const MostMembers = 1_000_000_000

// Ordinal is the number in a member's name; false for a name that is not a member's of this cluster.
func Ordinal(cluster, name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, cluster+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || n >= MostMembers || strconv.Itoa(n) != digits {
		return 0, false
	}
	return n, true
}

// ReadMark reads a high-water mark; 0 for what is none.
func ReadMark(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > MostMembers {
		return 0
	}
	return n
}

// ClientService names the Service for applications.
func ClientService(cluster string) string { return cluster }

// PeerService names the headless Service that gives members their stable names.
func PeerService(cluster string) string { return cluster + "-peers" }

// EpochName names the record of an epoch.
func EpochName(cluster string, epoch int) string { return fmt.Sprintf("%s-epoch-%d", cluster, epoch) }

// PeerURL of a member: a name that stays the same wherever the pod runs. It has no cluster domain, so that it works in
// every Kubernetes cluster; the pods' search list completes it.
func PeerURL(c *v1alpha1.EtcdCluster, member string) string {
	return PeerURLOf(c, member, Encrypted(c))
}

// PeerURLOf a member that speaks TLS with its peers, or does not.
func PeerURLOf(c *v1alpha1.EtcdCluster, member string, byTLS bool) string {
	scheme := "http"
	if byTLS {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s:%d", scheme, Host(c, member), PeerPort)
}

// ClientURL that a member advertises.
func ClientURL(c *v1alpha1.EtcdCluster, member string) string {
	return fmt.Sprintf("%s://%s:%d", Scheme(c), Host(c, member), ClientPort)
}

// Host is the name under which a member is reached.
func Host(c *v1alpha1.EtcdCluster, member string) string {
	return member + "." + PeerService(c.Name) + "." + c.Namespace + ".svc"
}

// Scheme that the members speak.
func Scheme(c *v1alpha1.EtcdCluster) string {
	if Encrypted(c) {
		return "https"
	}
	return "http"
}

// MemberAt is the name of the member of this cluster that has one of these peer URLs; false for a stranger.
func MemberAt(c *v1alpha1.EtcdCluster, peerURLs []string) (string, bool) {
	for _, raw := range peerURLs {
		u, err := url.Parse(raw)
		if err != nil {
			continue
		}
		name, rest, _ := strings.Cut(u.Hostname(), ".")
		if _, ok := Ordinal(c.Name, name); ok && rest == PeerService(c.Name)+"."+c.Namespace+".svc" {
			return name, true
		}
	}
	return "", false
}

// Encrypted reports whether members speak TLS.
func Encrypted(c *v1alpha1.EtcdCluster) bool { return TLSMode(c) != v1alpha1.TLSDisabled }

// TLSMode of the cluster's TLS.
func TLSMode(c *v1alpha1.EtcdCluster) v1alpha1.TLSMode {
	return cmp.Or(c.Spec.TLS.Mode, v1alpha1.TLSAuto)
}

// OperatorSecret names the Secret with the certificate that Quorate shows to the members; empty when they speak plain
// text.
func OperatorSecret(c *v1alpha1.EtcdCluster) string {
	switch s := c.Spec.TLS.Secrets; {
	case !Encrypted(c):
		return ""
	case TLSMode(c) == v1alpha1.TLSSecrets && s != nil:
		return s.Operator
	}
	return c.Name + "-operator-tls"
}
