package epochs

import (
	"cmp"
	"encoding/json"
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
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/versions"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
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
	first := aboveRemains(v)
	record := state.NewRecord(v, 1, first, v.Replicas)
	if first > 0 {
		record.Data[objects.EpochKeyFirst] = strconv.Itoa(first)
	}
	switch from.Source {
	case objects.SourceExisting:
		record = foreign.JoiningRecord(v.Cluster)
	case objects.SourceClaims:
		record = claimsRecord(v)
	}
	Originate(record, from)
	return record
}

// Advance is the observed record with what has become known since.
func Advance(v *state.View, verdict *decision.Verdict) *corev1.ConfigMap {
	old := v.Epoch.Record
	ann := map[string]string{}
	for _, key := range []string{objects.AnnotationStartsOn, objects.AnnotationClusterID, objects.AnnotationNextMember,
		objects.AnnotationVersion, objects.AnnotationPhase, objects.AnnotationSurvivor, objects.AnnotationSeal} {
		if value := old.Annotations[key]; value != "" {
			ann[key] = value
		}
	}
	ann[objects.AnnotationNextMember] = strconv.Itoa(v.NextOrdinal())
	if uids := startsOn(v); uids != nil {
		ann[objects.AnnotationStartsOn] = cmp.Or(state.FormatPairs(uids, ":"), state.StartsOnNothing)
	}
	if v.Etcd != nil && foreign.Unfit(v) == "" {
		ann[objects.AnnotationClusterID] = wording.Hex(v.Etcd.ClusterID)
	}
	if others := foreign.NoteForeign(v); others != "" {
		ann[objects.AnnotationForeign], ann[objects.AnnotationForeignSince] = others, foreign.ForeignSince(v, others)
	}
	if !v.Epoch.HadQuorum() {
		ann[objects.AnnotationVersion] = versionBeforeQuorum(v)
	}
	end, words := firstEnd(v)
	for key, value := range map[string]string{
		objects.AnnotationHighestRevision: noteRevision(v),
		objects.AnnotationSHA256:          firstSum(v),
		objects.AnnotationUntil:           end,
		objects.AnnotationStreamEnd:       words,
		objects.AnnotationHTTPSPeers:      strings.Join(state.HttpsPeers(v), ","),
		objects.AnnotationMismatched:      strings.Join(pods.Mismatches(v), ","),
		objects.AnnotationVersion:         verdict.Version,
		objects.AnnotationChosen:          state.NextChoice(v, verdict),
		objects.AnnotationOldLog:          versions.NextOldLog(v, verdict).String(),
	} {
		if value != "" {
			ann[key] = value
		}
	}
	if spec.Experimental(v.Epoch.Version) && !spec.Experimental(ann[objects.AnnotationVersion]) && verdict.Version == "" { // one of 3.5 may have begun the log all the same
		ann[objects.AnnotationOldLog] = state.OldLog{There: true}.String()
	}
	record := state.Kept(v.Cluster, old)
	record.Annotations = ann
	return record
}

// Copies are what the peer Service keeps of the record of the epoch that runs, in case that is deleted: by
// annotation.
func Copies(v *state.View) map[string]string {
	all := map[string]string{}
	if highest := noteRevision(v); highest != "" {
		all[objects.AnnotationHighestRevision] = highest
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
	n := objects.Recorded(v.Cluster, v.Children.Services[objects.PeerService(v.Cluster.Name)])
	for of, record := range state.EpochRecords(v.Observation) {
		if !slices.Contains(v.Fresh, record.Name) {
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
	record := lostRecord(v)
	record.Data[objects.EpochKeyRecreated] = "true"
	record.Annotations[objects.AnnotationStartsOn] = state.StartsOnNothing
	record.Annotations[objects.AnnotationNextMember] = strconv.Itoa(v.NextOrdinal())
	record.Annotations[objects.AnnotationVersion] = cmp.Or(state.LowestVersion(state.RunVersions(v)),
		notedVersion(v), v.Cluster.Status.Version, v.Cluster.Spec.Version)
	dialledAsBefore(v, record)
	record.Annotations[objects.AnnotationOldLog] = state.OldLog{There: true}.String() // for all that is known now
	if s := &v.Cluster.Status; s.ClusterID != "" &&
		(s.Epoch == 0 || record.Name == objects.EpochName(v.Cluster.Name, int(s.Epoch))) {
		record.Annotations[objects.AnnotationClusterID] = s.ClusterID
	}
	if highest := noteRevision(v); highest != "" {
		record.Annotations[objects.AnnotationHighestRevision] = highest
	}
	if others := foreign.ForeignWithoutRecord(v); others != "" {
		record.Annotations[objects.AnnotationForeign] = others
	}
	return record
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
	if byTLS := state.HttpsPeers(v); len(byTLS) > 0 {
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
func dialledAsBefore(v *state.View, record *corev1.ConfigMap) {
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
	if !plain || record.Data[objects.EpochKeyInitialCluster] == "" {
		return
	}
	initial := state.ParsePairs(record.Data[objects.EpochKeyInitialCluster], "=")
	for name, url := range initial {
		initial[name] = "http:" + url[strings.Index(url, "//"):]
	}
	record.Data[objects.EpochKeyInitialCluster] = state.FormatPairs(initial, "=")
	if len(byTLS) > 0 {
		record.Annotations[objects.AnnotationHTTPSPeers] = strings.Join(byTLS, ",")
	}
}

// lostRecord is a record of the epoch that the next one is to take over from, or else of the one that the status and
// the claims tell of. That one is taken to have what is asked for: a missing record is no reason to restore.
func lostRecord(v *state.View) *corev1.ConfigMap {
	n, first := lostEpoch(v)
	from := state.Origin{Source: objects.SourceEmpty}
	if v.Epoch != nil {
		n, first, from.Restore = v.Epoch.N, v.Epoch.First, v.Epoch.Restore
	}
	if n == 1 && (spec.Joins(v.Cluster) || foreign.ForeignWithoutRecord(v) != "") {
		return foreign.JoiningRecord(v.Cluster)
	}
	if r := v.Asked.Restore; v.Epoch == nil && r != nil {
		if from.Restore = r.ID; Answered(v)[r.ID] != 0 { // maybe it was put back
			from.Restore = state.LastAnswer(Answered(v), n+1)
		}
	}
	record := state.NewRecord(v, n, first, v.Replicas)
	Originate(record, from)
	recordAnswers(v, record, from)
	if first > 0 {
		record.Data[objects.EpochKeyFirst] = strconv.Itoa(first)
	}
	return record
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

// Originate writes where the data comes from.
func Originate(record *corev1.ConfigMap, from state.Origin) {
	record.Data[objects.EpochKeySource] = from.Source
	if from.Restore != "" {
		record.Data[objects.EpochKeyRestore] = from.Restore
	}
	if from.SurvivorsOf > 0 {
		record.Data[objects.EpochKeySurvivorsOf] = strconv.Itoa(from.SurvivorsOf)
	}
	if from.Member != "" {
		record.Data[objects.EpochKeyMember] = from.Member
	}
	if from.Bump != nil {
		record.Data[objects.EpochKeyBumpRevision] = strconv.FormatInt(*from.Bump, 10)
	}
	if from.Claim != nil {
		raw, err := json.Marshal(from.Claim)
		if err == nil { // plain data always encodes
			record.Data[objects.EpochKeyClaim] = string(raw)
		}
	}
	if from.Snapshot != nil {
		raw, err := json.Marshal(from.Snapshot)
		if err == nil { // plain data always encodes
			record.Data[objects.EpochKeySnapshot] = string(raw)
		}
	}
}

// RecordNextEpoch asks for the record of the next epoch.
func RecordNextEpoch(v *state.View, from state.Origin, message string) *decision.Verdict {
	size := v.Replicas
	if from.Source == objects.SourceSurvivor && from.Member == "" {
		size = 1 // a volume can be copied by one pod
	}
	first := v.NextOrdinal()
	if v.OnNamedNodes() || untold(v) {
		// a call from before may be about to give the next number away, with another address, and what is left in a
		// directory stays there (S9)
		first++
	}
	record := state.NewRecord(v, NextEpochNumber(v), first, size)
	Originate(record, from)
	record.Annotations[objects.AnnotationVersion] = versions.Planned(v)
	record.Data[objects.EpochKeyAfter] = strconv.Itoa(v.Epoch.N)
	record.Data[objects.EpochKeyFirst] = strconv.Itoa(first)
	record.Data[objects.EpochKeyFormerFirst] = strconv.Itoa(v.Epoch.First)
	recordPast(v, record, from)
	if from.Member != "" {
		record.Annotations[objects.AnnotationSurvivor] = Answering(v)
	}
	if from.SurvivorsOf == v.Epoch.N && from.Member == "" || v.Ending() {
		record.Annotations[objects.AnnotationPhase] = state.PhaseStopping // what will be copied must not change
	}
	return &decision.Verdict{Message: message, NextRecord: record, Resync: rule.ResyncSoon}
}

// untold reports whether a member may have been added of which nothing tells: the call was cut off before it noted the
// number, and there is no quorum any more that lists it. One more can't be: each is noted before the next is added.
func untold(v *state.View) bool { return v.Etcd == nil && v.Next == nil && v.Epoch.HadQuorum() }

// recordPast writes on the record of the next epoch what must be known of those before.
func recordPast(v *state.View, record *corev1.ConfigMap, from state.Origin) {
	floor, before := highestRevision(v), v.Epoch.Past
	if v.Next != nil { // which takes this one's place
		floor = max(floor, v.Next.Epoch.Floor)
		before = v.Next.Epoch.Past
	}
	record.Data[objects.EpochKeyRevisionFloor] = strconv.FormatInt(floor, 10)
	highest := max(floor, int64(NextEpochNumber(v)-1)*RevisionGap)
	if from.Bump == nil {
		highest = Noted(floor + RevisionGap)
	}
	record.Annotations[objects.AnnotationHighestRevision] = strconv.FormatInt(highest, 10)
	if v.Epoch.Record != nil {
		before = maps.Clone(before)
		now := state.Past{ClusterID: v.Epoch.ClusterID, Voters: before[v.Epoch.N].Voters}
		if v.Etcd != nil {
			now = state.Past{ClusterID: v.Etcd.ClusterID, Voters: numbers(v, v.Voters)}
		}
		before[v.Epoch.N] = now
	}
	record.Data[objects.EpochKeyPast] = state.FormatPast(before)
	recordAnswers(v, record, from)
}

// numbers are those of members; empty when one is not ours.
func numbers(v *state.View, of []*state.Member) string {
	var all []string
	for _, m := range of {
		n, ours := objects.Ordinal(v.Cluster.Name, m.PodName)
		if !ours {
			return ""
		}
		all = append(all, strconv.Itoa(n))
	}
	return strings.Join(all, ".")
}

// recordAnswers writes on a record the UIDs of the restores that are answered when its epoch has begun.
func recordAnswers(v *state.View, record *corev1.ConfigMap, from state.Origin) {
	answered := Answered(v)
	if n, _ := objects.Ordinal(v.Cluster.Name+"-epoch", record.Name); from.Restore != "" &&
		answered[from.Restore] == 0 {
		answered[from.Restore] = n
	}
	if len(answered) > 0 {
		record.Data[objects.EpochKeyAnswered] = state.FormatAnswered(answered)
	}
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
func pastOf(v *state.View, epoch int) state.Past {
	known := v.Epoch.Past[epoch]
	if v.Next != nil && v.Next.Epoch.Past[epoch] != (state.Past{}) {
		known = v.Next.Epoch.Past[epoch]
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
	for recorded := range state.EpochRecords(v.Observation) {
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
	record := Advance(v.Next, &decision.Verdict{})
	if phase := cmp.Or(verdict.Phase, v.Next.Epoch.Phase); phase != "" {
		record.Annotations[objects.AnnotationPhase] = phase
	}
	if chosen := cmp.Or(verdict.Survivor, v.Next.Epoch.Evidence); chosen != "" {
		record.Annotations[objects.AnnotationSurvivor] = chosen
	}
	return record
}
