package state

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// BesideForeign reports whether there are foreign members, or none were found yet. Once they are gone, any other that
// turns up is a stranger.
func (v *View) BesideForeign() bool {
	switch {
	case !v.Epoch.Existing():
		return false
	case v.Etcd == nil || len(v.Members) == 0:
		return !v.Epoch.HadQuorum() || len(v.Epoch.Foreign) > 0
	}
	return slices.ContainsFunc(v.Members, func(m *Member) bool { return m.Alias != "" })
}

// ReplicaVoters are the voters that are held against the number that the spec asks for: beside foreign members, ours
// alone.
func (v *View) ReplicaVoters() []*Member {
	return wording.Filter(v.Voters, func(m *Member) bool { return m.Alias == "" || m.PodName != "" })
}

// DisplayName is how the member is named in words and steps; empty for a stranger.
func (m *Member) DisplayName() string { return cmp.Or(m.PodName, m.Alias) }

// fillForeign fills in what is known of a listed member that is none of ours: nothing of a stranger, all of a foreign
// one.
func fillForeign(v *View, m *Member) {
	if !v.Epoch.Existing() || v.Epoch.HadQuorum() && len(v.Epoch.Foreign) == 0 {
		return
	}
	m.Alias = wording.Hex(m.ID)
	if spec.Tellable.MatchString(m.Name) {
		m.Alias = m.Name
	}
	if _, taken := objects.Ordinal(v.Cluster.Name, m.Alias); taken {
		m.Alias = wording.Hex(m.ID) // its own name is one that a member of ours may have
	}
	m.Health, m.Asked = foreignHealth(v, wording.Hex(m.ID), spec.UrlsOf(m.Member))
}

// foreignHealth is what the foreign member with this ID answered, at whichever URL; else why it did not answer at its
// own. False when it was not asked.
func foreignHealth(v *View, id string, urls []string) (observation.Health, bool) {
	for _, at := range slices.Sorted(maps.Keys(v.Health)) {
		if h := v.Health[at]; strings.Contains(at, "://") && h.Err == "" && wording.Hex(h.MemberID) == id {
			return h, true
		}
	}
	if v.Epoch.Existing() {
		urls = append(urls, v.Epoch.Foreign[id]...)
	}
	for _, at := range urls {
		if h, asked := v.Health[at]; asked && h.Err != "" {
			return observation.Health{Err: fmt.Sprintf("%s: %s", at, h.Err)}, true
		}
	}
	return observation.Health{}, false
}

// StatusHealth is what the member answered, for the status.
func (m *Member) StatusHealth(v *View) observation.Health {
	if m.Alias != "" {
		return m.Health
	}
	return v.Health[m.PodName]
}

// LastStatusHealth is what a member of the last known list answered while it is not known who is a member.
func LastStatusHealth(v *View, m v1alpha1.MemberStatus) observation.Health {
	if m.Foreign && v.Epoch != nil {
		h, _ := foreignHealth(v, m.ID, nil)
		return h
	}
	return v.Health[m.Name]
}

// foreignEndpoints are the URLs at which foreign members of the epoch may answer: those of the spec, and what they have
// advertised. They are asked as long as there are any, or none were found yet.
func foreignEndpoints(o observation.Observation, e *Epoch) []observation.Endpoint {
	existing := spec.Existing(o.Cluster)
	if !e.Existing() || e.HadQuorum() && len(e.Foreign) == 0 {
		return nil
	}
	known := e.Foreign
	var declared, advertised []string
	if existing != nil {
		declared = existing.Endpoints
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		advertised = append(advertised, wording.Filter(known[id],
			func(raw string) bool { return asks(existing, raw) })...)
	}
	var list []observation.Endpoint
	for _, raw := range slices.Concat(declared, advertised) {
		u, err := url.Parse(raw)
		if err != nil || slices.ContainsFunc(list, func(o observation.Endpoint) bool { return o.Name == raw }) {
			continue
		}
		endpoint := observation.Endpoint{Name: raw, ClientURL: raw, Foreign: true, ClusterID: e.ClusterID,
			Allowed: o.Settings.AllowedEndpoints, Namespace: o.Cluster.Namespace, AsksAuth: spec.AsksNone(o.Cluster)}
		if u.Scheme == "https" {
			endpoint.ServerName = u.Hostname()
		}
		if u.Scheme == "https" && existing != nil && existing.TLS != nil {
			endpoint.ServerName = cmp.Or(existing.TLS.ServerName, u.Hostname())
		}
		list = append(list, endpoint)
	}
	return list
}

// asks reports whether a foreign member is asked at a URL that it advertises: not at one of ourselves, nor in plain
// text where the spec's URLs are of TLS.
func asks(existing *v1alpha1.ExistingCluster, raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && !loopback(u.Hostname()) && (u.Scheme == "https" || existing == nil || existing.TLS == nil)
}

// loopback reports whether a host is oneself, in whatever form: what a member with etcd's defaults advertises.
func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	if err != nil {
		return host == "localhost" || strings.HasPrefix(host, "127.") // such as 127.1
	}
	address = address.Unmap()
	return address.IsLoopback() || address.IsUnspecified()
}

// Located are the endpoints, with the peer URL of those of foreign members, which their answers have told: see
// [Endpoint].
func Located(endpoints []observation.Endpoint, etcd *observation.Membership,
	health map[string]observation.Health) []observation.Endpoint {
	list := slices.Clone(endpoints)
	for i, e := range list {
		h := health[e.Name]
		if !e.Foreign || etcd == nil || h.Err != "" {
			continue
		}
		for _, m := range etcd.Members {
			if m.ID == h.MemberID && len(m.PeerURLs) > 0 {
				list[i].PeerURL = m.PeerURLs[0]
			}
		}
	}
	return list
}
