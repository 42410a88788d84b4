package answer

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// claimsRecord is the first record of a cluster that begins with a claim. Its one member has a number above those that
// the claims may be named by: they may be of a cluster of the same name.
func claimsRecord(v *facts.Facts) record.Record {
	first := v.AboveRemains()
	c := v.FormerClaims()
	for _, name := range c.Names {
		member, _ := facts.MemberOfClaim(v.Cluster.Name, name)
		if n, ours := objects.Ordinal(v.Cluster.Name, member); ours {
			first = max(first, n+1)
		}
	}
	r := v.NewRecord(first, 1)
	r.Chosen(v.ChooseClaim(c).Evidence)
	return r
}

// NewRecord is the record where there is none.
func newRecord(v *facts.Facts, _ *decision.Plan) *corev1.ConfigMap {
	switch {
	case len(v.Unsealed) > 0:
		return nil // it goes first
	case v.Epoch != nil || v.RanBefore():
		return recreatedRecord(v)
	case v.Replicas > 0:
		return firstRecord(v)
	}
	return nil
}

// firstRecord is that of a new cluster; nil while its data is not there.
func firstRecord(v *facts.Facts) *corev1.ConfigMap {
	from, waits := v.Beginning()
	if waits != "" {
		return nil
	}
	r := v.NewRecord(v.AboveRemains(), v.Replicas)
	switch from.Source {
	case record.SourceExisting:
		r = JoiningRecord(v.Cluster)
	case record.SourceClaims:
		r = claimsRecord(v)
	}
	r.Origin = from
	return record.New(v.Cluster, 1, r)
}

// Advance is the observed record with what has become known since.
func advance(v *facts.Facts, plan *decision.Plan) *corev1.ConfigMap {
	cm := facts.Kept(v.Cluster, v.Epoch.Record)
	advanced(v, plan).WriteTo(cm)
	return cm
}

// advanced is how far the epoch has come now.
func advanced(v *facts.Facts, plan *decision.Plan) record.State {
	s := v.Epoch.State
	s.NextOrdinal = v.NextOrdinal()
	if uids := startsOn(v); uids != nil {
		s.StartsOn = uids
	}
	if v.Etcd != nil && v.Unfit() == "" {
		s.ClusterID = v.Etcd.ClusterID
	}
	s.Foreign, s.ForeignSince = noteForeign(v)
	s.Version = cmp.Or(plan.Record.Version, s.Version)
	if !v.Epoch.HadQuorum() && plan.Record.Version == "" {
		s.Version = v.VersionBeforeQuorum()
	}
	s.Highest = noteRevision(v)
	s.Sum = v.FirstSum()
	s.Until, s.StreamEnd = v.FirstEnd()
	s.HTTPSPeers = v.HTTPSPeers()
	s.Mismatched = v.Mismatches()
	s.Choice = nextChoice(v, plan)
	s.OldLog = nextOldLog(v, plan)
	leavesOld := defaults.Experimental(v.Epoch.Version) && !defaults.Experimental(s.Version)
	if leavesOld && plan.Record.Version == "" { // one of 3.5 may have begun the log all the same
		s.OldLog = record.OldLog{There: true}
	}
	return s
}

// Copies are what the peer Service keeps of the record of the epoch that runs, in case that is deleted: by
// annotation.
func copies(v *facts.Facts) map[string]string {
	all := map[string]string{}
	if highest := noteRevision(v); highest != 0 {
		all[objects.AnnotationHighestRevision] = strconv.FormatInt(highest, 10)
	}
	if answered := facts.FormatAnswered(v.Answered()); answered != "" {
		all[objects.AnnotationAnswered] = answered
	}
	n := notedEpoch(v)
	if v.Epoch != nil {
		n = max(n, v.Epoch.N)
	}
	if version := otherVersion(v); version != "" {
		all[objects.AnnotationVersion] = version
	}
	maps.Copy(all, dialled(v))
	if n > 1 {
		all[objects.AnnotationEpoch] = strconv.Itoa(n)
	}
	if noted := v.HighestRecorded(); noted > max(1, n) {
		all[objects.AnnotationRecorded] = strconv.Itoa(noted)
	}
	return all
}

// otherVersion is the version that members are to run where the spec asks for another one, from which the record can't
// be made again; empty where it asks for that one.
func otherVersion(v *facts.Facts) string {
	if v.Epoch == nil {
		return notedVersion(v)
	}
	if v.Epoch.Version == v.Cluster.Spec.Version {
		return ""
	}
	return v.Epoch.Version
}

// notedVersion is what the peer Service has of that; empty for nothing.
func notedVersion(v *facts.Facts) string {
	if peers := v.Children.Services[objects.PeerService(v.Cluster.Name)]; peers != nil {
		return peers.Annotations[objects.AnnotationVersion]
	}
	return ""
}

// notedEpoch is the number of the epoch that runs, as the peer Service has it; 0 for the first.
func notedEpoch(v *facts.Facts) int {
	if peers := v.Children.Services[objects.PeerService(v.Cluster.Name)]; peers != nil {
		return objects.ReadMark(peers.Annotations[objects.AnnotationEpoch])
	}
	return 0
}

// RecreatedRecord takes the place of a record that was deleted. No member may bootstrap in it any more.
func recreatedRecord(v *facts.Facts) *corev1.ConfigMap {
	n, r := lostRecord(v)
	r.Recreated = true
	r.StartsOn = map[string]types.UID{}
	r.NextOrdinal = v.NextOrdinal()
	r.Version = cmp.Or(facts.LowestVersion(v.RunVersions()), notedVersion(v), v.Cluster.Status.Version,
		v.Cluster.Spec.Version)
	dialledAsBefore(v, &r)
	r.OldLog = record.OldLog{There: true} // for all that is known now
	s := &v.Cluster.Status
	if s.Epoch == 0 || n == int(s.Epoch) {
		r.ClusterID, _ = strconv.ParseUint(s.ClusterID, 16, 64)
	}
	r.Highest = noteRevision(v)
	r.Foreign = v.ForeignWithoutRecord()
	return record.New(v.Cluster, n, r)
}

// dialled is how the members are dialled, by annotation of the peer Service: nothing where all speak TLS. Where they
// did not always, it names those that do.
func dialled(v *facts.Facts) map[string]string {
	known := v.Epoch != nil && v.Epoch.Record != nil
	switch {
	case !known && v.RanBefore():
		return notedDialled(v)
	case !known && objects.Encrypted(v.Cluster), known && !v.Epoch.Plain():
		return nil
	}
	all := map[string]string{objects.AnnotationPeers: "http"}
	if !known {
		return all
	}
	if byTLS := v.HTTPSPeers(); len(byTLS) > 0 {
		all[objects.AnnotationHTTPSPeers] = strings.Join(byTLS, ",")
	}
	return all
}

// notedDialled is what the peer Service has of that.
func notedDialled(v *facts.Facts) map[string]string {
	if peers := v.Children.Services[objects.PeerService(v.Cluster.Name)]; peers != nil {
		return objects.Only(peers.Annotations, objects.AnnotationPeers, objects.AnnotationHTTPSPeers)
	}
	return nil
}

// dialledAsBefore writes on a record that is made again how the members are dialled, whatever the spec says now: as
// etcd lists them, or as their pods were made, or as the peer Service has it.
func dialledAsBefore(v *facts.Facts, r *record.Record) {
	noted := notedDialled(v)
	notedTLS := strings.Split(noted[objects.AnnotationHTTPSPeers], ",")
	plain := false
	var byTLS []string
	for _, name := range v.Names {
		m, pod := v.Find(name), v.Children.Pods[name]
		tls := slices.Contains(notedTLS, name)
		switch {
		case m != nil:
			tls = facts.ByTLS(m.PeerURLs...)
		case pod != nil:
			tls = facts.TLSFlagsOf(pod).Peers
		case noted[objects.AnnotationPeers] == "":
			continue
		}
		if tls {
			byTLS = append(byTLS, name)
		} else {
			plain = true
		}
	}
	if !plain {
		return
	}
	for name, url := range r.Initial {
		r.Initial[name] = "http:" + url[strings.Index(url, "//"):]
	}
	if len(r.Initial) > 0 {
		r.HTTPSPeers = byTLS
	}
}

// lostRecord is a record of the epoch that the next one is to take over from, or else of the one that the status and
// the claims tell of, with its number. That one is taken to have what is asked for: a missing record is no reason to
// restore.
func lostRecord(v *facts.Facts) (int, record.Record) {
	n, first := lostEpoch(v)
	from := record.Origin{Source: record.SourceEmpty}
	if v.Epoch != nil {
		n, first, from.Restore = v.Epoch.N, v.Epoch.First, v.Epoch.Restore
	}
	if n == 1 && (defaults.Joins(v.Cluster) || len(v.ForeignWithoutRecord()) > 0) {
		return 1, JoiningRecord(v.Cluster)
	}
	if r := v.Asked.Restore; v.Epoch == nil && r != nil {
		if from.Restore = r.ID; v.Answered()[r.ID] != 0 { // maybe it was put back
			from.Restore = facts.LastAnswer(v.Answered(), n+1)
		}
	}
	r := v.NewRecord(first, v.Replicas)
	r.Origin = from
	r.Answered = v.AnsweredWith(from, n)
	return n, r
}

// lostEpoch is the number of the epoch that runs, and the lowest of its members': above those whose claims an epoch
// has left behind.
func lostEpoch(v *facts.Facts) (n, first int) {
	lowest, behind := 0, map[int]int{}
	for name, claim := range v.All.Claims {
		member, _ := facts.MemberOfClaim(v.Cluster.Name, name)
		i, ours := objects.Ordinal(v.Cluster.Name, member)
		of := max(1, objects.ReadMark(claim.Annotations[objects.AnnotationEpoch]))
		switch {
		case !ours || !v.Ours(claim):
		case !facts.Quarantined(claim) && (lowest == 0 || of < lowest):
			lowest = of
		case facts.Quarantined(claim) && claim.Annotations[objects.AnnotationEpoch] != "":
			behind[of] = max(behind[of], i+1)
		}
	}
	n = max(1, int(v.Cluster.Status.Epoch), lowest, notedEpoch(v))
	for of, above := range behind {
		if of < n {
			first = max(first, above)
		}
	}
	return n, first
}

// StartsOn is what the record should say that members may start on: nil until everything for the initial members is
// observed, then that, then for each new learner what was made for it, as long as etcd lists the member.
func startsOn(v *facts.Facts) map[string]types.UID {
	uids := map[string]types.UID{}
	switch {
	case !v.Epoch.Provisioned() && v.HostPath():
		return v.AssignNodes(v.Epoch.InitialNames())
	case !v.Epoch.Provisioned():
		for _, name := range v.Epoch.InitialNames() {
			own := startUIDs(v, name)
			if own == nil {
				return nil
			}
			maps.Copy(uids, own)
		}
	case v.Etcd == nil:
		return v.Epoch.StartsOn
	default:
		for _, m := range v.Members {
			if v.MayBeMade(m) {
				maps.Copy(uids, startUIDs(v, m.PodName))
			}
			maps.Copy(uids, objects.Only(v.Epoch.StartsOn, m.PodName, facts.WALClaim(m.PodName)))
		}
	}
	return uids
}

// NextRecord is the record of the epoch that is to take over, with what has become known. One that is cancelled stays
// until nothing is seen that was made for it.
func nextRecord(v *facts.Facts, plan *decision.Plan) *corev1.ConfigMap {
	if v.Next == nil || v.Cancelled() && v.Next.LeavesNothing() {
		return nil
	}
	s := advanced(v.Next, &decision.Plan{})
	s.Phase = cmp.Or(plan.Record.Phase, s.Phase)
	if plan.Record.Evidence != "" {
		s.Chosen(plan.Record.Evidence)
	}
	cm := facts.Kept(v.Cluster, v.Next.Epoch.Record)
	s.WriteTo(cm)
	return cm
}

// noteRevision is what should be noted of that; 0 while there is nothing that is not known anyway.
func noteRevision(v *facts.Facts) int64 {
	if highest := v.HighestRevision(); highest > facts.RevisionStep {
		return highest
	}
	return 0
}

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

// NoteForeign is what the record should say of foreign members from now on, and since when it says so.
func noteForeign(v *facts.Facts) (map[string][]string, time.Time) {
	e := v.Epoch
	if !e.Existing() {
		return nil, time.Time{}
	}
	if v.Etcd == nil || v.Unfit() != "" && !e.HadQuorum() {
		return e.Foreign, e.ForeignSince
	}
	now := facts.ClientURLs(objects.Filter(v.Members, func(m *facts.Member) bool { return m.Alias != "" }))
	switch {
	case len(now) == 0:
		return nil, time.Time{}
	case maps.EqualFunc(now, e.Foreign, slices.Equal) && !e.ForeignSince.IsZero():
		return e.Foreign, e.ForeignSince
	}
	return now, v.Now.UTC().Truncate(time.Second)
}

// NextChoice is what the record names from now on.
func nextChoice(v *facts.Facts, plan *decision.Plan) record.Choice {
	switch {
	case plan.Record.Choice.Name != "":
		return plan.Record.Choice
	case v.Etcd == nil || v.Chosen() != nil:
		return v.Epoch.Choice
	}
	if m := v.Find(v.Epoch.Choice.Name); m != nil && m.Pod != nil && string(m.Pod.UID) == v.Epoch.Choice.Pod &&
		m.Pod.DeletionTimestamp != nil {
		return v.Epoch.Choice // whether it served, the next pod is to tell
	}
	return record.Choice{}
}

// NextOldLog is what the record should say of it now.
func nextOldLog(v *facts.Facts, plan *decision.Plan) record.OldLog {
	l := v.Epoch.OldLog
	switch {
	case plan.Record.Snapshotted:
		return record.OldLog{}
	case v.Release().Minor() == 5:
		return record.OldLog{There: plan.Record.Version != "" || l.There}
	case !l.There || v.Etcd == nil || len(objects.Filter(v.Members, (*facts.Member).Serving)) < len(v.Members):
		return l
	}
	least, most := int64(record.MostRevisions), int64(0)
	for _, m := range v.Members {
		if r, err := defaults.ParseRelease(m.Health.Version); err != nil || r.Minor() == 5 {
			return record.OldLog{There: true}
		}
		at := int64(min(m.Health.RaftIndex, record.MostRevisions))
		least = min(least, at)
		most = max(most, at)
	}
	switch {
	case l.UpTo == 0:
		l.UpTo = most
	case least > l.UpTo+facts.Turnover:
		return record.OldLog{}
	}
	return l
}
