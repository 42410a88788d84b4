package kubectl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// syncFailure is what Metacontroller has told last of an EtcdCluster that it could not bring to what Quorate answered:
// Kubernetes' own words.
type syncFailure struct {
	message string
	at      time.Time
	// trouble says why its events can't be read.
	trouble string
}

// syncError is the reason of that event (pkg/events of Metacontroller).
const syncError = "SyncError"

// syncFailure reads the newest such event. It is nil when there is none, and when nothing is awaited: then what it
// tells is over.
func (a *invocation) syncFailure(ctx context.Context, c *v1beta1.EtcdCluster) *syncFailure {
	if len(c.Status.Internal.Awaited) == 0 && c.Status.Rule != "" {
		return nil
	}
	about := "--field-selector=involvedObject.uid=" + string(c.UID) + ",reason=" + syncError
	out, err := a.kube.run(ctx, "get", "events", "-n", c.Namespace, about, "-o", "json")
	if err != nil {
		return &syncFailure{trouble: err.Error()}
	}
	var list corev1.EventList
	if err := objects.Read(out, &list); err != nil {
		return &syncFailure{trouble: err.Error()}
	}
	var newest *syncFailure
	for i := range list.Items {
		e := &list.Items[i]
		if r := (&syncFailure{message: toldIn(e, c), at: seenAt(e)}); newest == nil || newest.at.Before(r.at) {
			newest = r
		}
	}
	return newest
}

// seenAt is when an event was seen last; events of either API have their own field for it.
func seenAt(e *corev1.Event) time.Time {
	times := []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time}
	if e.Series != nil {
		times = append(times, e.Series.LastObservedTime.Time)
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

// toldIn is the event's message without what the screen says already.
func toldIn(e *corev1.Event, c *v1beta1.EtcdCluster) string {
	message := e.Message
	whose := fmt.Sprintf("can't reconcile children for EtcdCluster %s/%s: ", c.Namespace, c.Name)
	for _, start := range []string{"(combined from similar events): ", "Sync error: ", whose} {
		message = strings.TrimPrefix(message, start)
	}
	return message
}

// refusals says what Kubernetes has not made, and why as far as Metacontroller tells.
func (s screen) refusals() []string {
	var list []string
	awaited := slices.SortedStableFunc(slices.Values(s.c.Status.Internal.Awaited), func(a, b v1beta1.AwaitedStatus) int {
		return a.RequestTime.Compare(b.RequestTime.Time)
	})
	for _, a := range awaited {
		list = append(list, fmt.Sprintf("%s %s is not there, asked for %s", a.Kind, a.Name,
			moment(a.RequestTime.Time, s.now)))
	}
	r := s.failure
	switch {
	case r != nil && r.trouble != "":
		list = append(list, "Metacontroller's events, which say why, can't be read: "+r.trouble)
	case r != nil:
		list = append(list, fmt.Sprintf("Metacontroller said %s: %s", moment(r.at, s.now), r.message))
	case len(awaited) > 0:
		list = append(list, "Metacontroller has no event that shows why. Look whether another object has that name, "+
			"and at Metacontroller's log")
	}
	return list
}
