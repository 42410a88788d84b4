package hooks

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// An epoch is one incarnation of the raft cluster, recorded once in a ConfigMap whose data never changes: its creation
// at the API server is the moment that decides who the initial members are (S8). The annotations only ever move forward,
// because Metacontroller writes them with the resource version that it observed.
type epoch struct {
	n       int
	initial map[string]string // name -> peer URL of the initial members
	// startsOn holds, by member, the UID of the claim (or memory pod), or the name of the node, that it may start on with an empty data directory. It is
	// written before the member starts, and after that nothing of that name is ever made again (S10). Nil: not founded yet.
	startsOn map[string]types.UID
	// clusterID is 0 until the epoch has once been quorate.
	clusterID uint64
	// next is the lowest number that no member has had.
	next    int
	version string
	// renewing is the restart that was chosen last.
	renewing restart
	oldLog   oldLog
	// readdressed are the members that etcd lists with an https URL in an epoch that began in plain text.
	readdressed []string
	record      *corev1.ConfigMap
}

// startsOnNothing marks a founded epoch in which nobody may start empty.
const startsOnNothing = "none"

// readEpoch reads the newest epoch record among the observed ConfigMaps; nil when there is none.
func readEpoch(o Observation) *epoch {
	var newest *epoch
	for name, cm := range o.Children.ConfigMaps {
		n, ok := ordinal(o.Cluster.Name+"-epoch", name)
		if ok && cm.Data[EpochKeyToken] != "" && (newest == nil || n > newest.n) {
			newest = parseEpoch(n, cm)
		}
	}
	return newest
}

func parseEpoch(n int, cm *corev1.ConfigMap) *epoch {
	e := &epoch{n: n, record: cm, initial: parsePairs(cm.Data[EpochKeyInitialCluster], "="), version: cm.Annotations[AnnotationVersion], renewing: readRestart(cm.Annotations[AnnotationRenewing]), oldLog: readOldLog(cm.Annotations[AnnotationOldLog])}
	e.clusterID, _ = strconv.ParseUint(cm.Annotations[AnnotationClusterID], 16, 64)
	if names := cm.Annotations[AnnotationReaddressed]; names != "" {
		e.readdressed = strings.Split(names, ",")
	}
	e.next = markIn(cm.Annotations[AnnotationNextMember])
	if raw := cm.Annotations[AnnotationStartsOn]; raw != "" || e.clusterID != 0 {
		e.startsOn = map[string]types.UID{}
		for name, uid := range parsePairs(raw, ":") {
			e.startsOn[name] = types.UID(uid)
		}
	}
	return e
}

func (e *epoch) quorate() bool { return e.clusterID != 0 }

// founded reports whether the initial members may start.
func (e *epoch) founded() bool { return e != nil && e.startsOn != nil }

// mayStartEmpty reports whether the member may start with an empty data directory on the object of this UID.
func (e *epoch) mayStartEmpty(member string, uid types.UID) bool {
	return uid != "" && e.recorded(member) == uid
}

// recorded is the UID of what the member starts on; empty while nothing is recorded, or no record is observed.
func (e *epoch) recorded(member string) types.UID {
	if e == nil {
		return ""
	}
	return e.startsOn[member]
}

// initialNames are the names of the initial members, sorted.
func (e *epoch) initialNames() []string {
	return slices.SortedFunc(maps.Keys(e.initial), byOrdinal)
}

// newRecord is the record of a first epoch with members 0 to size-1.
func newRecord(c *v1alpha1.EtcdCluster, size int) *corev1.ConfigMap {
	members := map[string]string{}
	for n := range size {
		name := MemberName(c.Name, n)
		members[name] = PeerURL(c, name)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: EpochName(c.Name, 1),
			Annotations: map[string]string{
				AnnotationNextMember: strconv.Itoa(size),
				AnnotationVersion:    c.Spec.Version,
			},
		},
		Data: map[string]string{
			EpochKeySource:         SourceEmpty,
			EpochKeyToken:          fmt.Sprintf("%s-%d", c.UID, 1),
			EpochKeyInitialCluster: formatPairs(members, "="),
		},
		Immutable: new(true),
	}
}

// parsePairs reads "a=1,b=2"; what is not a pair is left out.
func parsePairs(s, sep string) map[string]string {
	pairs := map[string]string{}
	for field := range strings.SplitSeq(s, ",") {
		if k, v, ok := strings.Cut(field, sep); ok && k != "" && v != "" {
			pairs[k] = v
		}
	}
	return pairs
}

// formatPairs writes "a=1,b=2", sorted by member.
func formatPairs[V ~string](pairs map[string]V, sep string) string {
	var fields []string
	for _, k := range slices.SortedFunc(maps.Keys(pairs), byOrdinal) {
		fields = append(fields, k+sep+string(pairs[k]))
	}
	return strings.Join(fields, ",")
}

// byOrdinal compares member names by length first, so that demo-10 comes after demo-9.
func byOrdinal(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
