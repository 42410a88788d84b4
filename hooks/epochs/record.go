package epochs

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/foreign"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/versions"
	"github.com/quorate-dev/quorate/hooks/volumes"
)

// NewRecord is the record where there is none.
func NewRecord(v *state.View, _ *decision.Verdict) *corev1.ConfigMap {
	switch {
	case len(v.Unsealed) > 0:
		return nil // it goes first
	case v.Epoch != nil || state.RanBefore(v):
		return RecreatedRecord(v)
	case v.Replicas > 0:
		return firstRecord(v)
	}
	return nil
}

// firstRecord is that of a new cluster; nil while its data is not there.
func firstRecord(v *state.View) *corev1.ConfigMap {
	from, waits := Beginning(v)
	if waits != "" {
		return nil
	}
	r := state.NewRecord(v, aboveRemains(v), v.Replicas)
	switch from.Source {
	case record.SourceExisting:
		r = foreign.JoiningRecord(v.Cluster)
	case record.SourceClaims:
		r = claimsRecord(v)
	}
	r.Origin = from
	return record.New(v.Cluster, 1, r)
}

// Advance is the observed record with what has become known since.
func Advance(v *state.View, verdict *decision.Verdict) *corev1.ConfigMap {
	cm := state.Kept(v.Cluster, v.Epoch.Record)
	advanced(v, verdict).WriteTo(cm)
	return cm
}

// advanced is how far the epoch has come now.
func advanced(v *state.View, verdict *decision.Verdict) record.State {
	s := v.Epoch.State
	s.NextOrdinal = v.NextOrdinal()
	if uids := startsOn(v); uids != nil {
		s.StartsOn = uids
	}
	if v.Etcd != nil && foreign.Unfit(v) == "" {
		s.ClusterID = v.Etcd.ClusterID
	}
	s.Foreign, s.ForeignSince = foreign.NoteForeign(v)
	s.Version = cmp.Or(verdict.Version, s.Version)
	if !v.Epoch.HadQuorum() && verdict.Version == "" {
		s.Version = versionBeforeQuorum(v)
	}
	s.Highest = noteRevision(v)
	s.Sum = firstSum(v)
	s.Until, s.StreamEnd = firstEnd(v)
	s.HTTPSPeers = state.HTTPSPeers(v)
	s.Mismatched = pods.Mismatches(v)
	s.Choice = state.NextChoice(v, verdict)
	s.OldLog = versions.NextOldLog(v, verdict)
	leavesOld := spec.Experimental(v.Epoch.Version) && !spec.Experimental(s.Version)
	if leavesOld && verdict.Version == "" { // one of 3.5 may have begun the log all the same
		s.OldLog = record.OldLog{There: true}
	}
	return s
}

// Copies are what the peer Service keeps of the record of the epoch that runs, in case that is deleted: by
// annotation.
func Copies(v *state.View) map[string]string {
	all := map[string]string{}
	if highest := noteRevision(v); highest != 0 {
		all[objects.AnnotationHighestRevision] = strconv.FormatInt(highest, 10)
	}
	if answered := state.FormatAnswered(Answered(v)); answered != "" {
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
	if noted := recorded(v); noted > max(1, n) {
		all[objects.AnnotationRecorded] = strconv.Itoa(noted)
	}
	return all
}

// recorded is the highest number of an epoch whose record was seen. That of one that is only now made is not noted before
// it is written again.
func recorded(v *state.View) int {
	n := record.Recorded(v.Cluster, v.Children.Services[objects.PeerService(v.Cluster.Name)])
	for of, e := range v.Recorded {
		if !slices.Contains(v.Fresh, e.Record.Name) {
			n = max(n, of)
		}
	}
	return n
}

// otherVersion is the version that members are to run where the spec asks for another one, from which the record can't
// be made again; empty where it asks for that one.
func otherVersion(v *state.View) string {
	if v.Epoch == nil {
		return notedVersion(v)
	}
	if v.Epoch.Version == v.Cluster.Spec.Version {
		return ""
	}
	return v.Epoch.Version
}

// notedVersion is what the peer Service has of that; empty for nothing.
func notedVersion(v *state.View) string {
	if peers := v.Children.Services[objects.PeerService(v.Cluster.Name)]; peers != nil {
		return peers.Annotations[objects.AnnotationVersion]
	}
	return ""
}

// notedEpoch is the number of the epoch that runs, as the peer Service has it; 0 for the first.
func notedEpoch(v *state.View) int {
	if peers := v.Children.Services[objects.PeerService(v.Cluster.Name)]; peers != nil {
		return objects.ReadMark(peers.Annotations[objects.AnnotationEpoch])
	}
	return 0
}

// RecreatedRecord takes the place of a record that was deleted. No member may bootstrap in it any more.
func RecreatedRecord(v *state.View) *corev1.ConfigMap {
	n, r := lostRecord(v)
	r.Recreated = true
	r.StartsOn = map[string]types.UID{}
	r.NextOrdinal = v.NextOrdinal()
	r.Version = cmp.Or(state.LowestVersion(state.RunVersions(v)), notedVersion(v), v.Cluster.Status.Version,
		v.Cluster.Spec.Version)
	dialledAsBefore(v, &r)
	r.OldLog = record.OldLog{There: true} // for all that is known now
	s := &v.Cluster.Status
	if s.Epoch == 0 || n == int(s.Epoch) {
		r.ClusterID, _ = strconv.ParseUint(s.ClusterID, 16, 64)
	}
	r.Highest = noteRevision(v)
	r.Foreign = foreign.ForeignWithoutRecord(v)
	return record.New(v.Cluster, n, r)
}

// dialled is how the members are dialled, by annotation of the peer Service: nothing where all speak TLS. Where they
// did not always, it names those that do.
func dialled(v *state.View) map[string]string {
	known := v.Epoch != nil && v.Epoch.Record != nil
	switch {
	case !known && state.RanBefore(v):
		return notedDialled(v)
	case !known && objects.Encrypted(v.Cluster), known && !v.Epoch.Plain():
		return nil
	}
	all := map[string]string{objects.AnnotationPeers: "http"}
	if !known {
		return all
	}
	if byTLS := state.HTTPSPeers(v); len(byTLS) > 0 {
		all[objects.AnnotationHTTPSPeers] = strings.Join(byTLS, ",")
	}
	return all
}

// notedDialled is what the peer Service has of that.
func notedDialled(v *state.View) map[string]string {
	if peers := v.Children.Services[objects.PeerService(v.Cluster.Name)]; peers != nil {
		return objects.Only(peers.Annotations, objects.AnnotationPeers, objects.AnnotationHTTPSPeers)
	}
	return nil
}

// dialledAsBefore writes on a record that is made again how the members are dialled, whatever the spec says now: as
// etcd lists them, or as their pods were made, or as the peer Service has it.
func dialledAsBefore(v *state.View, r *record.Record) {
	noted := notedDialled(v)
	notedTLS := strings.Split(noted[objects.AnnotationHTTPSPeers], ",")
	plain := false
	var byTLS []string
	for _, name := range v.Names {
		m, pod := v.Find(name), v.Children.Pods[name]
		tls := slices.Contains(notedTLS, name)
		switch {
		case m != nil:
			tls = state.ByTLS(m.PeerURLs...)
		case pod != nil:
			tls = state.TLSFlagsOf(pod).Peers
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
func lostRecord(v *state.View) (int, record.Record) {
	n, first := lostEpoch(v)
	from := record.Origin{Source: record.SourceEmpty}
	if v.Epoch != nil {
		n, first, from.Restore = v.Epoch.N, v.Epoch.First, v.Epoch.Restore
	}
	if n == 1 && (spec.Joins(v.Cluster) || len(foreign.ForeignWithoutRecord(v)) > 0) {
		return 1, foreign.JoiningRecord(v.Cluster)
	}
	if r := v.Asked.Restore; v.Epoch == nil && r != nil {
		if from.Restore = r.ID; Answered(v)[r.ID] != 0 { // maybe it was put back
			from.Restore = state.LastAnswer(Answered(v), n+1)
		}
	}
	r := state.NewRecord(v, first, v.Replicas)
	r.Origin = from
	r.Answered = answeredWith(v, from, n)
	return n, r
}

// lostEpoch is the number of the epoch that runs, and the lowest of its members': above those whose claims an epoch
// has left behind.
func lostEpoch(v *state.View) (n, first int) {
	lowest, behind := 0, map[int]int{}
	for name, claim := range v.All.Claims {
		member, _ := state.MemberOfClaim(v.Cluster.Name, name)
		i, ours := objects.Ordinal(v.Cluster.Name, member)
		of := max(1, objects.ReadMark(claim.Annotations[objects.AnnotationEpoch]))
		switch {
		case !ours || !v.Ours(claim):
		case !state.Quarantined(claim) && (lowest == 0 || of < lowest):
			lowest = of
		case state.Quarantined(claim) && claim.Annotations[objects.AnnotationEpoch] != "":
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
func startsOn(v *state.View) map[string]types.UID {
	uids := map[string]types.UID{}
	switch {
	case !v.Epoch.Provisioned() && v.HostPath():
		return volumes.AssignNodes(v, v.Epoch.InitialNames())
	case !v.Epoch.Provisioned():
		for _, name := range v.Epoch.InitialNames() {
			own := volumes.StartUIDs(v, name)
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
				maps.Copy(uids, volumes.StartUIDs(v, m.PodName))
			}
			maps.Copy(uids, objects.Only(v.Epoch.StartsOn, m.PodName, state.WALClaim(m.PodName)))
		}
	}
	return uids
}

// RecordNextEpoch asks for the record of the next epoch.
func RecordNextEpoch(v *state.View, from record.Origin, message string) *decision.Verdict {
	size := v.Replicas
	if from.Source == record.SourceSurvivor && from.Member == "" {
		size = 1 // a volume can be copied by one pod
	}
	first := v.NextOrdinal()
	if v.OnNamedNodes() || untold(v) {
		// a call from before may be about to give the next number away, with another address, and what is left in a
		// directory stays there (S9)
		first++
	}
	n := NextEpochNumber(v)
	r := state.NewRecord(v, first, size)
	r.Origin = from
	r.Version = versions.Planned(v)
	r.After = v.Epoch.N
	r.FormerFirst = v.Epoch.First
	recordPast(v, &r, n)
	if from.Member != "" {
		r.Chosen(Answering(v))
	}
	if from.SurvivorsOf == v.Epoch.N && from.Member == "" || v.Ending() {
		r.Phase = record.PhaseStopping // what will be copied must not change
	}
	return &decision.Verdict{Message: message, NextRecord: record.New(v.Cluster, n, r), Resync: rule.ResyncSoon}
}

// untold reports whether a member may have been added of which nothing tells: the call was cut off before it noted the
// number, and there is no quorum any more that lists it. One more can't be: each is noted before the next is added.
func untold(v *state.View) bool { return v.Etcd == nil && v.Next == nil && v.Epoch.HadQuorum() }

// recordPast writes on the record of the next epoch, the nth, what must be known of those before.
func recordPast(v *state.View, r *record.Record, n int) {
	before := v.Epoch.Past
	r.Floor = highestRevision(v)
	if v.Next != nil { // which takes this one's place
		r.Floor = max(r.Floor, v.Next.Epoch.Floor)
		before = v.Next.Epoch.Past
	}
	r.Highest = max(r.Floor, int64(n-1)*RevisionGap)
	if r.Bump == nil {
		r.Highest = Noted(r.Floor + RevisionGap)
	}
	r.Past = maps.Clone(before)
	if v.Epoch.Record != nil {
		now := record.Past{ClusterID: v.Epoch.ClusterID, Voters: before[v.Epoch.N].Voters}
		if v.Etcd != nil {
			now = record.Past{ClusterID: v.Etcd.ClusterID, Voters: numbers(v, v.Voters)}
		}
		if r.Past == nil {
			r.Past = map[int]record.Past{}
		}
		r.Past[v.Epoch.N] = now
	}
	r.Answered = answeredWith(v, r.Origin, n)
}

// numbers are those of members; nil when one is not ours.
func numbers(v *state.View, of []*state.Member) []int {
	var all []int
	for _, m := range of {
		n, ours := objects.Ordinal(v.Cluster.Name, m.PodName)
		if !ours {
			return nil
		}
		all = append(all, n)
	}
	return all
}

// answeredWith are the UIDs of the restores that are answered when the nth epoch has begun, with this data.
func answeredWith(v *state.View, from record.Origin, n int) map[string]int {
	answered := Answered(v)
	if from.Restore != "" && answered[from.Restore] == 0 {
		answered[from.Restore] = n
	}
	return answered
}

// Answered are the UIDs of the restores that the epoch that runs, or one before it, has answered, with the number of
// that.
func Answered(v *state.View) map[string]int {
	all := map[string]int{}
	if peers := v.Children.Services[objects.PeerService(v.Cluster.Name)]; peers != nil {
		all = state.ReadAnswered(peers.Annotations[objects.AnnotationAnswered])
	}
	if v.Epoch == nil {
		return all
	}
	known := v.Epoch.Answered
	if v.Epoch.Record == nil && v.Next != nil { // the epoch before has no record any more
		known = maps.Clone(v.Next.Epoch.Answered)
		maps.DeleteFunc(known, func(_ string, n int) bool { return n >= v.Next.Epoch.N })
	}
	maps.Copy(all, known)
	if id := v.Epoch.Restore; id != "" && all[id] == 0 {
		all[id] = v.Epoch.N
	}
	return all
}

// clusterIDOf is etcd's cluster ID of an epoch; 0 when it is not known.
func clusterIDOf(v *state.View, epoch int) uint64 { return pastOf(v, epoch).ClusterID }

// pastOf is what is known of an epoch.
func pastOf(v *state.View, epoch int) record.Past {
	known := v.Epoch.Past[epoch]
	if v.Next != nil {
		if later, is := v.Next.Epoch.Past[epoch]; is {
			known = later
		}
	}
	if epoch == v.Epoch.N && v.Epoch.ClusterID != 0 {
		known.ClusterID = v.Epoch.ClusterID
	}
	return known
}

// NextEpochNumber is the number of the next epoch: above that of every epoch whose record is seen, be it a leftover,
// or whose volumes are.
func NextEpochNumber(v *state.View) int {
	n := max(v.Epoch.N, recorded(v))
	for recorded := range v.Recorded {
		n = max(n, recorded)
	}
	for _, claim := range v.All.Claims {
		n = max(n, objects.ReadMark(claim.Annotations[objects.AnnotationEpoch]))
	}
	return n + 1
}

// NextRecord is the record of the epoch that is to take over, with what has become known. One that is cancelled stays
// until nothing is seen that was made for it.
func NextRecord(v *state.View, verdict *decision.Verdict) *corev1.ConfigMap {
	if v.Next == nil || Cancelled(v) && LeavesNothing(v.Next) {
		return nil
	}
	s := advanced(v.Next, &decision.Verdict{})
	s.Phase = cmp.Or(verdict.Phase, s.Phase)
	if verdict.Survivor != "" {
		s.Chosen(verdict.Survivor)
	}
	cm := state.Kept(v.Cluster, v.Next.Epoch.Record)
	s.WriteTo(cm)
	return cm
}
