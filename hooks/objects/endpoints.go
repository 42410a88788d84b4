package objects

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Who may write an EtcdCluster names, in spec.bootstrap.external, where Quorate's server asks for an etcd. That
// server stands where the author does not: it reaches the members of every tenant, and says what it met. So where an
// etcd may be is the choice of the installation.

// AllowedEndpoints are where an etcd may be that EtcdClusters join. Nil and the zero value allow none.
type AllowedEndpoints struct {
	// Networks of addresses, without bits behind their length.
	Networks []netip.Prefix
	// Hosts are names and, where they begin with a dot, ends of names; in lower case, and none of a Service.
	Hosts []string
}

// nameForm is that of a name in DNS. The last label has a letter, so that no address is taken for one.
var nameForm = regexp.MustCompile(`^[.]?([a-z0-9]([a-z0-9-]*[a-z0-9])?[.])*[a-z0-9]*[a-z]([a-z0-9-]*[a-z0-9])?$`)

// ParseAllowedEndpoints reads a list with commas between: networks such as 10.1.2.0/24, names such as
// etcd.example.com, and ends of names such as .etcd.example.com. The result is sorted; nil for an empty list. The
// error names the element that is wrong.
func ParseAllowedEndpoints(list string) (*AllowedEndpoints, error) {
	if list == "" {
		return nil, nil
	}
	a := &AllowedEndpoints{}
	for one := range strings.SplitSeq(list, ",") {
		if strings.Contains(one, "/") {
			network, err := netip.ParsePrefix(one)
			if err != nil || network != network.Masked() || network.Addr().Is4In6() {
				return nil, fmt.Errorf("%q is not a network such as 10.1.2.0/24 or fd00:1::/64, whose bits after the "+
					"prefix are zero; one address is 10.1.2.3/32", one)
			}
			if never(network.Addr()) && network.Bits() >= 8 {
				return nil, fmt.Errorf("%q has addresses that can't be allowed: loopback, link-local, unspecified or "+
					"multicast", one)
			}
			a.Networks = append(a.Networks, network)
			continue
		}
		if !nameForm.MatchString(one) || len(one) > 254 {
			return nil, fmt.Errorf("%q is not a network such as 10.1.2.0/24, a name such as etcd.example.com or a "+
				"suffix such as .example.com", one)
		}
		if _, service := serviceOf(one); service || one == "localhost" {
			return nil, fmt.Errorf("%q can't be allowed by name: Services of the EtcdCluster's own namespace are "+
				"allowed, others by the network of their addresses", one)
		}
		a.Hosts = append(a.Hosts, one)
	}
	slices.SortFunc(a.Networks, netip.Prefix.Compare)
	a.Networks = slices.Compact(a.Networks)
	slices.Sort(a.Hosts)
	a.Hosts = slices.Compact(a.Hosts)
	return a, nil
}

// String is the list that [ParseAllowedEndpoints] reads, sorted; empty for none.
func (a *AllowedEndpoints) String() string {
	if a == nil {
		return ""
	}
	var all []string
	for _, network := range a.Networks {
		all = append(all, network.String())
	}
	all = append(all, a.Hosts...)
	slices.Sort(all)
	return strings.Join(all, ",")
}

// Refuses says why an EtcdCluster in this namespace may not have Quorate ask at this URL, as far as the URL tells;
// empty when it may. Whether a name leads where it may, [AllowedEndpoints.Takes] says of each address that it
// has.
func (a *AllowedEndpoints) Refuses(endpoint, namespace string) string {
	if a == nil || len(a.Networks)+len(a.Hosts) == 0 {
		return "this installation of Quorate allows no endpoints"
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" {
		return "it is not a URL such as https://10.1.2.3:2379"
	}
	host := lowered(u.Hostname())
	address, err := netip.ParseAddr(host)
	in, service := serviceOf(host)
	switch {
	case err == nil && never(address):
		return "loopback, link-local, unspecified and multicast addresses can't be allowed"
	case service && in != namespace:
		return "it is a Service of another namespace, or looks like one"
	case err == nil && a.has(address), err != nil && service && len(a.Networks) > 0, err != nil && !service &&
		a.names(host):
		return ""
	}
	return "this installation of Quorate allows only " + strings.ReplaceAll(a.String(), ",", ", ")
}

// Takes reports whether Quorate may connect to an address that the host of an endpoint has: one of an allowed
// network, or one of an allowed name. The names of Services are the tenants' to make, so their addresses count, and
// never the name.
func (a *AllowedEndpoints) Takes(host string, address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	if a == nil || never(address) {
		return false
	}
	_, service := serviceOf(lowered(host))
	return a.has(address) || !service && a.names(lowered(host))
}

// Absolute is the name to look up for the host of an endpoint. Without the dot at its end a resolver would first try
// the name within Kubernetes' domains, where etcd.example.com is the Service example of a namespace com. The names of
// Services need that; a name without dots is found there in Quorate's own namespace alone.
func Absolute(host string) string {
	host = lowered(host)
	_, service := serviceOf(host)
	if _, err := netip.ParseAddr(host); err == nil || service || !strings.Contains(host, ".") {
		return host
	}
	return host + "."
}

func lowered(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

func (a *AllowedEndpoints) has(address netip.Addr) bool {
	return slices.ContainsFunc(a.Networks, func(n netip.Prefix) bool { return n.Contains(address.Unmap()) })
}

func (a *AllowedEndpoints) names(host string) bool {
	return slices.ContainsFunc(a.Hosts, func(h string) bool {
		return host == h || strings.HasPrefix(h, ".") &&
			strings.HasSuffix(host, h)
	})
}

// nat64 holds IPv4 addresses in its last four bytes (RFC 6052, section 2.1).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// never reports whether no etcd that may be joined can have this address: it leads to the server itself, or to what
// its node alone should reach, such as the metadata of a cloud at 169.254.169.254.
func never(address netip.Addr) bool {
	address = address.Unmap()
	if nat64.Contains(address) {
		raw := address.As16()
		address = netip.AddrFrom4([4]byte(raw[12:]))
	}
	return !address.IsGlobalUnicast() || address.Is4() && address.As4()[0] == 0
}

// serviceOf is the namespace of the Service, or of the pod behind one, that a name is of: in Kubernetes' DNS the
// label svc follows it. The domain of a Kubernetes is not known here, so that every name with that label is taken for
// one; with several of them, or nothing before, for one of no namespace.
func serviceOf(host string) (namespace string, is bool) {
	labels := strings.Split(host, ".")
	at := slices.Index(labels, "svc")
	switch {
	case at < 0:
		return "", false
	case at < 2 || slices.Contains(labels[at+1:], "svc"):
		return "", true
	}
	return labels[at-1], true
}
