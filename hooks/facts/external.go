package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Unanswered says what came of asking at the URLs of the spec; empty for nothing wrong.
func (f *Facts) Unanswered() string {
	var list []string
	for _, at := range defaults.External(f.Cluster).Endpoints {
		if h, asked := f.Health[at]; asked && h.Err != "" {
			list = append(list, fmt.Sprintf("%s: %s", at, h.Err))
		} else if asked && h.Leader == 0 {
			list = append(list, at+": it knows no leader")
		}
	}
	return objects.Colon(strings.Join(list, "; "))
}

// Unfit says why no member of ours may join the etcd that answers, and what to do; empty when they may.
func (f *Facts) Unfit() string {
	if !f.BesideExternal() || f.Etcd == nil {
		return ""
	}
	if external := defaults.External(f.Cluster); external != nil && !f.Epoch.HadQuorum() {
		for _, at := range external.Endpoints {
			if h := f.Health[at]; h.ClusterID != 0 && h.ClusterID != f.Etcd.ClusterID {
				return fmt.Sprintf("spec.bootstrap.external.endpoints has two clusters: cluster %[2]s answers at "+
					"%[1]s, cluster %[3]s elsewhere", at, objects.Hex(h.ClusterID), objects.Hex(f.Etcd.ClusterID))
			}
		}
	}
	for _, m := range f.Members {
		if m.Alias == "" {
			continue
		}
		if why := f.unfitBeside(m); why != "" {
			return why
		}
	}
	return ""
}

// unfitBeside says why no member of ours may join beside this external one; empty when one may.
func (f *Facts) unfitBeside(m *Member) string {
	has, err := defaults.ParseRelease(m.Health.Version)
	wanted, err2 := defaults.ParseRelease(f.Cluster.Spec.Version)
	plain := "tls.mode Disabled"
	switch {
	case ByTLS(m.PeerURLs...) != objects.Encrypted(f.Cluster):
		theirs := "in plain text"
		if ByTLS(m.PeerURLs...) {
			theirs = "by TLS"
			plain = "a tls.mode other than Disabled"
		}
		return fmt.Sprintf("its member %s talks to peers %s, so ours must too: delete this EtcdCluster and create it "+
			"with %s", m.Alias, theirs, plain)
	case !m.Serving() || err != nil || err2 != nil:
		return "" // who does not answer is waited for
	case has.Major() != wanted.Major() || has.Minor() != wanted.Minor():
		return fmt.Sprintf("its member %s runs etcd %s, and spec.version is %s: set it to a release of %d.%d", m.Alias,
			has, wanted, has.Major(), has.Minor())
	case has.LosesMembers():
		return fmt.Sprintf("its member %s runs etcd %s, which loses members when membership changes: upgrade it to "+
			"%s or later, or %s or later", m.Alias, has, defaults.Least35, defaults.Least36)
	}
	quota := defaults.QuotaOn(f.Cluster.Spec.Options, defaults.RoomFor(&f.Cluster.Spec))
	if m.Health.DBSize >= quota/10*9 {
		return fmt.Sprintf("the database of its member %s has %s, and our quota is %s: raise spec.storage.size or "+
			"spec.options.quotaBackendBytes, or defragment it", m.Alias,
			Mebibytes(m.Health.DBSize), Mebibytes(quota))
	}
	return ""
}

// ExternalUnreachable says what to do about external voters that do not serve; empty when all do.
func (f *Facts) ExternalUnreachable() string {
	for _, m := range f.Voters {
		if m.Alias != "" && !m.Serving() {
			return fmt.Sprintf("; if Quorate can't reach %s at %s, add another client URL of it to "+
				"spec.bootstrap.external.endpoints; if it will not come back, remove it with etcdctl member remove %s",
				m.Alias, cmp.Or(strings.Join(defaults.UrlsOf(m.Member), ", "), "any URL"), objects.Hex(m.ID))
		}
	}
	return ""
}

// Retiring reports whether the spec says that the external members are to go.
func (f *Facts) Retiring() bool {
	external := defaults.External(f.Cluster)
	return external != nil && f.Cluster.Spec.RemoveExternalMembers && f.Replicas > 0
}

// RetirePause is between the removals of two external members: long enough for clients to settle, and for a person to
// stop it.
const RetirePause = 15 * time.Second

// ExternalStage is how far the members have come beside external ones, in a word and in words.
func (f *Facts) ExternalStage() (reason, message string) {
	var external []string
	for _, m := range f.Members {
		if m.Alias != "" {
			external = append(external, m.Alias)
		}
	}
	own := len(f.ReplicaVoters())
	theirs := strings.Join(external, ", ")
	switch {
	case f.Replicas == 0 && len(f.Names) == 0:
		return "Left", fmt.Sprintf("no member of ours is left beside %s; delete this EtcdCluster, or set "+
			"spec.replicas to join again", theirs)
	case f.Replicas == 0:
		return "Leaving", fmt.Sprintf("removing our members, %d left beside %s", own, theirs)
	case own < f.Replicas:
		return "Joining", fmt.Sprintf("%d of %s of ours beside %s", own, objects.Count(f.Replicas, "voter"), theirs)
	case f.Retiring():
		return "Retiring", fmt.Sprintf("%s of ours; still to remove: %s", objects.Count(own, "voter"), theirs)
	}
	return "ExternalMembers", fmt.Sprintf("%s of ours beside the external members %s; Quorate restarts, upgrades and "+
		"defragments no member and changes no user until they are gone: set spec.removeExternalMembers to "+
		"true to remove them, or spec.replicas to 0 to remove ours",
		objects.Count(own, "voter"), theirs)
}

// TrustLeft says that the authority of the former members is still trusted; empty when it is not.
func (f *Facts) TrustLeft() string {
	if defaults.External(f.Cluster) == nil {
		return ""
	}
	return "; spec.bootstrap.external is no longer used: remove it" +
		map[bool]string{true: ", and the authority in Secret " + TrustSecret(f.Cluster) +
			" is trusted no longer"}[TrustSecret(f.Cluster) != ""]
}

// minAvailable is how many of our pods Kubernetes must leave alone, also once the learner that serves votes. A spare is
// not about to, and not ready for Kubernetes. External
// members can't be counted on: beside them one pod of ours at a time may go, if the rest is a quorum with them.
func (f *Facts) minAvailable() int {
	voters := len(f.Voters)
	own := len(f.ReplicaVoters())
	if l := f.Joining(); l != nil && l.PodName != "" && l.Serving() {
		voters++
		own++
	}
	if f.Etcd == nil || !f.BesideExternal() {
		return Quorum(max(f.Replicas, voters)) + f.spareMemory()
	}
	return max(own-1, Quorum(voters)-(voters-own), 0)
}

// spareMemory is 1 while members in memory are fewer than wanted. Kubernetes evicts a pod that is not ready where its
// count of those that are says that there are enough, and that count lags: with this it never says so, and the memory
// of the last quorum is not evicted (UnhealthyPodEvictionPolicy IfHealthyBudget, in registry/core/pod/storage/eviction.go).
func (f *Facts) spareMemory() int {
	if f.Etcd != nil && f.Memory() && len(f.Voters) < f.Replicas {
		return 1
	}
	return 0
}

// ClientURLs are those of members, by ID in hexadecimal.
func ClientURLs(of []*Member) map[string][]string {
	all := map[string][]string{}
	for _, m := range of {
		all[objects.Hex(m.ID)] = defaults.UrlsOf(m.Member)
	}
	return all
}

// ExternalWithoutRecord is the same for a record that was deleted: by what etcd lists, or the status last listed.
func (f *Facts) ExternalWithoutRecord() map[string][]string {
	all := ClientURLs(objects.Filter(f.Members, func(m *Member) bool { return f.WasExternal(m) }))
	for _, s := range f.Cluster.Status.Members {
		if s.External && f.Etcd == nil {
			all[s.ID] = nil
		}
	}
	return all
}

// WasExternal reports whether a listed member is taken for an external one while there is no record: the spec names an
// etcd that is joined, or the status says so. Who is taken for an unmanaged member would be counted, and outlive an
// epoch that it serves (S8).
func (f *Facts) WasExternal(m *Member) bool {
	said := slices.ContainsFunc(f.Cluster.Status.Members, func(s v1beta1.MemberStatus) bool {
		return s.External && s.ID == objects.Hex(m.ID)
	})
	return f.Epoch == nil && m.PodName == "" && (defaults.External(f.Cluster) != nil || said)
}
