package hooks

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// Members that join a running etcd (spec.bootstrap.existing). Its epoch has no initial members: ours join one by one as learners, by the same
// rules that let a cluster grow. The members that were there before are foreign: voters like any other whenever a quorum is counted, asked for
// their health like any other, and touched by nobody. When the spec says retireForeign, they are removed one by one. With the last of them the
// record forgets that there were any, and the cluster is like one that began empty.
//
// While they are there nothing else is done: who restarts, upgrades or defragments members would have to do it to all of them.
//
// Back it goes by replicas 0, or by the deletion of the EtcdCluster: ours are removed one by one, and the foreign etcd is as before.

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
	for _, endpoint := range e.Endpoints {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil || u.Hostname() == "" || u.Port() == "" || u.Scheme != "http" && u.Scheme != "https":
			return fmt.Errorf("spec.bootstrap.existing.endpoints: %q is no URL such as https://10.1.2.3:2379", endpoint)
		case (u.Scheme == "https") != (e.TLS != nil):
			return fmt.Errorf("spec.bootstrap.existing.tls is for endpoints that begin with https://, and %s does not fit", endpoint)
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
			Name: EpochName(c.Name, 1),
			Annotations: map[string]string{
				AnnotationNextMember: "0",
				AnnotationVersion:    c.Spec.Version,
				AnnotationStartsOn:   startsOnNothing,
				AnnotationOldLog:     oldLog{there: true}.String(), // what ran there before is not known
			},
		},
		Data: map[string]string{
			EpochKeySource:         SourceExisting,
			EpochKeyToken:          fmt.Sprintf("%s-%d", c.UID, 1),
			EpochKeyInitialCluster: "",
			EpochKeyPeers:          scheme(c),
		},
		Immutable: new(true),
	}
}

// existing reports whether the members of the epoch joined a running etcd.
func (e *epoch) existing() bool { return e != nil && e.source == SourceExisting }

// foreign are the members that are none of ours, as the record has them: by ID in hexadecimal, with their client URLs.
func (e *epoch) foreign() map[string][]string {
	all := map[string][]string{}
	if !e.existing() {
		return all
	}
	for field := range strings.SplitSeq(e.record.Annotations[AnnotationForeign], ",") {
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
	if v.Etcd == nil || v.unfit() != "" && !v.epoch.quorate() {
		return v.epoch.record.Annotations[AnnotationForeign]
	}
	var list []string
	for _, m := range v.members {
		if m.alias != "" {
			list = append(list, strings.Join(append([]string{hex(m.ID)}, m.ClientURLs...), " "))
		}
	}
	return strings.Join(list, ",")
}

// foreignSince is since when the record says this of foreign members.
func (v *view) foreignSince(foreign string) string {
	if since := v.epoch.record.Annotations[AnnotationForeignSince]; since != "" && foreign == v.epoch.record.Annotations[AnnotationForeign] {
		return since
	}
	return v.Now.UTC().Format(time.RFC3339)
}

// relicForeign is the same for a record that somebody deleted: by what etcd lists, or the status last listed.
func (v *view) relicForeign() string {
	if existing(v.Cluster) == nil {
		return ""
	}
	var list []string
	for _, m := range v.members {
		if m.name == "" {
			list = append(list, strings.Join(append([]string{hex(m.ID)}, m.ClientURLs...), " "))
		}
	}
	for _, s := range v.Cluster.Status.Members {
		if s.Foreign && v.Etcd == nil {
			list = append(list, s.ID)
		}
	}
	return strings.Join(list, ",")
}

// beside reports whether there are foreign members, or none were found yet. Once they are gone, whoever else turns up is a stranger.
func (v *view) beside() bool {
	switch {
	case !v.epoch.existing():
		return false
	case v.Etcd == nil || len(v.members) == 0:
		return !v.epoch.quorate() || len(v.epoch.foreign()) > 0
	}
	return slices.ContainsFunc(v.members, func(m *member) bool { return m.alias != "" })
}

// counted are the voters that are held against the number that the spec asks for: beside foreign members, ours alone.
func (v *view) counted() []*member {
	return filter(v.voters, func(m *member) bool { return m.alias == "" || m.name != "" })
}

// called is how the member is named in words and steps; empty for a stranger.
func (m *member) called() string { return or(m.name, m.alias) }

// meet fills in what is known of a listed member that is none of ours: nothing of a stranger, all of a foreign one.
func (v *view) meet(m *member) {
	if !v.epoch.existing() || v.epoch.quorate() && len(v.epoch.foreign()) == 0 {
		return
	}
	m.alias = or(m.Name, hex(m.ID))
	if _, taken := ordinal(v.Cluster.Name, m.alias); taken {
		m.alias = hex(m.ID) // its own name is one that a member of ours may have
	}
	m.health, m.heard = v.foreignHealth(hex(m.ID), m.ClientURLs)
}

// foreignHealth is what the foreign member with this ID answered, at whichever URL; else why it did not answer at its own. False when it
// was not asked.
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

// told is what the member answered, for the status.
func (m *member) told(v *view) Health {
	if m.alias != "" {
		return m.health
	}
	return v.Health[m.name]
}

// toldLast is what a member of the last known list answered while nobody can say who is a member.
func (v *view) toldLast(m v1alpha1.MemberStatus) Health {
	if m.Foreign && v.epoch != nil {
		h, _ := v.foreignHealth(m.ID, nil)
		return h
	}
	return v.Health[m.Name]
}

// ---- where they are asked

// foreignEndpoints are the URLs at which foreign members may answer: those of the spec, and what they have advertised. They are asked as long
// as there are any, or none were found yet.
func foreignEndpoints(o Observation) []Endpoint {
	spec := existing(o.Cluster)
	e, _ := epochs(o)
	known := e.foreign()
	if !e.existing() || e.quorate() && len(known) == 0 {
		return nil
	}
	var said, advertised []string
	if spec != nil {
		said = spec.Endpoints
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		advertised = append(advertised, filter(known[id], func(raw string) bool { return asks(spec, raw) })...)
	}
	var list []Endpoint
	for _, raw := range slices.Concat(said, advertised) {
		u, err := url.Parse(raw)
		if err != nil || slices.ContainsFunc(list, func(o Endpoint) bool { return o.Name == raw }) {
			continue
		}
		endpoint := Endpoint{Name: raw, ClientURL: raw, Foreign: true, ClusterID: e.clusterID}
		if u.Scheme == "https" {
			endpoint.ServerName = u.Hostname()
		}
		if u.Scheme == "https" && spec != nil && spec.TLS != nil {
			endpoint.ServerName = or(spec.TLS.ServerName, u.Hostname())
		}
		list = append(list, endpoint)
	}
	return list
}

// asks reports whether a foreign member is asked at a URL that it advertises: not at one of ourselves, nor in plain text where the spec's
// URLs are of TLS.
func asks(spec *v1alpha1.ExistingCluster, raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && !loopback(u.Hostname()) && (u.Scheme == "https" || spec == nil || spec.TLS == nil)
}

// loopback reports whether a host is oneself: what a member with etcd's defaults advertises.
func loopback(host string) bool {
	return slices.Contains([]string{"localhost", "::1", "::", "0.0.0.0"}, host) || strings.HasPrefix(host, "127.")
}

// Located are the endpoints, with the peer URL of those of foreign members, which their answers have told: see [Endpoint].
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

// ---- the rules

// join waits for a quorum of the existing etcd, and writes down which cluster it is: that is the one that is joined, whoever answers later.
func join(v *view) *verdict {
	if !v.epoch.existing() || v.epoch.quorate() {
		return nil
	}
	spec := existing(v.Cluster)
	switch {
	case spec == nil:
		return &verdict{message: "spec.bootstrap.existing is gone before the etcd that it named was joined: put it back, or delete this EtcdCluster", settled: true}
	case v.Etcd == nil:
		return &verdict{message: fmt.Sprintf("waiting for a quorum of the existing etcd to answer at %s%s", strings.Join(spec.Endpoints, ", "), v.unanswered()), resync: patience}
	case v.unfit() != "":
		return &verdict{message: "the existing etcd is not joined: " + v.unfit(), resync: patience}
	}
	return &verdict{message: fmt.Sprintf("recording that etcd cluster %s is joined, with the members %s", hex(v.Etcd.ClusterID), strings.Join(names(v.members), ", ")), resync: soon}
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
	return colon(strings.Join(list, "; "))
}

// unfit says why no member of ours may join the etcd that answers, and what to do; empty when they may.
func (v *view) unfit() string {
	if !v.beside() || v.Etcd == nil {
		return ""
	}
	if spec := existing(v.Cluster); spec != nil && !v.epoch.quorate() {
		for _, at := range spec.Endpoints {
			if h := v.Health[at]; h.ClusterID != 0 && h.ClusterID != v.Etcd.ClusterID {
				return fmt.Sprintf("spec.bootstrap.existing.endpoints are those of two clusters: at %s cluster %s answers, elsewhere cluster %s", at, hex(h.ClusterID), hex(v.Etcd.ClusterID))
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
	case byTLS(m.PeerURLs...) != encrypted(v.Cluster):
		theirs := "in plain text"
		if byTLS(m.PeerURLs...) {
			theirs, plain = "by TLS", "another tls.mode than Disabled"
		}
		return fmt.Sprintf("its member %s speaks with its peers %s (%s), so ours must too: delete this EtcdCluster and create it with %s", m.alias, theirs, strings.Join(m.PeerURLs, ", "), plain)
	case !m.serving() || err != nil || err2 != nil:
		return "" // who does not answer is waited for
	case has.major != wanted.major || has.minor != wanted.minor:
		return fmt.Sprintf("its member %s runs etcd %s, and spec.version is %s: set it to a release of %d.%d", m.alias, has, wanted, has.major, has.minor)
	case has.less(release{3, 5, 26}), has.minor == 6 && has.less(release{3, 6, 4}):
		return fmt.Sprintf("its member %s runs etcd %s, which loses members when they change: upgrade it to 3.5.26 or later, or 3.6.4 or later", m.alias, has)
	}
	quota := quotaBytes(v.Cluster.Spec.Options, storageSize(&v.Cluster.Spec))
	if m.health.DBSize >= quota/10*9 {
		return fmt.Sprintf("the database of its member %s has %s, and ours would have a quota of %s: raise spec.storage.size or spec.options.quotaBackendBytes, or defragment it", m.alias, mebibytes(m.health.DBSize), mebibytes(quota))
	}
	return ""
}

// foreignSilent says what to do about foreign voters that do not serve; empty when all do.
func (v *view) foreignSilent() string {
	for _, m := range v.voters {
		if m.alias != "" && !m.serving() {
			return fmt.Sprintf("; where Quorate can't reach %s at %s, name another client URL of it in spec.bootstrap.existing.endpoints; if it will not come back, remove it with etcdctl member remove %s",
				m.alias, or(strings.Join(m.ClientURLs, ", "), "any URL"), hex(m.ID))
		}
	}
	return ""
}

// retargetBeside lets new members run what the spec asks for. Beside foreign members there are no upgrades; but before the first of ours
// has joined, and within a minor version, there is nothing that an upgrade would have to go through.
func (v *view) retargetBeside() *verdict {
	has, err := parseRelease(v.epoch.version)
	wanted, err2 := parseRelease(v.Cluster.Spec.Version)
	none := !slices.ContainsFunc(v.members, func(m *member) bool { return m.name != "" })
	if err != nil || err2 != nil || has == wanted || !none && has.minor != wanted.minor {
		return nil
	}
	return &verdict{message: fmt.Sprintf("the members are to run etcd %s instead of %s", wanted, has), version: wanted.String(), resync: soon}
}

// retiring reports whether the spec says that the foreign members are to go.
func (v *view) retiring() bool {
	spec := existing(v.Cluster)
	return spec != nil && spec.RetireForeign && v.replicas > 0
}

// retirePause is between the removals of two foreign members: long enough for clients to settle, and for a person to stop it.
const retirePause = 15 * time.Second

func retireForeign(v *view) *verdict {
	if !v.beside() || !v.retiring() {
		return nil
	}
	if silent := names(filter(v.counted(), func(m *member) bool { return !m.serving() })); len(silent) > 0 {
		return &verdict{message: fmt.Sprintf("foreign members are removed once all of ours serve; waiting for %s", strings.Join(silent, ", ")), resync: patience}
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
	if since, err := time.Parse(time.RFC3339, v.epoch.record.Annotations[AnnotationForeignSince]); err == nil && v.Now.Before(since.Add(retirePause)) {
		return &verdict{message: fmt.Sprintf("%s; %s is next, after a pause", why, list[0].alias), resync: patience}
	}
	return v.retire(list[0], why)
}

// beside is at rest, or waits for somebody to serve again.
func beside(v *view) *verdict {
	if !v.beside() {
		return nil
	}
	if silent := heal(v); silent != nil {
		return silent
	}
	_, message := v.stage()
	return &verdict{message: message, settled: true}
}

// stage is how far the members have come beside foreign ones, in a word and in words.
func (v *view) stage() (reason, message string) {
	var foreign []string
	for _, m := range v.members {
		if m.alias != "" {
			foreign = append(foreign, m.alias)
		}
	}
	own, theirs := len(v.counted()), strings.Join(foreign, ", ")
	switch {
	case v.replicas == 0 && len(v.names) == 0:
		return "Left", fmt.Sprintf("no member of ours is left beside %s; this EtcdCluster may be deleted, or spec.replicas set for them to join again", theirs)
	case v.replicas == 0:
		return "Leaving", fmt.Sprintf("ours leave, %d left beside %s", own, theirs)
	case own < v.replicas:
		return "Joining", fmt.Sprintf("%d of %s of ours beside %s", own, count(v.replicas, "voter"), theirs)
	case v.retiring():
		return "Retiring", fmt.Sprintf("%s of ours; still to be removed: %s", count(own, "voter"), theirs)
	}
	return "Beside", fmt.Sprintf("%s of ours beside the foreign members %s; nobody is restarted, upgraded or defragmented, and users are left as they are, until these are gone: set spec.bootstrap.existing.retireForeign to true to have them removed, or spec.replicas to 0 to have ours removed",
		count(own, "voter"), theirs)
}

// foreignMembers is the condition of that name: whether there are any, with a reason and words. Without a reason there is nothing to say.
func foreignMembers(v *view, because Because) (reason, message string, there bool) {
	switch {
	case !v.epoch.existing():
		return "", "", false
	case !v.epoch.quorate() && v.unfit() != "":
		return "Unfit", v.unfit(), true
	case !v.epoch.quorate():
		return "Asking", because.Message, true
	case !v.beside():
		return "Retired", "all members are ours" + v.trustLeft(), false
	case v.Etcd == nil:
		return "", "", true // the condition stays as it was
	}
	reason, message = v.stage()
	return reason, message, true
}

// trustLeft says that the authority of the former members is still trusted; empty when it is not.
func (v *view) trustLeft() string {
	if existing(v.Cluster) == nil {
		return ""
	}
	return "; spec.bootstrap.existing is of no more use: take it out" + map[bool]string{true: ", and the authority in Secret " + trustSecret(v.Cluster) + " is trusted no longer"}[trustSecret(v.Cluster) != ""]
}

// minAvailable is how many of our pods Kubernetes must leave alone. Foreign members are nobody's to count on: beside them one pod of ours at
// a time may go, if the rest is a quorum with them.
func (v *view) minAvailable() int {
	if v.Etcd == nil || !v.beside() {
		return quorum(max(v.replicas, len(v.voters)))
	}
	own := len(v.counted())
	return max(own-1, quorum(len(v.voters))-(len(v.voters)-own), 0)
}

// aim is the number of voters to have: none of ours while they leave.
func aim(o Observation) int {
	if Leaving(o) {
		return 0
	}
	return replicas(o.Cluster)
}

// Leaving reports whether members of ours are to leave the etcd that they have joined, because the EtcdCluster is being deleted. It might not
// have a quorum without them, so they are removed before their pods go. Whoever does not want to wait for that takes spec.bootstrap.existing out.
func Leaving(o Observation) bool {
	c := o.Cluster
	e, _ := epochs(o)
	if c.DeletionTimestamp == nil || Protected(c) || existing(c) == nil || len(e.foreign()) == 0 {
		return false
	}
	ours := func(name string) bool { _, is := ordinal(c.Name, name); return is }
	return slices.ContainsFunc(slices.Collect(maps.Keys(o.Children.Pods)), ours) ||
		slices.ContainsFunc(c.Status.Members, func(m v1alpha1.MemberStatus) bool { return !m.Foreign })
}

// ---- certificates

// openWide lets a new pod's member take every certificate of its authorities for a peer's: foreign ones have other names in theirs.
func openWide(pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Command = slices.DeleteFunc(pod.Spec.Containers[i].Command, func(flag string) bool { return strings.HasPrefix(flag, "--peer-cert-allowed-cn=") })
	}
}

// opensWide reports whether a member still does that when all members are ours, and why it is to be restarted.
func (v *view) opensWide(m *member) (string, bool) {
	return "it takes every certificate of its authorities for a peer's, which was for the foreign members", m.speech.anyPeer && !v.beside()
}

// trustSecret names the Secret with the authorities of the foreign members that ours trust as well; empty for none.
func trustSecret(c *v1alpha1.EtcdCluster) string {
	e := existing(c)
	if e == nil || e.TLS == nil || mode(c) != v1alpha1.TLSAuto {
		return ""
	}
	return or(e.TLS.TrustSecretName, e.TLS.SecretName)
}

// adopt brings the authorities that are trusted beside the cluster's own up to what the spec names; nil when they are.
func (v *view) adopt(ca *Secret) Recipe {
	if !v.epoch.existing() || !usableAuthority(ca) {
		return nil
	}
	var also []Certificate
	name := trustSecret(v.Cluster)
	if name != "" {
		s := v.anySecret(name)
		if s == nil || len(s.Trust) == 0 {
			return nil // lacking says it
		}
		also = s.Trust
	}
	own := filter(ca.Trust, func(c Certificate) bool {
		return c.ID == ca.Certificate.ID || ca.Previous != nil && c.ID == ca.Previous.ID || strings.HasPrefix(c.CommonName, v.Cluster.Namespace+"/"+v.Cluster.Name+" ")
	})
	others := filter(ca.Trust, func(c Certificate) bool {
		return !slices.ContainsFunc(own, func(o Certificate) bool { return o.ID == c.ID })
	})
	if sameIDs(others, also) {
		return nil
	}
	recipe := Adopt{From: name}
	for _, c := range own {
		recipe.Keep = append(recipe.Keep, c.ID)
	}
	return recipe
}

// sameIDs reports whether two lists hold the same certificates, in whichever order and number.
func sameIDs(a, b []Certificate) bool {
	ids := func(list []Certificate) []string {
		var all []string
		for _, c := range list {
			all = append(all, c.ID)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return slices.Equal(ids(a), ids(b))
}

// lackingForeign says which Secret of spec.bootstrap.existing is not there or can't be used, or not trusted yet, and why.
func (v *view) lackingForeign() []string {
	e := existing(v.Cluster)
	if e == nil || e.TLS == nil || !v.epoch.existing() || !v.beside() {
		return nil
	}
	var list []string
	lacks := func(name, why string) { list = append(list, fmt.Sprintf("Secret %s: %s", name, why)) }
	absent := fmt.Sprintf("it does not exist, or lacks the label %s: %s", LabelCluster, v.Cluster.Name)
	for _, name := range distinct([]string{e.TLS.SecretName, or(e.TLS.TrustSecretName, e.TLS.SecretName)}) {
		switch s := v.anySecret(name); {
		case s == nil:
			lacks(name, absent)
		case len(s.Trust) == 0:
			lacks(name, "it lacks ca.crt, the authority of the foreign members, or that can't be read")
		case name == e.TLS.SecretName && s.has(KeyCertificate) && s.Certificate == nil:
			lacks(name, s.Flaw)
		}
	}
	if e.Auth != nil {
		if s := v.anySecret(e.Auth.SecretName); s == nil {
			lacks(e.Auth.SecretName, absent)
		} else if !s.has(KeyUsername, KeyPassword) {
			lacks(e.Auth.SecretName, "it lacks username or password")
		}
	}
	if len(list) > 0 {
		return list
	}
	return v.notAdopted()
}

// notAdopted says which of our Secrets do not trust the foreign members' authority yet.
func (v *view) notAdopted() []string {
	var list []string
	name := trustSecret(v.Cluster)
	if name == "" {
		return nil
	}
	for _, own := range []string{CASecret(v.Cluster.Name), peerSecret(v.Cluster), serverSecret(v.Cluster)} {
		s := v.Children.Secrets[own]
		if s != nil && slices.ContainsFunc(v.anySecret(name).Trust, func(c Certificate) bool {
			return !slices.ContainsFunc(s.Trust, func(o Certificate) bool { return o.ID == c.ID })
		}) {
			list = append(list, fmt.Sprintf("Secret %s: it does not trust the authority in Secret %s yet", own, name))
		}
	}
	return list
}

// Keys of the Secret of spec.bootstrap.existing.auth.
const (
	KeyUsername = corev1.BasicAuthUsernameKey
	KeyPassword = passwordKey
)
