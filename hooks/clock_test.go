package hooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// written is when the API server last wrote the cluster.
func written(at time.Time) fact {
	return func(o *observation.Observation) {
		o.Cluster.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: at}}}
	}
}

// toldClock is what our clock said when the API server was last asked for the time.
func toldClock(at time.Time) fact {
	return func(o *observation.Observation) { o.Cluster.Status.Internal.ClockTime = metav1.NewTime(at) }
}

func TestReadClock(t *testing.T) {
	long := 1500 * time.Hour
	for name, c := range map[string]struct {
		facts []fact
		is    facts.Clock
	}{
		"nothing is known of the API server's": {nil, facts.Clock{Now: now, Sure: true}},
		"it wrote just now": {[]fact{written(now.Add(-time.Minute))},
			facts.Clock{Now: now, Sure: true, Until: now.Add(4 * time.Minute)}},
		"it wrote long ago": {[]fact{written(now.Add(-long))}, facts.Clock{Now: now.Add(-long)}},
		"it wrote long ago, and was asked even longer ago": {
			[]fact{written(now.Add(-time.Hour)), toldClock(now.Add(-2 * time.Hour))}, facts.Clock{Now: now.Add(-time.Hour)}},
		"it was asked, and our clock is ahead": {[]fact{written(now.Add(-long)), toldClock(now.Add(-time.Minute))},
			facts.Clock{Now: now.Add(-long).Add(time.Minute), Sure: true, Until: now.Add(4 * time.Minute),
				Ahead: long - time.Minute}},
		"it was asked, and our clock is behind": {[]fact{written(now.Add(long)), toldClock(now)},
			facts.Clock{Now: now.Add(long), Sure: true, Until: now.Add(5 * time.Minute), Ahead: -long}},
		"our clock was put back": {[]fact{written(now.Add(long))}, facts.Clock{Now: now.Add(long), Ahead: -long}},
		"our clock goes on, and it was ahead when it asked": {
			[]fact{written(now.Add(-long)), toldClock(now.Add(-time.Hour))},
			facts.Clock{Now: now.Add(-long), Ahead: long - time.Hour}},
	} {
		assert.Equal(t, c.is, facts.ReadClock(with(fresh(3), c.facts...)), name)
	}
}

// TestAClaimIsKeptByTheTimeOfTheAPIServer: our clock alone deletes nothing; it asks, and the next call knows.
func TestAClaimIsKeptByTheTimeOfTheAPIServer(t *testing.T) {
	kept := func(o *observation.Observation) {
		addClaim(o, 7)
		claim := o.Children.Claims["demo-7"]
		claim.Labels[objects.LabelQuarantined] = "true"
		claim.Annotations[objects.AnnotationQuarantined] = now.Add(-25 * time.Hour).Format(time.RFC3339)
		claim.Annotations[objects.AnnotationFailedMember] = objects.FailedUnreachable
	}
	o := with(serve(3), nextMember(8), kept)

	o = with(o, written(now.Add(-2*time.Hour)))
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Contains(t, byName(d.Children.Claims), "demo-7", "23 hours have passed for sure")
	assert.True(t, d.Status.Internal.ClockTime.Time.Equal(now), "the API server is asked")

	later := with(o, written(now), toldClock(now))
	d = Decide(later)
	require.NoError(t, verify(later, d))
	assert.NotContains(t, byName(d.Children.Claims), "demo-7")

	ahead := with(o, written(now.Add(-2*time.Hour)), toldClock(now))
	d = Decide(ahead)
	require.NoError(t, verify(ahead, d))
	assert.Contains(t, byName(d.Children.Claims), "demo-7", "our clock is ahead")
	gone := d
	gone.Children.Claims = gone.Children.Claims[:3]
	assert.ErrorContains(t, verify(ahead, gone), "S7: the claim demo-7 goes, which must be kept")
}
