package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/simulated/metacontroller"
)

// Story tells a path in the words of test/simulated/scenario: saved under testdata/clusters and completed with
// `-rewrite`, it is a test.
func (m *model) story(title string, path []action) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s", title, m.opening())
	m.follow(path, func(line string, _ *worldState) {
		b.WriteString(line + "\n")
		if verb, _, _ := strings.Cut(line, " "); slices.Contains([]string{"sync", "two-syncs", "look", "call", "apply"},
			verb) {
			b.WriteString("----\n\n") // it has something to say
		}
	})
	b.WriteString("check\n----\n")
	return b.String()
}

func (m *model) opening() string {
	line := fmt.Sprintf("etcd pace=%d\ncluster replicas=%d", never, m.Replicas)
	if m.Spares > 0 {
		line += fmt.Sprintf(" spares=%d", m.Spares)
	}
	if m.Medium != "" {
		line += " medium=" + string(m.Medium)
	}
	if m.From != usualVersion {
		line += " version=" + releases[m.From]
	}
	line += " tls=Disabled"
	if m.minors {
		line += " upgrade=Step"
	}
	if m.SelfHosted {
		line += " self-hosted=true"
	}
	if m.Ready {
		line += " ready"
	}
	if m.Young {
		line = "etcd connected=5s\n" + line
	}
	if slices.Contains(m.Versions, unpullable) {
		line = "image bad=" + image(unpullable) + "\n" + line
	}
	if slices.Contains(m.Templates, unplaced) {
		line = "node unplaced=" + template(unplaced) + "\n" + line
	}
	return line + "\n"
}

// never is a pace at which no learner catches up before it is told to.
const never = 1000000

// follow takes a path again, with the numbers that members really have, and says each step in words.
func (m *model) follow(path []action, told func(line string, after *worldState)) {
	s := m.first()
	for _, a := range path {
		now := s
		a = a.renamed(canonical(&now))
		m.do(&s, a)
		told(m.words(a, &s), &s)
	}
}

// renamed is the action with the number that the member has in a state that is not canonical.
func (a action) renamed(old [maxMembers]uint8) action {
	if a.deed != callCut || a.cut().At == metacontroller.BeforeObject {
		a.n = old[a.n]
	}
	return a
}

// words is an action as a story says it.
func (m *model) words(a action, after *worldState) string {
	member := name(int(a.n))
	switch a.deed {
	case callCut:
		return "sync " + a.cut().words()
	case cacheFreezes:
		return "cache freeze=" + cacheName(a.x)
	case cacheThaws:
		return "cache thaw=" + cacheName(a.x)
	case sizeEdited:
		return fmt.Sprintf("edit replicas=%d", a.x)
	case versionEdited:
		return "edit version=" + releases[after.live.parent.version]
	case templateEdited:
		return "edit priority-class=" + template(a.x)
	case refusedEdited:
		return "edit " + refusedWords[a.x]
	case badTakenBack:
		switch a.x {
		case aTemplate:
			return "edit priority-class=" + template(after.live.parent.template)
		case aPendingPod:
			return "delete pod=" + member
		case aRefusal:
			return fmt.Sprintf("edit replicas=%d", after.live.parent.replicas)
		}
		return "edit version=" + releases[after.live.parent.version]
	}
	return strings.ReplaceAll(words[a.deed], "NAME", member)
}

var words = [refusedEdited + 1]string{
	callWhole: "sync", callTwice: "two-syncs", callDecides: "look", callAnswers: "call", callGoesOn: "apply",
	kubeletActs: "kubelet pod=NAME", etcdTicks: "etcd tick", learnerCatchesUp: "etcd caught-up=NAME",
	claimsCollected: "collect",
	timePasses:      "tick 1m", etcdBack: "etcd up", memberReached: "network reachable=NAME",
	memberJoined:  "network joined=NAME",
	memberRescued: "rescue pod=NAME",
	nodeBack:      "heal node=NAME", podTaken: "node room=NAME", spaceFreed: "etcd space=freed",
	podKilled: "kill pod=NAME", podDeleted: "delete pod=NAME", podEvicted: "delete pod=NAME",
	claimLost:    "lose claim=NAME",
	claimDeleted: "delete claim=NAME",
	nodeLost:     "lose node=NAME", podStuck: "node full=NAME", etcdOut: "etcd down",
	memberUnreachable: "network unreachable=NAME",
	memberIsolated:    "network isolated=NAME", leaderMoves: "etcd leader=NAME", statusWiped: "status wipe",
	spaceOut: "etcd space=out",
}

func cacheName(kind uint8) string {
	return map[uint8]string{podCache: "pod", claimCache: "claim", recordCache: "configmap",
		parentCache: "cluster"}[kind]
}

func (c cut) words() string {
	words := "crash=" + string(c.At)
	if c.At == metacontroller.BeforeObject {
		kind, name := c.Object.names()
		words += fmt.Sprintf(" %s=%s", kind, name)
	}
	if c.Backwards {
		words += " order=backwards"
	}
	return words
}

// names are those of the kind and of the object, in stories.
func (o object) names() (kind, object string) {
	if o.kind == aRecord {
		return "configmap", objects.EpochName(clusterName, 1)
	}
	return []string{aPod: "pod", aClaim: "claim"}[o.kind], name(int(o.number))
}
