package hooks

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// foreign are the members that are none of ours, as the record has them: by ID in hexadecimal, with their client URLs.
func (e *epoch) foreign() map[string][]string {
	all := map[string][]string{}
	if !e.existing() {
		return all
	}
	for field := range strings.SplitSeq(e.record.Annotations[objects.AnnotationForeign], ",") {
		if words := strings.Fields(field); len(words) > 0 {
			all[words[0]] = words[1:]
		}
	}
	return all
}

// noteForeign is what the record should say of foreign members from now on; empty for none.
func (v *view) noteForeign() string {
	if !v.epoch.existing() {
		return ""
	}
	if v.Etcd == nil || v.unfit() != "" && !v.epoch.hadQuorum() {
		return v.epoch.record.Annotations[objects.AnnotationForeign]
	}
	var list []string
	for _, m := range v.members {
		if m.alias != "" {
			list = append(list, strings.Join(append([]string{hex(m.ID)}, urlsOf(m.Member)...), " "))
		}
	}
	return strings.Join(list, ",")
}

// foreignSince is since when the record says this of foreign members.
func (v *view) foreignSince(foreign string) string {
	if since := v.epoch.record.Annotations[objects.AnnotationForeignSince]; since != "" &&
		foreign == v.epoch.record.Annotations[objects.AnnotationForeign] {
		return since
	}
	return v.Now.UTC().Format(time.RFC3339)
}

// foreignWithoutRecord is the same for a record that somebody deleted: by what etcd lists, or the status last listed.
func (v *view) foreignWithoutRecord() string {
	var list []string
	for _, m := range v.members {
		if v.wasForeign(m) {
			list = append(list, strings.Join(append([]string{hex(m.ID)}, urlsOf(m.Member)...), " "))
		}
	}
	for _, s := range v.Cluster.Status.Members {
		if s.Foreign && v.Etcd == nil {
			list = append(list, s.ID)
		}
	}
	return strings.Join(list, ",")
}

// wasForeign reports whether a listed member is taken for a foreign one while there is no record: the spec names an
// etcd that is joined, or the status says so. Who is taken for a stranger instead would be counted, and outlive an
// epoch that it serves (S8).
func (v *view) wasForeign(m *member) bool {
	said := slices.ContainsFunc(v.Cluster.Status.Members, func(s v1alpha1.MemberStatus) bool {
		return s.Foreign && s.ID == hex(m.ID)
	})
	return v.epoch == nil && m.name == "" && (existing(v.Cluster) != nil || said)
}

// besideForeign reports whether there are foreign members, or none were found yet. Once they are gone, whoever else
// turns up is a stranger.
func (v *view) besideForeign() bool {
	switch {
	case !v.epoch.existing():
		return false
	case v.Etcd == nil || len(v.members) == 0:
		return !v.epoch.hadQuorum() || len(v.epoch.foreign()) > 0
	}
	return slices.ContainsFunc(v.members, func(m *member) bool { return m.alias != "" })
}

// replicaVoters are the voters that are held against the number that the spec asks for: beside foreign members, ours
// alone.
func (v *view) replicaVoters() []*member {
	return filter(v.voters, func(m *member) bool { return m.alias == "" || m.name != "" })
}

// displayName is how the member is named in words and steps; empty for a stranger.
func (m *member) displayName() string { return cmp.Or(m.name, m.alias) }

// fillForeign fills in what is known of a listed member that is none of ours: nothing of a stranger, all of a foreign
// one.
func (v *view) fillForeign(m *member) {
	if !v.epoch.existing() || v.epoch.hadQuorum() && len(v.epoch.foreign()) == 0 {
		return
	}
	m.alias = hex(m.ID)
	if tellable.MatchString(m.Name) {
		m.alias = m.Name
	}
	if _, taken := objects.Ordinal(v.Cluster.Name, m.alias); taken {
		m.alias = hex(m.ID) // its own name is one that a member of ours may have
	}
	m.health, m.asked = v.foreignHealth(hex(m.ID), urlsOf(m.Member))
}

// foreignHealth is what the foreign member with this ID answered, at whichever URL; else why it did not answer at its
// own. False when it was not asked.
func (v *view) foreignHealth(id string, urls []string) (Health, bool) {
	for _, at := range slices.Sorted(maps.Keys(v.Health)) {
		if h := v.Health[at]; strings.Contains(at, "://") && h.Err == "" && hex(h.MemberID) == id {
			return h, true
		}
	}
	for _, at := range append(urls, v.epoch.foreign()[id]...) {
		if h, asked := v.Health[at]; asked && h.Err != "" {
			return Health{Err: fmt.Sprintf("%s: %s", at, h.Err)}, true
		}
	}
	return Health{}, false
}

// statusHealth is what the member answered, for the status.
func (m *member) statusHealth(v *view) Health {
	if m.alias != "" {
		return m.health
	}
	return v.Health[m.name]
}

// lastStatusHealth is what a member of the last known list answered while nobody can say who is a member.
func (v *view) lastStatusHealth(m v1alpha1.MemberStatus) Health {
	if m.Foreign && v.epoch != nil {
		h, _ := v.foreignHealth(m.ID, nil)
		return h
	}
	return v.Health[m.Name]
}

// ---- where they are asked

// foreignEndpoints are the URLs at which foreign members may answer: those of the spec, and what they have
// advertised. They are asked as long as there are any, or none were found yet.
func foreignEndpoints(o Observation) []Endpoint {
	spec := existing(o.Cluster)
	e, _ := epochs(o)
	known := e.foreign()
	if !e.existing() || e.hadQuorum() && len(known) == 0 {
		return nil
	}
	var declared, advertised []string
	if spec != nil {
		declared = spec.Endpoints
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		advertised = append(advertised, filter(known[id], func(raw string) bool { return asks(spec, raw) })...)
	}
	var list []Endpoint
	for _, raw := range slices.Concat(declared, advertised) {
		u, err := url.Parse(raw)
		if err != nil || slices.ContainsFunc(list, func(o Endpoint) bool { return o.Name == raw }) {
			continue
		}
		endpoint := Endpoint{Name: raw, ClientURL: raw, Foreign: true, ClusterID: e.clusterID,
			Allowed: o.Settings.AllowedEndpoints, Namespace: o.Cluster.Namespace}
		if u.Scheme == "https" {
			endpoint.ServerName = u.Hostname()
		}
		if u.Scheme == "https" && spec != nil && spec.TLS != nil {
			endpoint.ServerName = cmp.Or(spec.TLS.ServerName, u.Hostname())
		}
		list = append(list, endpoint)
	}
	return list
}

// asks reports whether a foreign member is asked at a URL that it advertises: not at one of ourselves, nor in plain
// text where the spec's URLs are of TLS.
func asks(spec *v1alpha1.ExistingCluster, raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && !loopback(u.Hostname()) && (u.Scheme == "https" || spec == nil || spec.TLS == nil)
}

// loopback reports whether a host is oneself: what a member with etcd's defaults advertises.
func loopback(host string) bool {
	return slices.Contains([]string{"localhost", "::1", "::", "0.0.0.0"}, host) || strings.HasPrefix(host, "127.")
}

// Located are the endpoints, with the peer URL of those of foreign members, which their answers have told: see
// [Endpoint].
func Located(endpoints []Endpoint, etcd *Membership, health map[string]Health) []Endpoint {
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
