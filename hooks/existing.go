package hooks

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/users"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// Members that join a running etcd (spec.bootstrap.existing). Its epoch has no initial members: ours join one by one
// as learners, by the same rules that let a cluster grow. The members that were there before are foreign: voters like
// any other whenever a quorum is counted, asked for their health like any other, and touched by nobody. When the spec
// says retireForeign, they are removed one by one. With the last of them the record forgets that there were any, and
// the cluster is like one that began empty.
//
// While they are there nothing else is done: who restarts, upgrades or defragments members would have to do it to all
// of them.
//
// Back it goes by replicas 0, or by the deletion of the EtcdCluster: ours are removed one by one, and the foreign
// etcd is as before.

// existing is what the spec says of the etcd that the members join; nil for a cluster of its own.
func existing(c *v1alpha1.EtcdCluster) *v1alpha1.ExistingCluster {
	if c.Spec.Bootstrap == nil {
		return nil
	}
	return c.Spec.Bootstrap.Existing
}

// joins reports whether a new cluster joins a running etcd. A snapshot that the spec asks for comes before that.
func joins(c *v1alpha1.EtcdCluster) bool {
	r := c.Spec.Restore
	return existing(c) != nil && (r == nil || r.Snapshot == nil)
}

// validateExisting says what is wrong with spec.bootstrap.existing. The API server refuses nearly all of it.
func validateExisting(s *v1alpha1.EtcdClusterSpec) error {
	if s.Bootstrap == nil || s.Bootstrap.Existing == nil {
		return nil
	}
	e := s.Bootstrap.Existing
	for i, endpoint := range e.Endpoints {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil || u.Hostname() == "" || u.Port() == "" || u.Scheme+"://"+u.Host != endpoint ||
			u.Scheme != "http" && u.Scheme != "https":
			return fmt.Errorf("spec.bootstrap.existing.endpoints[%d] is no URL such as https://10.1.2.3:2379", i)
		case (u.Scheme == "https") != (e.TLS != nil):
			return fmt.Errorf("spec.bootstrap.existing.tls is for endpoints that begin with https://, and "+
				"endpoints[%d] does not fit", i)
		}
	}
	switch {
	case len(e.Endpoints) == 0:
		return fmt.Errorf("spec.bootstrap.existing.endpoints is empty")
	case e.Auth != nil && e.TLS == nil:
		return fmt.Errorf("spec.bootstrap.existing.auth needs tls: passwords would cross the network in plain text")
	}
	return nil
}

// ---- the record

// joiningRecord is the record of a first epoch whose members join an existing etcd. Nobody may begin one in it.
func joiningRecord(c *v1alpha1.EtcdCluster) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: objects.EpochName(c.Name, 1),
			Annotations: map[string]string{
				objects.AnnotationNextMember: "0",
				objects.AnnotationVersion:    c.Spec.Version,
				objects.AnnotationStartsOn:   startsOnNothing,
				objects.AnnotationOldLog:     oldLog{there: true}.String(), // what ran there before is not known
			},
		},
		Data: map[string]string{
			objects.EpochKeySource:         objects.SourceExisting,
			objects.EpochKeyToken:          fmt.Sprintf("%s-%d", c.UID, 1),
			objects.EpochKeyInitialCluster: "",
			objects.EpochKeyPeers:          objects.Scheme(c),
		},
		Immutable: new(true),
	}
}

// existing reports whether the members of the epoch joined a running etcd.
func (e *epoch) existing() bool { return e != nil && e.source == objects.SourceExisting }

// ---- the rules

// join waits for a quorum of the existing etcd, and writes down which cluster it is: that is the one that is joined,
// whoever answers later.
func join(v *view) *verdict {
	if !v.epoch.existing() || v.epoch.hadQuorum() {
		return nil
	}
	spec := existing(v.Cluster)
	switch {
	case spec == nil:
		return &verdict{message: "spec.bootstrap.existing is gone before the etcd that it named was joined: put it " +
			"back, or delete this EtcdCluster", outlook: Waits}
	case v.Etcd == nil:
		return &verdict{message: fmt.Sprintf("waiting for a quorum of the existing etcd to answer at %s%s",
			strings.Join(spec.Endpoints, ", "), v.unanswered()), resync: rule.ResyncLater}
	case v.unfit() != "":
		return &verdict{message: "the existing etcd is not joined: " + v.unfit(), outlook: Waits,
			resync: rule.ResyncLater}
	}
	return &verdict{message: fmt.Sprintf("recording that etcd cluster %s is joined, with the members %s",
		hex(v.Etcd.ClusterID), strings.Join(names(v.members), ", ")), resync: rule.ResyncSoon}
}

// unanswered says what came of asking at the URLs of the spec; empty for nothing wrong.
func (v *view) unanswered() string {
	var list []string
	for _, at := range existing(v.Cluster).Endpoints {
		if h, asked := v.Health[at]; asked && h.Err != "" {
			list = append(list, fmt.Sprintf("%s: %s", at, h.Err))
		} else if asked && h.Leader == 0 {
			list = append(list, at+": it knows no leader")
		}
	}
	return wording.Colon(strings.Join(list, "; "))
}

// unfit says why no member of ours may join the etcd that answers, and what to do; empty when they may.
func (v *view) unfit() string {
	if !v.besideForeign() || v.Etcd == nil {
		return ""
	}
	if spec := existing(v.Cluster); spec != nil && !v.epoch.hadQuorum() {
		for _, at := range spec.Endpoints {
			if h := v.Health[at]; h.ClusterID != 0 && h.ClusterID != v.Etcd.ClusterID {
				return fmt.Sprintf("spec.bootstrap.existing.endpoints are those of two clusters: at %s cluster %s "+
					"answers, elsewhere cluster %s", at, hex(h.ClusterID), hex(v.Etcd.ClusterID))
			}
		}
	}
	for _, m := range v.members {
		if m.alias == "" {
			continue
		}
		if why := v.unfitBeside(m); why != "" {
			return why
		}
	}
	return ""
}

// unfitBeside says why no member of ours may join beside this foreign one; empty when one may.
func (v *view) unfitBeside(m *member) string {
	has, err := parseRelease(m.health.Version)
	wanted, err2 := parseRelease(v.Cluster.Spec.Version)
	plain := "tls.mode Disabled"
	switch {
	case byTLS(m.PeerURLs...) != objects.Encrypted(v.Cluster):
		theirs := "in plain text"
		if byTLS(m.PeerURLs...) {
			theirs, plain = "by TLS", "another tls.mode than Disabled"
		}
		return fmt.Sprintf("its member %s speaks with its peers %s, so ours must too: delete this EtcdCluster and "+
			"create it with %s", m.alias, theirs, plain)
	case !m.serving() || err != nil || err2 != nil:
		return "" // who does not answer is waited for
	case has.major != wanted.major || has.minor != wanted.minor:
		return fmt.Sprintf("its member %s runs etcd %s, and spec.version is %s: set it to a release of %d.%d", m.alias,
			has, wanted, has.major, has.minor)
	case has.less(release{3, 5, 26}), has.minor == 6 && has.less(release{3, 6, 4}):
		return fmt.Sprintf("its member %s runs etcd %s, which loses members when they change: upgrade it to 3.5.26 "+
			"or later, or 3.6.4 or later", m.alias, has)
	}
	quota := quotaBytes(v.Cluster.Spec.Options, storageSize(&v.Cluster.Spec))
	if m.health.DBSize >= quota/10*9 {
		return fmt.Sprintf("the database of its member %s has %s, and ours would have a quota of %s: raise "+
			"spec.storage.size or spec.options.quotaBackendBytes, or defragment it", m.alias,
			mebibytes(m.health.DBSize), mebibytes(quota))
	}
	return ""
}

// foreignSilent says what to do about foreign voters that do not serve; empty when all do.
func (v *view) foreignSilent() string {
	for _, m := range v.voters {
		if m.alias != "" && !m.serving() {
			return fmt.Sprintf("; where Quorate can't reach %s at %s, name another client URL of it in "+
				"spec.bootstrap.existing.endpoints; if it will not come back, remove it with etcdctl member remove %s",
				m.alias, cmp.Or(strings.Join(urlsOf(m.Member), ", "), "any URL"), hex(m.ID))
		}
	}
	return ""
}

// setVersionBesideForeign lets new members run what the spec asks for. Beside foreign members there are no upgrades;
// but before the first of ours has joined, and within a minor version, there is nothing that an upgrade would have to
// go through.
func (v *view) setVersionBesideForeign() *verdict {
	has, err := parseRelease(v.epoch.version)
	wanted, err2 := parseRelease(v.Cluster.Spec.Version)
	none := !slices.ContainsFunc(v.members, func(m *member) bool { return m.name != "" })
	if err != nil || err2 != nil || has == wanted || !none && has.minor != wanted.minor {
		return nil
	}
	return &verdict{message: fmt.Sprintf("the members are to run etcd %s instead of %s", wanted, has),
		version: wanted.String(), resync: rule.ResyncSoon}
}

// retiring reports whether the spec says that the foreign members are to go.
func (v *view) retiring() bool {
	spec := existing(v.Cluster)
	return spec != nil && spec.RetireForeign && v.replicas > 0
}

// retirePause is between the removals of two foreign members: long enough for clients to settle, and for a person to
// stop it.
const retirePause = 15 * time.Second

func retireForeign(v *view) *verdict {
	if !v.besideForeign() || !v.retiring() {
		return nil
	}
	if silent := filter(v.replicaVoters(), func(m *member) bool { return !m.serving() }); len(silent) > 0 {
		return &verdict{message: fmt.Sprintf("foreign members are removed once all of ours serve; waiting for %s",
			strings.Join(names(silent), ", ")),
			outlook: v.byPerson(silent), resync: rule.ResyncLater}
	}
	rank := func(m *member) int {
		switch {
		case m.ID == v.Etcd.Leader:
			return 2
		case m.serving():
			return 1
		}
		return 0
	}
	list := filter(v.voters, func(m *member) bool { return m.alias != "" })
	if len(list) == 0 {
		return nil // a learner of theirs: rule Learner says so
	}
	slices.SortStableFunc(list, func(a, b *member) int { return rank(a) - rank(b) })
	why := fmt.Sprintf("retiring the foreign members, %d left", len(list))
	if since, err := time.Parse(time.RFC3339, v.epoch.record.Annotations[objects.AnnotationForeignSince]); err == nil &&
		v.Now.Before(since.Add(retirePause)) {
		return &verdict{message: fmt.Sprintf("%s; %s is next, after a pause", why, list[0].alias),
			resync: rule.ResyncLater}
	}
	return v.removeVoter(list[0], why)
}

// foreignMembers is at rest, or waits for somebody to serve again.
func foreignMembers(v *view) *verdict {
	if !v.besideForeign() {
		return nil
	}
	if silent := waitForMembers(v); silent != nil {
		return silent
	}
	_, message := v.foreignStage()
	return &verdict{message: message, outlook: v.followed()}
}

// foreignStage is how far the members have come beside foreign ones, in a word and in words.
func (v *view) foreignStage() (reason, message string) {
	var foreign []string
	for _, m := range v.members {
		if m.alias != "" {
			foreign = append(foreign, m.alias)
		}
	}
	own, theirs := len(v.replicaVoters()), strings.Join(foreign, ", ")
	switch {
	case v.replicas == 0 && len(v.names) == 0:
		return "Left", fmt.Sprintf("no member of ours is left beside %s; this EtcdCluster may be deleted, or "+
			"spec.replicas set for them to join again", theirs)
	case v.replicas == 0:
		return "Leaving", fmt.Sprintf("ours leave, %d left beside %s", own, theirs)
	case own < v.replicas:
		return "Joining", fmt.Sprintf("%d of %s of ours beside %s", own, wording.Count(v.replicas, "voter"), theirs)
	case v.retiring():
		return "Retiring", fmt.Sprintf("%s of ours; still to be removed: %s", wording.Count(own, "voter"), theirs)
	}
	return "ForeignMembers", fmt.Sprintf("%s of ours beside the foreign members %s; nobody is restarted, upgraded or "+
		"defragmented, and users are left as they are, until these are gone: set "+
		"spec.bootstrap.existing.retireForeign to true to have them removed, or spec.replicas to 0 to have ours "+
		"removed",
		wording.Count(own, "voter"), theirs)
}

// foreignCondition is the condition of that name: whether there are any, with a reason and words. Without a reason
// there is nothing to say.
func foreignCondition(v *view, because rule.Reason) (reason, message string, there bool) {
	switch {
	case !v.epoch.existing():
		return "", "", false
	case !v.epoch.hadQuorum() && v.unfit() != "":
		return "Unfit", v.unfit(), true
	case !v.epoch.hadQuorum():
		return "Asking", because.Message, true
	case !v.besideForeign():
		return "Retired", "all members are ours" + v.trustLeft(), false
	case v.Etcd == nil:
		return "", "", true // the condition stays as it was
	}
	reason, message = v.foreignStage()
	return reason, message, true
}

// trustLeft says that the authority of the former members is still trusted; empty when it is not.
func (v *view) trustLeft() string {
	if existing(v.Cluster) == nil {
		return ""
	}
	return "; spec.bootstrap.existing is of no more use: take it out" +
		map[bool]string{true: ", and the authority in Secret " + trustSecret(v.Cluster) +
			" is trusted no longer"}[trustSecret(v.Cluster) != ""]
}

// minAvailable is how many of our pods Kubernetes must leave alone. Foreign members are nobody's to count on: beside
// them one pod of ours at a time may go, if the rest is a quorum with them.
func (v *view) minAvailable() int {
	if v.Etcd == nil || !v.besideForeign() {
		return quorum(max(v.replicas, len(v.voters)))
	}
	own := len(v.replicaVoters())
	return max(own-1, quorum(len(v.voters))-(len(v.voters)-own), 0)
}

// targetReplicas is the number of voters to have: none of ours while they leave.
func targetReplicas(o Observation) int {
	if Leaving(o) {
		return 0
	}
	return Replicas(o.Cluster)
}

// Leaving reports whether members of ours are to leave the etcd that they have joined, because the EtcdCluster is
// being deleted. It might not have a quorum without them, so they are removed before their pods go. Whoever does not
// want to wait for that takes spec.bootstrap.existing out.
func Leaving(o Observation) bool {
	c := o.Cluster
	e, _ := epochs(o)
	if c.DeletionTimestamp == nil || Protected(c) || existing(c) == nil || len(e.foreign()) == 0 {
		return false
	}
	ours := func(name string) bool { _, is := objects.Ordinal(c.Name, name); return is }
	return slices.ContainsFunc(slices.Collect(maps.Keys(o.Children.Pods)), ours) ||
		slices.ContainsFunc(c.Status.Members, func(m v1alpha1.MemberStatus) bool { return !m.Foreign })
}

// Keys of the Secret of spec.bootstrap.existing.auth.
const (
	KeyUsername = corev1.BasicAuthUsernameKey
	KeyPassword = users.PasswordKey
)
