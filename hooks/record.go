package hooks

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// records are the epoch's record, with annotations that only ever move forward, and whatever other ConfigMaps are ours.
func records(v *view, decision *verdict) []*corev1.ConfigMap {
	current := v.mode.record(v, decision)
	next := v.nextRecord(decision)
	var list []*corev1.ConfigMap
	for _, name := range slices.Sorted(maps.Keys(v.Children.ConfigMaps)) {
		cm := v.Children.ConfigMaps[name]
		if (current == nil || current.Name != name) && (next == nil || next.Name != name) && !v.leftover(cm) {
			list = append(list, kept(v.Cluster, cm))
		}
	}
	for _, record := range []*corev1.ConfigMap{current, next, decision.nextRecord} {
		if record != nil {
			record.Labels = labels(v.Cluster, nil)
			record.Annotations = annotations(v.Cluster, record.Annotations)
			list = append(list, record)
		}
	}
	return list
}

// newRecord is the record where there is none.
func (v *view) newRecord(*verdict) *corev1.ConfigMap {
	switch {
	case v.epoch != nil || v.ranBefore():
		return v.recreatedRecord()
	case v.replicas > 0:
		return v.firstRecord()
	}
	return nil
}

// firstRecord is that of a new cluster; nil while its data is not there.
func (v *view) firstRecord() *corev1.ConfigMap {
	from, waits := v.beginning()
	if waits != "" {
		return nil
	}
	record := newRecord(v.Cluster, 1, 0, v.replicas)
	if from.source == objects.SourceExisting {
		record = joiningRecord(v.Cluster)
	}
	originate(record, from)
	return record
}

// advance is the observed record with what has become known since.
func (v *view) advance(decision *verdict) *corev1.ConfigMap {
	old := v.epoch.record
	ann := map[string]string{}
	for _, key := range []string{objects.AnnotationStartsOn, objects.AnnotationClusterID, objects.AnnotationNextMember,
		objects.AnnotationVersion, objects.AnnotationPhase, objects.AnnotationSurvivor} {
		if value := old.Annotations[key]; value != "" {
			ann[key] = value
		}
	}
	ann[objects.AnnotationNextMember] = strconv.Itoa(v.nextOrdinal())
	if uids := v.startsOn(); uids != nil {
		ann[objects.AnnotationStartsOn] = cmp.Or(formatPairs(uids, ":"), startsOnNothing)
	}
	if v.Etcd != nil && v.unfit() == "" {
		ann[objects.AnnotationClusterID] = hex(v.Etcd.ClusterID)
	}
	if foreign := v.noteForeign(); foreign != "" {
		ann[objects.AnnotationForeign], ann[objects.AnnotationForeignSince] = foreign, v.foreignSince(foreign)
	}
	if !v.epoch.hadQuorum() && v.Etcd == nil {
		ann[objects.AnnotationVersion] = v.Cluster.Spec.Version // nothing has run yet that the version could harm
	}
	for key, value := range map[string]string{
		objects.AnnotationHighestRevision: v.noteRevision(),
		objects.AnnotationSHA256:          v.firstSum(),
		objects.AnnotationHTTPSPeers:      strings.Join(v.httpsPeers(), ","),
		objects.AnnotationMismatched:      strings.Join(v.mismatches(), ","),
		objects.AnnotationVersion:         decision.version,
		objects.AnnotationChosen:          v.nextChoice(decision),
		objects.AnnotationOldLog:          v.nextOldLog(decision).String(),
	} {
		if value != "" {
			ann[key] = value
		}
	}
	record := kept(v.Cluster, old)
	record.Annotations = ann
	return record
}

// copies are what the peer Service keeps of the record of the epoch that runs, for the day that somebody deletes
// that: by annotation.
func (v *view) copies() map[string]string {
	all := map[string]string{}
	if highest := v.noteRevision(); highest != "" {
		all[objects.AnnotationHighestRevision] = highest
	}
	if answered := formatAnswered(v.answered()); answered != "" {
		all[objects.AnnotationAnswered] = answered
	}
	n := v.notedEpoch()
	if v.epoch != nil {
		n = max(n, v.epoch.n)
	}
	if n > 1 {
		all[objects.AnnotationEpoch] = strconv.Itoa(n)
	}
	return all
}

// notedEpoch is the number of the epoch that runs, as the peer Service has it; 0 for the first.
func (v *view) notedEpoch() int {
	if peers := v.Children.Services[objects.PeerService(v.Cluster.Name)]; peers != nil {
		return objects.ReadMark(peers.Annotations[objects.AnnotationEpoch])
	}
	return 0
}

// recreatedRecord takes the place of a record that somebody deleted. Nobody may bootstrap in it any more.
func (v *view) recreatedRecord() *corev1.ConfigMap {
	record := v.lostRecord()
	record.Annotations[objects.AnnotationStartsOn] = startsOnNothing
	record.Annotations[objects.AnnotationNextMember] = strconv.Itoa(v.nextOrdinal())
	record.Annotations[objects.AnnotationVersion] = cmp.Or(v.Cluster.Status.Version, v.Cluster.Spec.Version)
	record.Annotations[objects.AnnotationOldLog] = oldLog{there: true}.String() // for all that is known now
	if s := &v.Cluster.Status; s.ClusterID != "" &&
		(s.Epoch == 0 || record.Name == objects.EpochName(v.Cluster.Name, int(s.Epoch))) {
		record.Annotations[objects.AnnotationClusterID] = s.ClusterID
	}
	if highest := v.noteRevision(); highest != "" {
		record.Annotations[objects.AnnotationHighestRevision] = highest
	}
	if foreign := v.foreignWithoutRecord(); foreign != "" {
		record.Annotations[objects.AnnotationForeign] = foreign
	}
	return record
}

// lostRecord is a record of the epoch that the next one is to take over from, or else of the one that the status and
// the claims tell of. That one is taken to have what spec.restore asks for: nobody restores anything for want of a
// record.
func (v *view) lostRecord() *corev1.ConfigMap {
	n, first := v.lostEpoch()
	from := origin{source: objects.SourceEmpty}
	if v.epoch != nil {
		n, first, from.restore = v.epoch.n, v.epoch.first, v.epoch.restore
	}
	if n == 1 && (joins(v.Cluster) || v.foreignWithoutRecord() != "") {
		return joiningRecord(v.Cluster)
	}
	if r := v.Cluster.Spec.Restore; v.epoch == nil && r != nil {
		if from.restore = r.ID; v.answered()[r.ID] != 0 { // maybe it was put back
			from.restore = lastAnswer(v.answered(), n+1)
		}
	}
	record := newRecord(v.Cluster, n, first, v.replicas)
	originate(record, from)
	v.recordAnswers(record, from)
	if first > 0 {
		record.Data[objects.EpochKeyFirst] = strconv.Itoa(first)
	}
	return record
}

// lostEpoch is the number of the epoch that runs, and the lowest of its members': above those whose claims an epoch
// has left behind.
func (v *view) lostEpoch() (n, first int) {
	lowest, behind := 0, map[int]int{}
	for name, claim := range v.all.Claims {
		member, _ := memberOfClaim(v.Cluster.Name, name)
		i, ours := objects.Ordinal(v.Cluster.Name, member)
		of := max(1, objects.ReadMark(claim.Annotations[objects.AnnotationEpoch]))
		switch {
		case !ours || !v.ours(claim):
		case !quarantined(claim) && (lowest == 0 || of < lowest):
			lowest = of
		case quarantined(claim) && claim.Annotations[objects.AnnotationEpoch] != "":
			behind[of] = max(behind[of], i+1)
		}
	}
	n = max(1, int(v.Cluster.Status.Epoch), lowest, v.notedEpoch())
	for of, above := range behind {
		if of < n {
			first = max(first, above)
		}
	}
	return n, first
}

// startsOn is what the record should say that members may start on: nil until everything for the initial members is
// observed, then that, then for each new learner what was made for it, as long as etcd lists the member.
func (v *view) startsOn() map[string]types.UID {
	uids := map[string]types.UID{}
	switch {
	case !v.epoch.provisioned() && v.hostPath():
		return v.assignNodes(v.epoch.initialNames())
	case !v.epoch.provisioned():
		for _, name := range v.epoch.initialNames() {
			own := v.startUIDs(name)
			if own == nil {
				return nil
			}
			maps.Copy(uids, own)
		}
	case v.Etcd == nil:
		return v.epoch.startsOn
	default:
		for _, m := range v.members {
			if v.mayBeMade(m) {
				maps.Copy(uids, v.startUIDs(m.name))
			}
			maps.Copy(uids, objects.Only(v.epoch.startsOn, m.name, WALClaim(m.name)))
		}
	}
	return uids
}
