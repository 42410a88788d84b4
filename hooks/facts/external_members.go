package facts

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// BesideExternal reports whether there are external members, or none were found yet. Once they are gone, any other that
// turns up is an unmanaged member.
func (f *Facts) BesideExternal() bool {
	switch {
	case !f.Epoch.Joined():
		return false
	case f.Etcd == nil || len(f.Members) == 0:
		return !f.Epoch.HadQuorum() || len(f.Epoch.External) > 0
	}
	return slices.ContainsFunc(f.Members, func(m *Member) bool { return m.Alias != "" })
}

// ReplicaVoters are the voters that are held against the number that the spec asks for: beside external members, ours
// alone.
func (f *Facts) ReplicaVoters() []*Member {
	return objects.Filter(f.Voters, func(m *Member) bool { return m.Alias == "" || m.PodName != "" })
}

// DisplayName is how the member is named in words and steps; empty for an unmanaged member.
func (m *Member) DisplayName() string { return cmp.Or(m.PodName, m.Alias) }

// fillExternal fills in what is known of a listed member that is none of ours: nothing of an unmanaged one, all of an
// external one.
func (f *Facts) fillExternal(m *Member) {
	if !f.Epoch.Joined() || f.Epoch.HadQuorum() && len(f.Epoch.External) == 0 {
		return
	}
	m.Alias = objects.Hex(m.ID)
	if defaults.Tellable.MatchString(m.Name) {
		m.Alias = m.Name
	}
	if _, taken := objects.Ordinal(f.Cluster.Name, m.Alias); taken {
		m.Alias = objects.Hex(m.ID) // its own name is one that a member of ours may have
	}
	m.Health, m.Asked = f.externalHealth(objects.Hex(m.ID), defaults.UrlsOf(m.Member))
}

// externalHealth is what the external member with this ID answered, at whichever URL; else why it did not answer at its
// own. False when it was not asked.
func (f *Facts) externalHealth(id string, urls []string) (observation.Health, bool) {
	for _, at := range slices.Sorted(maps.Keys(f.Health)) {
		if h := f.Health[at]; strings.Contains(at, "://") && h.Err == "" && objects.Hex(h.MemberID) == id {
			return h, true
		}
	}
	if f.Epoch.Joined() {
		urls = append(urls, f.Epoch.External[id]...)
	}
	for _, at := range urls {
		if h, asked := f.Health[at]; asked && h.Err != "" {
			return observation.Health{Err: fmt.Sprintf("%s: %s", at, h.Err)}, true
		}
	}
	return observation.Health{}, false
}

// StatusHealth is what the member answered, for the status.
func (m *Member) StatusHealth(f *Facts) observation.Health {
	if m.Alias != "" {
		return m.Health
	}
	return f.Health[m.PodName]
}

// LastStatusHealth is what a member of the last known list answered while it is not known who is a member.
func (f *Facts) LastStatusHealth(m v1beta1.MemberStatus) observation.Health {
	if m.External && f.Epoch != nil {
		h, _ := f.externalHealth(m.ID, nil)
		return h
	}
	return f.Health[m.Name]
}

// externalEndpoints are the URLs at which external members of the epoch may answer: those of the spec, and what they
// have advertised. They are asked as long as there are any, or none were found yet.
func externalEndpoints(o observation.Observation, e *Epoch) []observation.Endpoint {
	external := defaults.External(o.Cluster)
	if !e.Joined() || e.HadQuorum() && len(e.External) == 0 {
		return nil
	}
	known := e.External
	var declared, advertised []string
	if external != nil {
		declared = external.Endpoints
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		advertised = append(advertised, objects.Filter(known[id],
			func(raw string) bool { return asks(external, raw) })...)
	}
	var list []observation.Endpoint
	for _, raw := range slices.Concat(declared, advertised) {
		u, err := url.Parse(raw)
		if err != nil || slices.ContainsFunc(list, func(o observation.Endpoint) bool { return o.Name == raw }) {
			continue
		}
		endpoint := observation.Endpoint{Name: raw, ClientURL: raw, External: true, ClusterID: e.ClusterID,
			Allowed: o.Settings.AllowedEndpoints, Namespace: o.Cluster.Namespace, AsksAuth: defaults.AsksNone(o.Cluster)}
		if u.Scheme == "https" {
			endpoint.ServerName = u.Hostname()
		}
		if u.Scheme == "https" && defaults.SpeaksTLS(external) {
			endpoint.ServerName = cmp.Or(external.ServerName, u.Hostname())
		}
		list = append(list, endpoint)
	}
	return list
}

// asks reports whether an external member is asked at a URL that it advertises: not at one of ourselves, nor in plain
// text where the spec's URLs are of TLS.
func asks(external *v1beta1.ExternalCluster, raw string) bool {
	u, err := url.Parse(raw)
	plain := !defaults.SpeaksTLS(external)
	return err == nil && !loopback(u.Hostname()) && (plain || u.Scheme == "https")
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

// Located are the endpoints, with the peer URL of those of external members, which their answers have told: see
// [Endpoint].
func Located(endpoints []observation.Endpoint, etcd *observation.Membership,
	health map[string]observation.Health) []observation.Endpoint {
	list := slices.Clone(endpoints)
	for i, e := range list {
		h := health[e.Name]
		if !e.External || etcd == nil || h.Err != "" {
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
