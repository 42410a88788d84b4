package pki

import (
	"context"
	"maps"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/observation"
)

func TestWhatIsRememberedIsThatOfTheData(t *testing.T) {
	var m memory
	s := made(t)
	of := func(data map[string][]byte) *observation.Secret {
		read, err := m.of(t.Context(), "shop", atOnce, data)
		require.NoError(t, err)
		return read
	}
	first := of(s["leaf"])
	assert.Same(t, first, of(maps.Clone(s["leaf"])))
	assert.Equal(t, first, readData(s["leaf"]))
	changed := maps.Clone(s["leaf"])
	changed["tls.key"] = s["ca"]["tls.key"]
	assert.NotEqual(t, first.Flaw, of(changed).Flaw)
	assert.Same(t, of(changed), of(changed), "what is wrong with it is remembered too")
	assert.Equal(t, first, of(s["leaf"]))
}

// TestWhatIsRemembered: more Secrets than are remembered, read in turn, are partly known, and never more than the
// bound.
func TestWhatIsRemembered(t *testing.T) {
	const most, all, rounds = 100, 120, 50
	var m memory
	known := 0
	for range rounds {
		for i := range all {
			key := sum(map[string][]byte{"key": {byte(i)}})
			if m.read[key] != nil {
				known++
				continue
			}
			m.note("shop", key, &observation.Secret{}, most*sizeOf(&observation.Secret{}))
			require.LessOrEqual(t, len(m.read), most)
			require.NotNil(t, m.read[key])
		}
	}
	// By arithmetic two of three are known, since something at random makes room; of the oldest, or of all at once,
	// none would be.
	require.Greater(t, known, rounds*all/3)
	require.GreaterOrEqual(t, mostKnown(), int64(4<<20))
}

// TestATenantWhoHasMostGivesWay: whose Secrets change all the time, or are large, forgets his own and not those of
// others.
func TestATenantWhoHasMostGivesWay(t *testing.T) {
	var m memory
	one := sizeOf(&observation.Secret{})
	keyOf := func(i int) content { return sum(map[string][]byte{"key": {byte(i), byte(i >> 8)}}) }
	for i := range 50 {
		m.note("tenant", keyOf(i), &observation.Secret{}, 100*one)
	}
	names := make([]string, 1000)
	large := &observation.Secret{Trust: []observation.Certificate{{Names: names}}}
	require.Greater(t, sizeOf(large), 16*int64(len(names)))
	for i := range 1000 {
		m.note("hostile", keyOf(1000+i), &observation.Secret{}, 100*one)
		m.note("hostile", keyOf(3000+i), large, 100*one)
		require.LessOrEqual(t, m.bytes, max(100*one, 50*one+sizeOf(large)))
	}
	for i := range 50 {
		require.NotNil(t, m.read[keyOf(i)], "of the tenant who has changed nothing")
	}
}

// TestOneReads: calls for the same content at once read it once, and a call whose time is over reads nothing.
func TestOneReads(t *testing.T) {
	var m memory
	s := made(t)
	key := sum(s["leaf"])
	known, others := m.begin(key)
	require.Nil(t, known)
	require.Nil(t, others)
	var wg sync.WaitGroup
	got := make([]*observation.Secret, 8)
	for i := range got {
		wg.Go(func() { got[i], _ = m.of(context.Background(), "shop", atOnce, s["leaf"]) })
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.of(over, "shop", atOnce, s["leaf"])
	require.ErrorIs(t, err, context.Canceled, "it waits no longer than its call")
	_, err = m.of(over, "shop", atOnce, s["ca"])
	require.ErrorIs(t, err, context.Canceled, "it begins nothing")
	first, err := m.finish(t.Context(), "shop", atOnce, key, s["leaf"])
	require.NoError(t, err)
	wg.Wait()
	for _, other := range got {
		require.Same(t, first, other)
	}
	require.Empty(t, m.reading)
}
