package objects

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
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

// StreamSecret names the Secret with the keys by which the stream of a schedule signs, and RestoreSecret that by which
// members of a cluster believe what they restore. No schedule's is ever a cluster's.
func StreamSecret(schedule string) string { return schedule + "-stream-key" }

// RestoreSecret is at StreamSecret.
func RestoreSecret(cluster string) string { return cluster + "-restore-key" }

// memberServiceSuffix ends the name of a member's own Service.
const memberServiceSuffix = "-external"

// MemberService names a member's own Service, for clients outside Kubernetes.
func MemberService(member string) string { return member + memberServiceSuffix }

// MemberOfService is the member of this cluster that the Service of this name is for; false for another Service.
func MemberOfService(cluster, service string) (string, bool) {
	member, is := strings.CutSuffix(service, memberServiceSuffix)
	_, ours := Ordinal(cluster, member)
	return member, is && ours
}

// ExternalHost is the name of a member outside Kubernetes, with spec.memberService.
func ExternalHost(c *v1beta1.EtcdCluster, member string) string {
	return member + "." + c.Spec.MemberService.Domain
}

// EpochName names the record of an epoch.
func EpochName(cluster string, epoch int) string { return fmt.Sprintf("%s-epoch-%d", cluster, epoch) }

// Ports are those of the cluster's members, for clients, peers and metrics.
func Ports(c *v1beta1.EtcdCluster) (client, peer, metrics int) {
	h := c.Spec.HostNetwork
	if h == nil {
		return ClientPort, PeerPort, MetricsPort
	}
	return cmp.Or(int(h.ClientPort), ClientPort), cmp.Or(int(h.PeerPort), PeerPort),
		cmp.Or(int(h.MetricsPort), MetricsPort)
}

// PeerURL of a member: a name that stays the same wherever the pod runs. It has no cluster domain, so that it works in
// every Kubernetes cluster; the pods' search list completes it.
//
// On the hosts' network it has the address of the member's node, and the member's name as its user: etcd compares the
// URL as a whole and dials its host, so it is unlike that of every other member, before or after, on that node (S9).
func PeerURL(c *v1beta1.EtcdCluster, member, address string) string {
	return PeerURLOf(c, member, address, Encrypted(c))
}

// PeerURLOf a member that speaks TLS with its peers, or does not.
func PeerURLOf(c *v1beta1.EtcdCluster, member, address string, byTLS bool) string {
	scheme := "http"
	if byTLS {
		scheme = "https"
	}
	_, port, _ := Ports(c)
	if c.Spec.HostNetwork != nil {
		return fmt.Sprintf("%s://%s.%s@%s", scheme, member, c.Namespace, HostPort(address, port))
	}
	return fmt.Sprintf("%s://%s", scheme, HostPort(Host(c, member), port))
}

// ClientURL that a member advertises.
func ClientURL(c *v1beta1.EtcdCluster, member, address string) string {
	port, _, _ := Ports(c)
	return fmt.Sprintf("%s://%s", Scheme(c), HostPort(cmp.Or(address, Host(c, member)), port))
}

// AnyAddress is where a member listens that is reached at this address, on the hosts' network, or at its pod's.
func AnyAddress(address string) string {
	if strings.Contains(address, ":") {
		return "::" // on Linux that is version 4 as well
	}
	return "0.0.0.0"
}

// HostPort joins a name or an IP address, of version 4 or 6, with a port.
func HostPort(host string, port int) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("%s:%d", host, port)
}

// Host is the name under which a member is reached.
func Host(c *v1beta1.EtcdCluster, member string) string {
	return member + "." + PeerService(c.Name) + "." + c.Namespace + ".svc"
}

// Scheme that the members speak.
func Scheme(c *v1beta1.EtcdCluster) string {
	if Encrypted(c) {
		return "https"
	}
	return "http"
}

// MemberAt is the name of the member of this cluster that has one of these peer URLs; false for an unmanaged member.
func MemberAt(c *v1beta1.EtcdCluster, peerURLs []string) (string, bool) {
	for _, raw := range peerURLs {
		u, err := url.Parse(raw)
		if err != nil {
			continue
		}
		name, rest, _ := strings.Cut(u.Hostname(), ".")
		of := PeerService(c.Name) + "." + c.Namespace + ".svc"
		if c.Spec.HostNetwork != nil {
			name, rest, _ = strings.Cut(u.User.Username(), ".")
			of = c.Namespace
		}
		if _, ok := Ordinal(c.Name, name); ok && rest == of {
			return name, true
		}
	}
	return "", false
}

// AddressIn is the address of the node in the peer URL of a member on the hosts' network; empty for another URL.
func AddressIn(peerURL string) string {
	u, err := url.Parse(peerURL)
	if err != nil || u.User == nil {
		return ""
	}
	return u.Hostname()
}

// Encrypted reports whether members speak TLS.
func Encrypted(c *v1beta1.EtcdCluster) bool { return TLSMode(c) != v1beta1.TLSDisabled }

// TLSMode of the cluster's TLS.
func TLSMode(c *v1beta1.EtcdCluster) v1beta1.TLSMode {
	return cmp.Or(c.Spec.TLS.Mode, v1beta1.TLSAuto)
}

// OperatorSecret names the Secret with the certificate that Quorate shows to the members; empty when they speak plain
// text.
func OperatorSecret(c *v1beta1.EtcdCluster) string {
	switch s := c.Spec.TLS.Secrets; {
	case !Encrypted(c):
		return ""
	case TLSMode(c) == v1beta1.TLSSecrets && s != nil:
		return s.OperatorSecretRef.Name
	}
	return c.Name + "-operator-tls"
}
