// Package foreign has the facts about the members of a running etcd that a cluster joins.
package foreign

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// JoiningRecord is the record of a first epoch whose members join an existing etcd. No member may begin an etcd of
// its own in it.
func JoiningRecord(c *v1alpha1.EtcdCluster) record.Record {
	var r record.Record
	r.Source = record.SourceExisting
	r.Peers = objects.Scheme(c)
	r.Version = c.Spec.Version
	r.StartsOn = map[string]types.UID{}
	r.OldLog = record.OldLog{There: true} // what ran there before is not known
	return r
}

// Unanswered says what came of asking at the URLs of the spec; empty for nothing wrong.
func Unanswered(v *state.View) string {
	var list []string
	for _, at := range spec.Existing(v.Cluster).Endpoints {
		if h, asked := v.Health[at]; asked && h.Err != "" {
			list = append(list, fmt.Sprintf("%s: %s", at, h.Err))
		} else if asked && h.Leader == 0 {
			list = append(list, at+": it knows no leader")
		}
	}
	return wording.Colon(strings.Join(list, "; "))
}

// Unfit says why no member of ours may join the etcd that answers, and what to do; empty when they may.
func Unfit(v *state.View) string {
	if !v.BesideForeign() || v.Etcd == nil {
		return ""
	}
	if existing := spec.Existing(v.Cluster); existing != nil && !v.Epoch.HadQuorum() {
		for _, at := range existing.Endpoints {
			if h := v.Health[at]; h.ClusterID != 0 && h.ClusterID != v.Etcd.ClusterID {
				return fmt.Sprintf("spec.bootstrap.existing.endpoints has two clusters: cluster %[2]s answers at "+
					"%[1]s, cluster %[3]s elsewhere", at, wording.Hex(h.ClusterID), wording.Hex(v.Etcd.ClusterID))
			}
		}
	}
	for _, m := range v.Members {
		if m.Alias == "" {
			continue
		}
		if why := unfitBeside(v, m); why != "" {
			return why
		}
	}
	return ""
}

// unfitBeside says why no member of ours may join beside this foreign one; empty when one may.
func unfitBeside(v *state.View, m *state.Member) string {
	has, err := spec.ParseRelease(m.Health.Version)
	wanted, err2 := spec.ParseRelease(v.Cluster.Spec.Version)
	plain := "tls.mode Disabled"
	switch {
	case state.ByTLS(m.PeerURLs...) != objects.Encrypted(v.Cluster):
		theirs := "in plain text"
		if state.ByTLS(m.PeerURLs...) {
			theirs, plain = "by TLS", "a tls.mode other than Disabled"
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
			"%s or later, or %s or later", m.Alias, has, spec.Least35, spec.Least36)
	}
	quota := spec.QuotaOn(v.Cluster.Spec.Options, spec.RoomFor(&v.Cluster.Spec))
	if m.Health.DBSize >= quota/10*9 {
		return fmt.Sprintf("the database of its member %s has %s, and our quota is %s: raise spec.storage.size or "+
			"spec.options.quotaBackendBytes, or defragment it", m.Alias,
			volumes.Mebibytes(m.Health.DBSize), volumes.Mebibytes(quota))
	}
	return ""
}

// ForeignSilent says what to do about foreign voters that do not serve; empty when all do.
func ForeignSilent(v *state.View) string {
	for _, m := range v.Voters {
		if m.Alias != "" && !m.Serving() {
			return fmt.Sprintf("; if Quorate can't reach %s at %s, add another client URL of it to "+
				"spec.bootstrap.existing.endpoints; if it will not come back, remove it with etcdctl member remove %s",
				m.Alias, cmp.Or(strings.Join(spec.UrlsOf(m.Member), ", "), "any URL"), wording.Hex(m.ID))
		}
	}
	return ""
}

// SetVersionBesideForeign lets new members run what the spec asks for. Beside foreign members there are no upgrades;
// but before the first of ours has joined, and within a minor version, there is nothing that an upgrade would have to
// go through.
func SetVersionBesideForeign(v *state.View) *decision.Verdict {
	has, err := spec.ParseRelease(v.Epoch.Version)
	wanted, err2 := spec.ParseRelease(v.Cluster.Spec.Version)
	none := !slices.ContainsFunc(v.Members, func(m *state.Member) bool { return m.PodName != "" })
	if err != nil || err2 != nil || has == wanted || !none && has.Minor() != wanted.Minor() {
		return nil
	}
	return &decision.Verdict{Message: fmt.Sprintf("the members will run etcd %s instead of %s", wanted, has),
		Version: wanted.String(), Resync: rule.ResyncSoon}
}

// Retiring reports whether the spec says that the foreign members are to go.
func Retiring(v *state.View) bool {
	existing := spec.Existing(v.Cluster)
	return existing != nil && existing.RetireForeign && v.Replicas > 0
}

// RetirePause is between the removals of two foreign members: long enough for clients to settle, and for a person to
// stop it.
const RetirePause = 15 * time.Second

// ForeignStage is how far the members have come beside foreign ones, in a word and in words.
func ForeignStage(v *state.View) (reason, message string) {
	var foreign []string
	for _, m := range v.Members {
		if m.Alias != "" {
			foreign = append(foreign, m.Alias)
		}
	}
	own, theirs := len(v.ReplicaVoters()), strings.Join(foreign, ", ")
	switch {
	case v.Replicas == 0 && len(v.Names) == 0:
		return "Left", fmt.Sprintf("no member of ours is left beside %s; delete this EtcdCluster, or set "+
			"spec.replicas to join again", theirs)
	case v.Replicas == 0:
		return "Leaving", fmt.Sprintf("removing our members, %d left beside %s", own, theirs)
	case own < v.Replicas:
		return "Joining", fmt.Sprintf("%d of %s of ours beside %s", own, wording.Count(v.Replicas, "voter"), theirs)
	case Retiring(v):
		return "Retiring", fmt.Sprintf("%s of ours; still to remove: %s", wording.Count(own, "voter"), theirs)
	}
	return "ForeignMembers", fmt.Sprintf("%s of ours beside the foreign members %s; Quorate restarts, upgrades and "+
		"defragments no member and changes no user until they are gone: set spec.bootstrap.existing.retireForeign to "+
		"true to remove them, or spec.replicas to 0 to remove ours",
		wording.Count(own, "voter"), theirs)
}

// ForeignCondition is the condition of that name: whether there are any, with a reason and words. Without a reason
// there is nothing to say.
func ForeignCondition(v *state.View, because rule.Reason) (reason, message string, there bool) {
	switch {
	case !v.Epoch.Existing():
		return "", "", false
	case !v.Epoch.HadQuorum() && Unfit(v) != "":
		return "Unfit", Unfit(v), true
	case !v.Epoch.HadQuorum():
		return "Asking", because.Message, true
	case !v.BesideForeign():
		return "Retired", "all members are ours" + trustLeft(v), false
	case v.Etcd == nil:
		return "", "", true // the condition stays as it was
	}
	reason, message = ForeignStage(v)
	return reason, message, true
}

// trustLeft says that the authority of the former members is still trusted; empty when it is not.
func trustLeft(v *state.View) string {
	if spec.Existing(v.Cluster) == nil {
		return ""
	}
	return "; spec.bootstrap.existing is no longer used: remove it" +
		map[bool]string{true: ", and the authority in Secret " + trustSecret(v.Cluster) +
			" is trusted no longer"}[trustSecret(v.Cluster) != ""]
}

// MinAvailable is how many of our pods Kubernetes must leave alone, also once the learner that serves votes. Foreign
// members can't be counted on: beside them one pod of ours at a time may go, if the rest is a quorum with them.
func MinAvailable(v *state.View) int {
	voters, own := len(v.Voters), len(v.ReplicaVoters())
	if l := v.Learner(); l != nil && l.PodName != "" && l.Serving() {
		voters, own = voters+1, own+1
	}
	if v.Etcd == nil || !v.BesideForeign() {
		return state.Quorum(max(v.Replicas, voters))
	}
	return max(own-1, state.Quorum(voters)-(voters-own), 0)
}

// NoteForeign is what the record should say of foreign members from now on, and since when it says so.
func NoteForeign(v *state.View) (map[string][]string, time.Time) {
	e := v.Epoch
	if !e.Existing() {
		return nil, time.Time{}
	}
	if v.Etcd == nil || Unfit(v) != "" && !e.HadQuorum() {
		return e.Foreign, e.ForeignSince
	}
	now := clientURLs(wording.Filter(v.Members, func(m *state.Member) bool { return m.Alias != "" }))
	switch {
	case len(now) == 0:
		return nil, time.Time{}
	case maps.EqualFunc(now, e.Foreign, slices.Equal) && !e.ForeignSince.IsZero():
		return e.Foreign, e.ForeignSince
	}
	return now, v.Now.UTC().Truncate(time.Second)
}

// clientURLs are those of members, by ID in hexadecimal.
func clientURLs(of []*state.Member) map[string][]string {
	all := map[string][]string{}
	for _, m := range of {
		all[wording.Hex(m.ID)] = spec.UrlsOf(m.Member)
	}
	return all
}

// ForeignWithoutRecord is the same for a record that was deleted: by what etcd lists, or the status last listed.
func ForeignWithoutRecord(v *state.View) map[string][]string {
	all := clientURLs(wording.Filter(v.Members, func(m *state.Member) bool { return WasForeign(v, m) }))
	for _, s := range v.Cluster.Status.Members {
		if s.Foreign && v.Etcd == nil {
			all[s.ID] = nil
		}
	}
	return all
}

// WasForeign reports whether a listed member is taken for a foreign one while there is no record: the spec names an
// etcd that is joined, or the status says so. Who is taken for a stranger instead would be counted, and outlive an
// epoch that it serves (S8).
func WasForeign(v *state.View, m *state.Member) bool {
	said := slices.ContainsFunc(v.Cluster.Status.Members, func(s v1alpha1.MemberStatus) bool {
		return s.Foreign && s.ID == wording.Hex(m.ID)
	})
	return v.Epoch == nil && m.PodName == "" && (spec.Existing(v.Cluster) != nil || said)
}
