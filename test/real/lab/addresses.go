package main

import (
	"fmt"
	"net"
	"strconv"
)

// The addresses exist only inside the lab's network namespaces, so that two
// labs may have the same. The host sees nothing but a port on 127.0.0.1.

// families of IP addresses that a lab has, as QUORATE_LAB_IP says.
type families string

const (
	v4   families = "v4"
	v6   families = "v6"
	dual families = "dual" // both; what has one address alone has one of version 4
)

func parseFamilies(s string) (families, error) {
	switch f := families(s); f {
	case v4, v6, dual:
		return f, nil
	}
	return "", fmt.Errorf("QUORATE_LAB_IP=%s: must be v4, v6 or dual", s)
}

// of what there is in both versions, those that the lab has. The first is what
// Kubernetes calls the primary one.
func (f families) of(four, six string) []string {
	switch f {
	case v6:
		return []string{six}
	case dual:
		return []string{four, six}
	}
	return []string{four}
}

func (f families) serviceCIDRs() []string  { return f.of("10.96.0.0/16", "fd00:96::/112") }
func (f families) apiServiceIPs() []string { return f.of("10.96.0.1", "fd00:96::1") }
func (f families) dnsServiceIPs() []string { return f.of("10.96.0.10", "fd00:96::a") }
func (f families) podsCIDRs() []string     { return f.of("10.244.0.0/16", "fd00:244::/48") }

// everywhere is what listens at every address, and the route to all.
func (f families) everywhere() []string { return f.of("0.0.0.0", "::") }

// names of the families, as Kubernetes' API has them.
func (f families) names() []string { return f.of("IPv4", "IPv6") }

// ips of the node.
func (n node) ips() []string {
	return n.lab.families.of(fmt.Sprintf("172.30.0.%d", n.id), fmt.Sprintf("fd00:172:30::%d", n.id))
}

func (n node) ip() string { return n.ips()[0] }

// networks are the node's addresses with the length of the network's prefix.
func (n node) networks() []string {
	return n.lab.families.of(fmt.Sprintf("172.30.0.%d/24", n.id), fmt.Sprintf("fd00:172:30::%d/64", n.id))
}

func (n node) podCIDRs() []string {
	return n.lab.families.of(fmt.Sprintf("10.244.%d.0/24", n.id), fmt.Sprintf("fd00:244:0:%d::/64", n.id))
}

// at is the node's address with a port.
func (n node) at(port int) string { return net.JoinHostPort(n.ip(), strconv.Itoa(port)) }

// maxNodes: a single machine holds no more with pleasure.
const maxNodes = 9
