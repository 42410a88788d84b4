package hooks

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// How one epoch takes over from another: to restore a snapshot in place, to go back to earlier data, or because the quorum's data is lost.
//
// The next epoch is recorded first, as the first one is; that decides who its members are, under numbers above all that were ever used.
// From then on it comes in three moves, each of which is written on its record and waits for the one before to be observed.
//
//	staging   Its members get their volumes and are filled, beside the epoch that runs; they wait at a gate before their etcd. Whatever is
//	          wrong with the data is found out here, with nothing lost, and the wish can be taken back.
//	stopping  The record of the epoch that runs is deleted, and its members are stopped. Their pods name that record: one that a late view
//	          asks for once more does not start. Its volumes stay as they are.
//	began     Once no pod of the epoch before is left, it can't acknowledge anything any more, and the gate opens.
//
// An epoch that begins with the volume of a member of the one before can be staged only when that is stopped, so it is stopped first.
//
// So at no time can two epochs acknowledge writes. What the epoch before leaves are its claims, in quarantine.

// within are the children of one epoch: pods and claims whose members' numbers are its own, and those without a number.
func within(o Observation, e *epoch, below int) Children {
	if e == nil || e.first == 0 && below == mostMembers {
		return o.Children
	}
	own := func(name string) bool {
		n, numbered := ordinal(o.Cluster.Name, name)
		return !numbered || n >= e.first && n < below
	}
	c := o.Children
	c.Pods, c.Claims = map[string]*corev1.Pod{}, map[string]*corev1.PersistentVolumeClaim{}
	for name, pod := range o.Children.Pods {
		if own(name) {
			c.Pods[name] = pod
		}
	}
	for name, claim := range o.Children.Claims {
		if member, _ := standsOn(o.Cluster.Name, name); own(member) {
			c.Claims[name] = claim
		}
	}
	return c
}

// ---- the record

// resolved is a snapshot with all that is needed to restore it, as the record keeps it.
type resolved struct {
	// URL of the artifact, SHA256 of its database in hexadecimal; empty when that is not known.
	URL    string `json:"url"`
	SHA256 string `json:"sha256,omitempty"`
	// Store says how it is reached.
	Store              v1alpha1.Store `json:"store"`
	IdentitySecret     string         `json:"identitySecret,omitempty"`
	ServiceAccountName string         `json:"serviceAccountName,omitempty"`
	BumpRevision       int64          `json:"bumpRevision,omitempty"`
}

func readOrigin(cm *corev1.ConfigMap) origin {
	from := origin{source: or(cm.Data[EpochKeySource], SourceEmpty), restore: cm.Data[EpochKeyRestore], survivorsOf: markIn(cm.Data[EpochKeySurvivorsOf])}
	if raw := cm.Data[EpochKeySnapshot]; raw != "" {
		from.snapshot = &resolved{}
		if err := json.Unmarshal([]byte(raw), from.snapshot); err != nil {
			from.snapshot = nil
		}
	}
	return from
}

func readSuccession(cm *corev1.ConfigMap) succession {
	s := succession{after: markIn(cm.Data[EpochKeyAfter]), phase: cm.Annotations[AnnotationPhase], evidence: cm.Annotations[AnnotationSurvivor]}
	s.survivor, _, _ = strings.Cut(s.evidence, ":")
	return s
}

// originate writes where the data comes from.
func originate(record *corev1.ConfigMap, from origin) {
	record.Data[EpochKeySource] = from.source
	if from.restore != "" {
		record.Data[EpochKeyRestore] = from.restore
	}
	if from.survivorsOf > 0 {
		record.Data[EpochKeySurvivorsOf] = strconv.Itoa(from.survivorsOf)
	}
	if from.snapshot != nil {
		raw, err := json.Marshal(from.snapshot)
		if err == nil { // plain data always encodes
			record.Data[EpochKeySnapshot] = string(raw)
		}
	}
}

// succeed asks for the record of the next epoch.
func (v *view) succeed(from origin, message string) *verdict {
	size := v.replicas
	if from.source == SourceSurvivor {
		size = 1
	}
	n := v.epoch.n + 1
	if v.heir != nil {
		n = v.heir.epoch.n + 1
	}
	record := newRecord(v.Cluster, n, v.next(), size)
	originate(record, from)
	record.Data[EpochKeyAfter] = strconv.Itoa(v.epoch.n)
	record.Data[EpochKeyFirst] = strconv.Itoa(v.next())
	record.Data[EpochKeyFormerFirst] = strconv.Itoa(v.epoch.first)
	if from.survivorsOf == v.epoch.n {
		record.Annotations[AnnotationPhase] = phaseStopping // what is to be copied must not change
	}
	return &verdict{message: message, heir: record, resync: soon}
}

// heirRecord is the record of the epoch that is to take over, with what has become known.
func (v *view) heirRecord(said *verdict) *corev1.ConfigMap {
	if said.heir != nil || v.heir == nil || said.forsake {
		return said.heir
	}
	record := v.heir.advance(&verdict{})
	if phase := or(said.phase, v.heir.epoch.phase); phase != "" {
		record.Annotations[AnnotationPhase] = phase
	}
	if chosen := or(said.survivor, v.heir.epoch.evidence); chosen != "" {
		record.Annotations[AnnotationSurvivor] = chosen
	}
	return record
}

// leftover reports whether a ConfigMap is the record of an epoch that is over, or that was to be and is not any more.
func (v *view) leftover(cm *corev1.ConfigMap, heir *corev1.ConfigMap) bool {
	n, is := ordinal(v.Cluster.Name+"-epoch", cm.Name)
	if !is || cm.Data[EpochKeyToken] == "" || v.epoch == nil {
		return false
	}
	return n < v.epoch.n || heir == nil || cm.Name != heir.Name
}

// ---- the rule

// ending reports whether the epoch is being stopped, or has been.
func (v *view) ending() bool { return v.heir != nil && v.heir.epoch.phase == phaseStopping }

func succeed(v *view) *verdict {
	switch {
	case v.heir == nil:
		return nil
	case v.forsaken():
		return &verdict{message: fmt.Sprintf("spec.restore asks for something else: what was made ready for epoch %d is taken down again", v.heir.epoch.n), forsake: true, resync: soon}
	case v.ending() && len(v.lingering()) > 0:
		return &verdict{message: fmt.Sprintf("stopping epoch %d: waiting for %s; epoch %d begins when no pod of it is left", v.epoch.n, strings.Join(v.lingering(), ", "), v.heir.epoch.n), resync: patience}
	case v.heir.epoch.source == SourceSurvivor && v.heir.epoch.survivor == "":
		return v.chooseSurvivor()
	}
	if waits := v.heir.unstaged(); waits != "" {
		switch {
		case !v.ending() && v.stopsFirst():
			return &verdict{message: fmt.Sprintf("spec.restore.stopFirst: stopping epoch %d, whose volumes are kept, before epoch %d is made ready", v.epoch.n, v.heir.epoch.n), phase: phaseStopping, resync: soon}
		case !v.ending():
			return nil // the epoch that runs is looked after meanwhile
		}
		return &verdict{message: fmt.Sprintf("epoch %d is over; epoch %d waits: %s", v.epoch.n, v.heir.epoch.n, waits), resync: patience}
	}
	if !v.ending() {
		return &verdict{message: fmt.Sprintf("epoch %d is ready; stopping epoch %d, whose volumes are kept", v.heir.epoch.n, v.epoch.n), phase: phaseStopping, resync: soon}
	}
	return &verdict{message: fmt.Sprintf("epoch %d begins: %s", v.heir.epoch.n, v.heir.epoch.describe()), phase: phaseBegan, resync: soon}
}

// forsaken reports whether the next epoch is not wanted any more, and nothing has been stopped for it yet.
func (v *view) forsaken() bool {
	e := v.heir.epoch
	if v.ending() || e.restore == "" {
		return false
	}
	return v.Cluster.Spec.Restore == nil || v.Cluster.Spec.Restore.ID != e.restore
}

// stopsFirst reports whether there is no room for two epochs beside each other.
func (v *view) stopsFirst() bool {
	r := v.Cluster.Spec.Restore
	return r != nil && r.StopFirst && r.ID == v.heir.epoch.restore && !v.memory()
}

// lingering is what is left of the epoch that is being stopped: pods of its members, and its record, which would let others start.
func (v *view) lingering() []string {
	left := filter(slices.SortedFunc(maps.Keys(v.Children.Pods), byOrdinal), func(name string) bool {
		_, ours := ordinal(v.Cluster.Name, name)
		return ours && !finished(v.Children.Pods[name])
	})
	if v.epoch.record != nil {
		left = append(left, "the record "+v.epoch.record.Name)
	}
	return left
}

// unstaged is what an epoch that is to take over waits for; empty when its members could begin.
func (v *view) unstaged() string {
	if !v.epoch.founded() {
		return "making what its members need: " + strings.Join(v.epoch.initialNames(), ", ")
	}
	if v.epoch.source == SourceEmpty {
		return ""
	}
	var waits []string
	for _, name := range v.epoch.initialNames() {
		if report := seedFailure(v.Children.Pods[name]); report != nil {
			return fmt.Sprintf("%s could not be filled (%s): %s", name, or(report.Reason, "Failed"), report.Error)
		}
		if pod := v.Children.Pods[name]; !seeded(pod) {
			waits = append(waits, name+held(pod))
		}
	}
	if len(waits) == 0 {
		return ""
	}
	return "filling the volumes of " + strings.Join(waits, ", ")
}

// held is why a pod does not begin, in brackets; empty for nothing known.
func held(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	if why := or(unscheduled(&member{pod: pod}), unpulled(&member{pod: pod})); why != "" {
		return " (" + why + ")"
	}
	return ""
}

// describe says where the epoch's data comes from.
func (e *epoch) describe() string {
	switch e.source {
	case SourceSnapshot:
		if e.snapshot != nil {
			return "its data is the snapshot " + e.snapshot.URL
		}
	case SourceSurvivor:
		return fmt.Sprintf("its data is that of %s, of epoch %d (%s)", e.survivor, e.survivorsOf, e.evidence)
	}
	return "without data"
}

// ---- what an epoch leaves behind

// formerClaims are those of earlier epochs: kept in quarantine, as long as the spec says and until the epoch that runs serves.
func (v *view) formerClaims() []*corev1.PersistentVolumeClaim {
	if v.epoch == nil || v.epoch.first == 0 {
		return nil
	}
	var list []*corev1.PersistentVolumeClaim
	for _, name := range slices.SortedFunc(maps.Keys(v.all.Claims), byOrdinal) {
		member, ours := standsOn(v.Cluster.Name, name)
		if n, _ := ordinal(v.Cluster.Name, member); !ours || n >= v.epoch.first || v.expired(v.all.Claims[name]) {
			continue
		}
		claim := *v.all.Claims[name]
		claim.Labels = labels(v.Cluster, map[string]string{LabelMember: member, LabelQuarantined: "true"})
		own := keep(claim.Annotations, AnnotationQuarantined, AnnotationEpoch)
		if own[AnnotationQuarantined] == "" {
			own[AnnotationQuarantined] = v.Now.UTC().Format(time.RFC3339)
		}
		if own[AnnotationEpoch] == "" {
			own[AnnotationEpoch] = strconv.Itoa(v.epoch.after)
		}
		claim.Annotations = annotations(v.Cluster, own)
		list = append(list, &claim)
	}
	return list
}

// expired reports whether a claim of an earlier epoch has been kept long enough.
func (v *view) expired(claim *corev1.PersistentVolumeClaim) bool {
	if v.Etcd == nil || v.heir != nil || !v.ours(claim) || !quarantined(claim) {
		return false
	}
	since, err := time.Parse(time.RFC3339, claim.Annotations[AnnotationQuarantined])
	return err == nil && !v.Now.Before(since.Add(keepVolumesFor(&v.Cluster.Spec)))
}

const defaultKeepVolumes = 7 * 24 * time.Hour

func keepVolumesFor(s *v1alpha1.EtcdClusterSpec) time.Duration {
	if keep := s.Recovery.KeepVolumesFor; keep != nil {
		return keep.Duration
	}
	return defaultKeepVolumes
}
