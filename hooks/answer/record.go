package answer

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// claimsRecord is the first record of a cluster that begins with a claim. Its one member has a number above those that
// the claims may be named by: they may be of a cluster of the same name.
func claimsRecord(f *facts.Facts) record.Record {
	first := f.AboveRemains()
	c := f.FormerClaims()
	for _, name := range c.Names {
		member, _ := facts.MemberOfClaim(f.Cluster.Name, name)
		if n, ours := objects.Ordinal(f.Cluster.Name, member); ours {
			first = max(first, n+1)
		}
	}
	r := f.NewRecord(first, 1)
	r.Chosen(f.ChooseClaim(c).Evidence)
	return r
}

// newRecord is the record where there is none.
func newRecord(f *facts.Facts, _ *decision.Plan) *corev1.ConfigMap {
	switch {
	case len(f.Unsealed) > 0:
		return nil // it goes first
	case f.Epoch != nil || f.RanBefore():
		return recreatedRecord(f)
	case f.Replicas > 0:
		return firstRecord(f)
	}
	return nil
}

// firstRecord is that of a new cluster; nil while its data is not there.
func firstRecord(f *facts.Facts) *corev1.ConfigMap {
	from, waits := f.Beginning()
	if waits != "" {
		return nil
	}
	r := f.NewRecord(f.AboveRemains(), f.Replicas)
	switch from.Source {
	case record.SourceExternal:
		r = JoiningRecord(f.Cluster)
	case record.SourceClaims:
		r = claimsRecord(f)
	}
	if l := f.LatestSnapshot(); l != nil {
		r.Evidence = f.ChooseLatest(l).Evidence
	}
	r.Origin = from
	return record.New(f.Cluster, 1, r)
}

// advance is the observed record with what has become known since.
func advance(f *facts.Facts, plan *decision.Plan) *corev1.ConfigMap {
	cm := facts.Kept(f.Cluster, f.Epoch.Record)
	if s := advanced(f, plan); !reflect.DeepEqual(s, f.Epoch.State) {
		s.WriteTo(cm)
	}
	return cm
}

// advanced is how far the epoch has come now.
func advanced(f *facts.Facts, plan *decision.Plan) record.State {
	s := f.Epoch.State
	s.NextOrdinal = f.Mark()
	if uids := startsOn(f); uids != nil {
		s.StartsOn = uids
	}
	if f.Etcd != nil && f.Unfit() == "" {
		s.ClusterID = f.Etcd.ClusterID
	}
	s.External, s.ExternalSince = noteExternal(f)
	s.Version = cmp.Or(plan.Record.Version, s.Version)
	if !f.Epoch.HadQuorum() && plan.Record.Version == "" {
		s.Version = f.VersionBeforeQuorum()
	}
	s.Highest = noteRevision(f)
	s.Sum = f.FirstSum()
	s.Until, s.StreamEnd = f.FirstEnd()
	s.HTTPSPeers = f.HTTPSPeers()
	s.Mismatched = f.Mismatches()
	s.Choice = nextChoice(f, plan)
	s.OldLog = nextOldLog(f, plan)
	leavesOld := defaults.Experimental(f.Epoch.Version) && !defaults.Experimental(s.Version)
	if leavesOld && plan.Record.Version == "" { // one of 3.5 may have begun the log all the same
		s.OldLog = record.OldLog{There: true}
	}
	return s
}

// copies are what the peer Service keeps of the record of the epoch that runs, in case that is deleted: by
// annotation.
func copies(f *facts.Facts) map[string]string {
	all := map[string]string{}
	if highest := noteRevision(f); highest != 0 {
		all[objects.AnnotationHighestRevision] = strconv.FormatInt(highest, 10)
	}
	if answered := facts.FormatAnswered(f.Answered()); answered != "" {
		all[objects.AnnotationAnswered] = answered
	}
	n := notedEpoch(f)
	if f.Epoch != nil {
		n = max(n, f.Epoch.N)
	}
	if version := otherVersion(f); version != "" {
		all[objects.AnnotationVersion] = version
	}
	maps.Copy(all, dialled(f))
	if n > 1 {
		all[objects.AnnotationEpoch] = strconv.Itoa(n)
	}
	if noted := f.HighestRecorded(); noted > max(1, n) {
		all[objects.AnnotationRecorded] = strconv.Itoa(noted)
	}
	return all
}

// otherVersion is the version that members are to run where the spec asks for another one, from which the record can't
// be made again; empty where it asks for that one.
func otherVersion(f *facts.Facts) string {
	if f.Epoch == nil {
		return notedVersion(f)
	}
	if f.Epoch.Version == f.Cluster.Spec.Version {
		return ""
	}
	return f.Epoch.Version
}

// notedVersion is what the peer Service has of that; empty for nothing.
func notedVersion(f *facts.Facts) string {
	if peers := f.Children.Services[objects.PeerService(f.Cluster.Name)]; peers != nil {
		return peers.Annotations[objects.AnnotationVersion]
	}
	return ""
}

// notedEpoch is the number of the epoch that runs, as the peer Service has it; 0 for the first.
func notedEpoch(f *facts.Facts) int {
	if peers := f.Children.Services[objects.PeerService(f.Cluster.Name)]; peers != nil {
		return objects.ReadMark(peers.Annotations[objects.AnnotationEpoch])
	}
	return 0
}

// recreatedRecord takes the place of a record that was deleted. No member may bootstrap in it any more.
func recreatedRecord(f *facts.Facts) *corev1.ConfigMap {
	n, r := lostRecord(f)
	r.Recreated = true
	r.StartsOn = map[string]types.UID{}
	r.NextOrdinal = f.NextOrdinal()
	r.Version = cmp.Or(facts.LowestVersion(f.RunVersions()), notedVersion(f), f.Cluster.Status.Version,
		f.Cluster.Spec.Version)
	dialledAsBefore(f, &r)
	r.OldLog = record.OldLog{There: true} // for all that is known now
	s := &f.Cluster.Status
	if s.Epoch == 0 || n == int(s.Epoch) {
		r.ClusterID, _ = strconv.ParseUint(s.ClusterID, 16, 64)
	}
	r.Highest = noteRevision(f)
	r.External = f.ExternalWithoutRecord()
	return record.New(f.Cluster, n, r)
}

// dialled is how the members are dialled, by annotation of the peer Service: nothing where all speak TLS. Where they
// did not always, it names those that do.
func dialled(f *facts.Facts) map[string]string {
	known := f.Epoch != nil && f.Epoch.Record != nil
	switch {
	case !known && f.RanBefore():
		return notedDialled(f)
	case !known && objects.Encrypted(f.Cluster), known && !f.Epoch.Plain():
		return nil
	}
	all := map[string]string{objects.AnnotationPeers: "http"}
	if !known {
		return all
	}
	if byTLS := f.HTTPSPeers(); len(byTLS) > 0 {
		all[objects.AnnotationHTTPSPeers] = strings.Join(byTLS, ",")
	}
	return all
}

// notedDialled is what the peer Service has of that.
func notedDialled(f *facts.Facts) map[string]string {
	if peers := f.Children.Services[objects.PeerService(f.Cluster.Name)]; peers != nil {
		return objects.Only(peers.Annotations, objects.AnnotationPeers, objects.AnnotationHTTPSPeers)
	}
	return nil
}

// dialledAsBefore writes on a record that is made again how the members are dialled, whatever the spec says now: as
// etcd lists them, or as their pods were made, or as the peer Service has it.
func dialledAsBefore(f *facts.Facts, r *record.Record) {
	noted := notedDialled(f)
	notedTLS := strings.Split(noted[objects.AnnotationHTTPSPeers], ",")
	plain := false
	var byTLS []string
	for _, name := range f.Names {
		m := f.Find(name)
		pod := f.Children.Pods[name]
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
func lostRecord(f *facts.Facts) (int, record.Record) {
	n, first := lostEpoch(f)
	from := record.Origin{Source: record.SourceEmpty}
	if f.Epoch != nil {
		n = f.Epoch.N
		first = f.Epoch.First
		from.Restore = f.Epoch.Restore
	}
	if n == 1 && (defaults.Joins(f.Cluster) || len(f.ExternalWithoutRecord()) > 0) {
		return 1, JoiningRecord(f.Cluster)
	}
	if r := f.Asked.Restore; f.Epoch == nil && r != nil {
		if from.Restore = r.ID; f.Answered()[r.ID] != 0 { // maybe it was put back
			from.Restore = facts.LastAnswer(f.Answered(), n+1)
		}
	}
	r := f.NewRecord(first, f.Replicas)
	r.Origin = from
	r.Answered = f.AnsweredWith(from, n)
	return n, r
}

// lostEpoch is the number of the epoch that runs, and the lowest of its members': above those whose claims an epoch
// has left behind.
func lostEpoch(f *facts.Facts) (n, first int) {
	lowest := 0
	behind := map[int]int{}
	for name, claim := range f.All.Claims {
		member, _ := facts.MemberOfClaim(f.Cluster.Name, name)
		i, ours := objects.Ordinal(f.Cluster.Name, member)
		of := max(1, objects.ReadMark(claim.Annotations[objects.AnnotationEpoch]))
		switch {
		case !ours || !f.Ours(claim):
		case !facts.Quarantined(claim) && (lowest == 0 || of < lowest):
			lowest = of
		case facts.Quarantined(claim) && claim.Annotations[objects.AnnotationEpoch] != "":
			behind[of] = max(behind[of], i+1)
		}
	}
	n = max(1, int(f.Cluster.Status.Epoch), lowest, notedEpoch(f))
	for of, above := range behind {
		if of < n {
			first = max(first, above)
		}
	}
	return n, first
}

// startsOn is what the record should say that members may start on: nil until everything for the initial members is
// observed, then that, then for each new learner what was made for it, as long as etcd lists the member.
func startsOn(f *facts.Facts) map[string]types.UID {
	uids := map[string]types.UID{}
	switch {
	case !f.Epoch.Provisioned() && f.HostPath():
		return f.AssignNodes(f.Epoch.InitialNames())
	case !f.Epoch.Provisioned():
		for _, name := range f.Epoch.InitialNames() {
			own := startUIDs(f, name)
			if own == nil {
				return nil
			}
			maps.Copy(uids, own)
		}
	case f.Etcd == nil:
		maps.Copy(uids, f.Epoch.StartsOn)
		maps.Copy(uids, passedOver(f))
	default:
		for _, m := range f.Members {
			if f.MayBeMade(m) {
				maps.Copy(uids, startUIDs(f, m.PodName))
			}
			maps.Copy(uids, objects.Only(f.Epoch.StartsOn, m.PodName, facts.WALClaim(m.PodName)))
		}
		maps.Copy(uids, startsAhead(f))
		maps.Copy(uids, passedOver(f))
	}
	return uids
}

// startsAhead is what the record should say of those that are made ready before they are added: on what they may start,
// or that they may not.
func startsAhead(f *facts.Facts) map[string]types.UID {
	uids := map[string]types.UID{}
	readied := f.Readied()
	for _, name := range f.Names {
		switch {
		case !f.ToBeAdded(name):
		case !slices.Contains(readied, name):
			uids[name] = facts.NothingStarts
		case f.Epoch.Recorded(name) == "":
			maps.Copy(uids, startUIDs(f, name))
		default:
			maps.Copy(uids, objects.Only(f.Epoch.StartsOn, name, facts.WALClaim(name)))
		}
	}
	return uids
}

// passedOver are those that were made ready and whose numbers fall below the mark, though they were never added:
// nothing starts there. The same write says both.
func passedOver(f *facts.Facts) map[string]types.UID {
	uids := map[string]types.UID{}
	mark := f.Mark()
	for _, name := range f.Names {
		if n, _ := objects.Ordinal(f.Cluster.Name, name); f.ToBeAdded(name) && n < mark {
			uids[name] = facts.NothingStarts
		}
	}
	return uids
}

// nextRecord is the record of the epoch that is to take over, with what has become known. One that is cancelled stays
// until nothing is seen that was made for it.
func nextRecord(f *facts.Facts, plan *decision.Plan) *corev1.ConfigMap {
	if f.Next == nil || f.Cancelled() && f.Next.LeavesNothing() {
		return nil
	}
	s := advanced(f.Next, &decision.Plan{})
	s.Phase = cmp.Or(plan.Record.Phase, s.Phase)
	if plan.Record.Evidence != "" {
		s.Chosen(plan.Record.Evidence)
	}
	cm := facts.Kept(f.Cluster, f.Next.Epoch.Record)
	s.WriteTo(cm)
	return cm
}

// noteRevision is what should be noted of that; 0 while there is nothing that is not known anyway.
func noteRevision(f *facts.Facts) int64 {
	if highest := f.HighestRevision(); highest > facts.RevisionStep {
		return highest
	}
	return 0
}

// JoiningRecord is the record of a first epoch whose members join an external etcd. No member may begin an etcd of
// its own in it.
func JoiningRecord(c *v1beta1.EtcdCluster) record.Record {
	var r record.Record
	r.Source = record.SourceExternal
	r.Peers = objects.Scheme(c)
	r.Version = c.Spec.Version
	r.StartsOn = map[string]types.UID{}
	r.OldLog = record.OldLog{There: true} // what ran there before is not known
	return r
}

// noteExternal is what the record should say of external members from now on, and since when it says so.
func noteExternal(f *facts.Facts) (map[string][]string, time.Time) {
	e := f.Epoch
	if !e.Joined() {
		return nil, time.Time{}
	}
	if f.Etcd == nil || f.Unfit() != "" && !e.HadQuorum() {
		return e.External, e.ExternalSince
	}
	now := facts.ClientURLs(objects.Filter(f.Members, func(m *facts.Member) bool { return m.Alias != "" }))
	switch {
	case len(now) == 0:
		return nil, time.Time{}
	case maps.EqualFunc(now, e.External, slices.Equal) && !e.ExternalSince.IsZero():
		return e.External, e.ExternalSince
	}
	return now, f.Now.UTC().Truncate(time.Second)
}

// nextChoice is what the record names from now on.
func nextChoice(f *facts.Facts, plan *decision.Plan) record.Choice {
	switch {
	case plan.Record.Choice.Name != "":
		return plan.Record.Choice
	case f.Etcd == nil || f.Chosen() != nil:
		return f.Epoch.Choice
	}
	if m := f.Find(f.Epoch.Choice.Name); m != nil && m.Pod != nil && string(m.Pod.UID) == f.Epoch.Choice.Pod &&
		m.Pod.DeletionTimestamp != nil {
		return f.Epoch.Choice // whether it served, the next pod is to tell
	}
	return record.Choice{}
}

// nextOldLog is what the record should say of it now.
func nextOldLog(f *facts.Facts, plan *decision.Plan) record.OldLog {
	l := f.Epoch.OldLog
	switch {
	case plan.Record.Snapshotted:
		return record.OldLog{}
	case f.Release().Minor() == 5:
		return record.OldLog{There: plan.Record.Version != "" || l.There}
	case !l.There || f.Etcd == nil || len(objects.Filter(f.Members, (*facts.Member).Serving)) < len(f.Members):
		return l
	}
	least := int64(record.MostRevisions)
	most := int64(0)
	for _, m := range f.Members {
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
