package answer

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
)

// historyLength is how many decisions the status remembers. They take the place of Events, which would be children
// here: the API server forgets an Event after an hour, and Metacontroller would make it again each time.
const historyLength = 20

// history is the observed one with what this call has decided, if that changed anything or differs from what was
// decided last. The status is that of now, with its users and roles.
func history(f *facts.Facts, because decision.Reason, status *v1beta1.EtcdClusterStatus) []v1beta1.HistoryEntry {
	list := slices.Clone(f.Cluster.Status.History)
	for _, e := range f.Recent {
		if !contains(list, e) {
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b v1beta1.HistoryEntry) int { return a.Time.Compare(b.Time.Time) })
	now := f.Now
	if n := len(list); n > 0 && now.Before(list[n-1].Time.Time) {
		now = list[n-1].Time.Time // the clock that wrote it is ahead
	}
	add := func(rule, step, message string) {
		if len(message) > 500 {
			message = strings.ToValidUTF8(message[:500], "")
		}
		entry := v1beta1.HistoryEntry{Time: metav1.NewTime(now.Truncate(1e9)), Rule: rule, Step: step,
			Message: message}
		if step == "" || !madeAgain(list, entry) {
			list = append(list, entry)
		}
	}
	looked := func(t *decision.Outcome) bool { // users and roles are looked at every so often
		return t.Err == "" && t.Step.Verb() == decision.Authorize{}.Verb() &&
			f.Cluster.Status.Internal.AppliedAuth == status.Internal.AppliedAuth &&
			reflect.DeepEqual(f.Cluster.Status.Auth, status.Auth)
	}
	if t := f.Taken; t != nil && !looked(t) {
		add(t.Rule, t.Step.String(), t.Err)
	}
	if len(list) == 0 || list[len(list)-1].Rule != because.Rule {
		add(because.Rule, "", because.Message)
	}
	return list[max(0, len(list)-historyLength):]
}

// madeAgain reports whether an entry's call to etcd is in the list: the same one, or one that etcd refused last.
func madeAgain(list []v1beta1.HistoryEntry, entry v1beta1.HistoryEntry) bool {
	if contains(list, entry) {
		return true
	}
	if len(list) == 0 || entry.Message == "" {
		return false
	}
	last := list[len(list)-1]
	last.Time = entry.Time
	return entry == last
}

// contains compares moments, in whatever time zone they were read.
func contains(list []v1beta1.HistoryEntry, entry v1beta1.HistoryEntry) bool {
	return slices.ContainsFunc(list, func(e v1beta1.HistoryEntry) bool {
		at := e.Time
		e.Time = entry.Time
		return at.Equal(&entry.Time) && e == entry
	})
}
