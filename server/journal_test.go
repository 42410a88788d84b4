package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/journal"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// entriesOf are what a server tells of entries.
func entriesOf(t *testing.T, r *keeper, namespace, name string) ([]*journal.Entry, journal.Objects, string) {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, r.write(&out, namespace, name))
	text := out.String()
	entries, all, err := journal.Read(&out)
	require.NoError(t, err)
	return entries, all, text
}

// TestWhatIsDecidedIsWrittenDown: a decision that is the last one is written down once, and decided once more it is
// the same.
func TestWhatIsDecidedIsWrittenDown(t *testing.T) {
	s, _ := testServer(Options{Version: "v0.1.0"})
	s.now = func() time.Time { return time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC) }
	for _, body := range [][]byte{steady(t), steady(t), edited(t, set(5, "replicas", "parent", "spec"))} {
		require.Equal(t, http.StatusOK, post(s.Handler(), "/sync", body).Code)
	}
	entries, all, _ := entriesOf(t, &s.journal, "shop", "orders")
	require.Len(t, entries, 3, "converged, a learner is to be added, and what followed")
	assert.Equal(t, "v0.1.0", entries[0].Version)
	assert.Equal(t, "add learner orders-3", entries[1].Decided.Step)
	for _, r := range entries {
		again, err := r.Replayed(all, hooks.Decide)
		require.NoError(t, err)
		differ, err := all.Differences(&r.Decided, &again)
		require.NoError(t, err)
		assert.Empty(t, differ)
	}
	none, _, _ := entriesOf(t, &s.journal, "shop", "others")
	assert.Empty(t, none)

	var told bytes.Buffer
	others, err := journal.Replay(&told, "v0.2.0", func(o observation.Observation) decision.Decision {
		d := hooks.Decide(o)
		d.Children.Pods = d.Children.Pods[1:]
		return d
	}, entries[:1], all)
	require.NoError(t, err)
	assert.Equal(t, 1, others)
	assert.Contains(t, told.String(), "2026-03-01T09:00:00Z  shop/orders  was Converged, would be Converged\n"+
		"  differs in: Pod orders-0\n")
	assert.Contains(t, told.String(), "shop/orders: it would restart or delete Pod orders-0, and they were left\n")

	events, err := journal.Events(entries, all)
	require.NoError(t, err)
	assert.Equal(t, "etcd: add learner orders-3", events[1].Changes[0])
}

// TestNoSecretIsInTheJournal: neither what a Secret holds nor a manifest of it that a tool has left there.
func TestNoSecretIsInTheJournal(t *testing.T) {
	const mark = "ThisIsTheMark"
	marked := base64.StdEncoding.EncodeToString([]byte(mark))
	s, _ := testServer(Options{})
	w := post(s.Handler(), "/sync", edited(t, func(r map[string]any) {
		secrets := at(r, "children", groupSecrets)
		for _, one := range secrets {
			secret, _ := one.(map[string]any)
			data, _ := secret["data"].(map[string]any)
			for key := range data {
				data[key] = marked
			}
			annotations := at(secret, "metadata")
			annotations["annotations"] = map[string]any{"kubectl.kubernetes.io/last-applied-configuration": mark,
				lastApplied: mark}
		}
		secrets["orders-user.root"] = map[string]any{"apiVersion": "v1", "kind": "Secret",
			"metadata": map[string]any{"name": "orders-user.root", "namespace": "shop", "uid": "7",
				"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": mark}},
			"data": map[string]any{"password": marked}}
	}))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	entries, _, text := entriesOf(t, &s.journal, "", "")
	require.NotEmpty(t, entries)
	assert.Contains(t, text, "orders-user.root")
	for _, secret := range []string{mark, marked} {
		assert.NotContains(t, text, secret)
	}
}

// TestTheJournalHasItsRoom: at rest an entry is less than 1 KiB in memory, the oldest of the namespace with the most
// make room, and what is counted is what is there.
func TestTheJournalHasItsRoom(t *testing.T) {
	r := &keeper{room: 1 << 20}
	observed := func(namespace string, n int) (observation.Observation, decision.Decision) {
		o := observation.Observation{Cluster: &v1beta1.EtcdCluster{}, Now: time.Unix(int64(n), 0)}
		o.Cluster.Name = "demo"
		o.Cluster.Namespace = namespace
		o.Cluster.UID = types.UID(namespace)
		o.Health = map[string]observation.Health{}
		for i := range 3 {
			o.Health[fmt.Sprintf("demo-%d", i)] = observation.Health{ClusterID: 1, MemberID: uint64(i), Leader: 1,
				Version: "3.6.16", RaftIndex: uint64(n), Certificate: strings.Repeat("a", 64)}
		}
		return o, hooks.Decide(o)
	}
	for i := range 50 {
		o, d := observed("quiet", i)
		require.NoError(t, r.add(o, d, "", 0))
	}
	before := r.held
	for i := range 1500 {
		o, d := observed("loud", i)
		d.Status.Rule = fmt.Sprint(i)
		require.NoError(t, r.add(o, d, "", 0))
		require.LessOrEqual(t, r.held, r.room)
	}
	entries, _, _ := entriesOf(t, r, "quiet", "")
	assert.Len(t, entries, 50)
	entries, _, _ = entriesOf(t, r, "loud", "")
	assert.Greater(t, len(entries), 100)
	assert.Equal(t, time.Unix(1499, 0).UTC(), entries[len(entries)-1].Time.UTC())
	assert.Less(t, before, int64(50<<10+20<<10))
	for r.held > 0 {
		r.drop()
	}
	assert.Empty(t, r.objects)
	assert.Empty(t, r.namespaces)
}

// TestWhatIsWithheldIsWrittenDown: a decision that breaks a rule of safety, once for as long as it is the same.
func TestWhatIsWithheldIsWrittenDown(t *testing.T) {
	s, _ := testServer(Options{Verify: true})
	s.verifyFn = func(_ observation.Observation, d decision.Decision) error {
		if d.Step != nil {
			return errors.New("S6: the last voter")
		}
		return nil
	}
	for range 3 {
		w := post(s.Handler(), "/sync", edited(t, set(5, "replicas", "parent", "spec")))
		require.Equal(t, http.StatusInternalServerError, w.Code)
	}
	s.verifyFn = func(observation.Observation, decision.Decision) error { return errors.New("S7: a claim would go") }
	require.Equal(t, http.StatusInternalServerError, post(s.Handler(), "/sync", steady(t)).Code)
	entries, all, _ := entriesOf(t, &s.journal, "shop", "orders")
	require.Len(t, entries, 2)
	assert.Equal(t, "S6: the last voter", entries[0].Withheld)
	assert.Equal(t, "add learner orders-3", entries[0].Decided.Step)
	assert.Equal(t, "S7: a claim would go", entries[1].Withheld)
	events, err := journal.Events(entries, all)
	require.NoError(t, err)
	assert.Contains(t, events[0].Changes, "all of it withheld: S6: the last voter")
}

// filesOf are the names and the sizes of files with entries.
func filesOf(t *testing.T, dir string) (names []string, bytes int64) {
	t.Helper()
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, one := range all {
		info, err := one.Info()
		require.NoError(t, err)
		names = append(names, filepath.Join(dir, one.Name()))
		bytes += info.Size()
	}
	return names, bytes
}

// entriesIn are those in a file from the volume.
func entriesIn(t *testing.T, file []byte) (entries []*journal.Entry, all journal.Objects, whole bool) {
	t.Helper()
	text, whole := journal.Unpack(file)
	entries, all, err := journal.Read(bytes.NewReader(text))
	require.NoError(t, err)
	return entries, all, whole
}

// noted is a decision about a cluster with a note.
func noted(n int, note string) (observation.Observation, decision.Decision) {
	o := observation.Observation{Cluster: &v1beta1.EtcdCluster{}, Now: time.Unix(int64(n), 0)}
	o.Cluster.Name = fmt.Sprint("demo-", n)
	o.Cluster.Annotations = map[string]string{"note": note}
	return o, hooks.Decide(o)
}

// TestTheJournalIsKeptOnAVolume: each file can be read alone, what a process before has left stays until there is no
// room, and the oldest go first.
func TestTheJournalIsKeptOnAVolume(t *testing.T) {
	dir := t.TempDir()
	before := filepath.Join(dir, "20250101T000000.000000Z-quorate-0.journal.gz")
	require.NoError(t, os.WriteFile(before, make([]byte, 2*perFile), 0o600))
	s, log := testServer(Options{JournalDir: dir, JournalBytes: 3*perFile + perFile/2})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.KeepJournal(ctx) }()
	for range 5 {
		for _, body := range [][]byte{steady(t), edited(t, set(5, "replicas", "parent", "spec"))} {
			require.Equal(t, http.StatusOK, post(s.Handler(), "/sync", body).Code)
		}
	}
	require.Eventually(t, func() bool { names, size := filesOf(t, dir); return len(names) == 2 && size > 2*perFile },
		10*time.Second, time.Millisecond)
	for i := range 4 {
		var random [perFile]byte
		_, _ = rand.Read(random[:])
		o, d := noted(i, base64.StdEncoding.EncodeToString(random[:]))
		require.NoError(t, s.journal.add(o, d, "", 0))
	}
	cancel()
	<-done
	names, size := filesOf(t, dir)
	assert.NotContains(t, names, before)
	assert.LessOrEqual(t, size, 4*int64(perFile)+perFile/8)
	var last []*journal.Entry
	for _, name := range names {
		file, err := os.ReadFile(name)
		require.NoError(t, err)
		entries, all, whole := entriesIn(t, file)
		assert.True(t, whole)
		for _, r := range entries {
			_, err := r.Observation(all)
			require.NoError(t, err)
		}
		last = entries
	}
	require.NotEmpty(t, last)
	assert.Equal(t, "demo-3", last[len(last)-1].Name, "what waited is written in the end")
	assert.NotContains(t, log.String(), "not in the journal")
}

// TestAnEntryThatWasCutOff: what is written to the volume last is lost at most, and that is seen.
func TestAnEntryThatWasCutOff(t *testing.T) {
	r := &keeper{room: 1 << 20, volume: &volume{dir: t.TempDir(), room: 2 * perFile}}
	var ends []int64
	for i := range 20 {
		o, d := noted(i/2, "")
		d.Reason.Message = fmt.Sprint(i)
		require.NoError(t, r.add(o, d, "", 0))
		require.NoError(t, r.volume.write(r, r.volume.next()))
		_, size := filesOf(t, r.volume.dir)
		ends = append(ends, size)
	}
	names, _ := filesOf(t, r.volume.dir)
	require.Len(t, names, 1)
	file, err := os.ReadFile(names[0])
	require.NoError(t, err)
	for i, end := range ends { // as if the process were killed there
		entries, _, whole := entriesIn(t, file[:end])
		assert.Len(t, entries, i+1)
		assert.True(t, whole)
		for _, less := range []int64{1, 2, 5, 20} {
			entries, _, whole = entriesIn(t, file[:end-less])
			assert.GreaterOrEqual(t, len(entries), i)
			assert.False(t, whole)
		}
	}
	_, _, whole := entriesIn(t, file[:2])
	assert.False(t, whole)
}

// TestAVolumeThatIsSlow loses entries, and no call waits.
func TestAVolumeThatIsSlow(t *testing.T) {
	r := &keeper{room: 4 << 20, volume: &volume{dir: filepath.Join(t.TempDir(), "none"), room: 2 * perFile}}
	var err error
	for i := range mostUnwritten + 1 {
		require.NoError(t, err)
		o, d := noted(i, "")
		err = r.add(o, d, "", 0)
	}
	require.ErrorIs(t, err, errSlowVolume)
	require.ErrorIs(t, r.volume.write(r, r.volume.next()), os.ErrNotExist)
	r.volume.dir = t.TempDir()
	one := r.volume.next()
	r.mu.Lock()
	r.remove(r.namespaces[""], one)
	r.mu.Unlock()
	require.ErrorIs(t, r.volume.write(r, one), errSlowVolume, "there was no room for it in memory any more")
}

// TestWhatWaitsIsBounded: a call packs its entry where too much waits, of all or of its namespace, and all are told of
// as if they were packed.
func TestWhatWaitsIsBounded(t *testing.T) {
	r := &keeper{room: 1 << 20}
	add := func(namespace string, n int, made int64) {
		o, d := noted(n, "")
		o.Cluster.Namespace = namespace
		require.NoError(t, r.add(o, d, "", made))
	}
	for i := range 20 {
		add("loud", i, 100<<10)
	}
	assert.Len(t, r.waiting, 5, "a namespace has half of the room")
	add("quiet", 0, 100<<10)
	assert.Len(t, r.waiting, 6)
	add("huge", 0, 1<<20)
	assert.Len(t, r.waiting, 6)
	assert.Positive(t, r.held)
	entries, _, _ := entriesOf(t, r, "", "")
	assert.Len(t, entries, 22)
	assert.Zero(t, r.waits, "they were packed to be told")
	for one := r.next(); one != nil; one = r.next() {
		require.NoError(t, r.pack(one), "which changes nothing")
	}
	again, _, _ := entriesOf(t, r, "", "")
	assert.Len(t, again, 22)

	add("late", 0, 1)
	r.room = 0
	add("late", 1, 1)
	assert.Zero(t, r.held)
	assert.Zero(t, r.waits, "the first was dropped while it waited")
	require.NoError(t, r.pack(r.next()))
	assert.Empty(t, r.namespaces)
}

// TestNothingChangesWhatWaits: an entry is the same, written before the answer and after all is done with the call.
func TestNothingChangesWhatWaits(t *testing.T) {
	for _, body := range [][]byte{steady(t), edited(t, set(5, "replicas", "parent", "spec"))} {
		s, _ := testServer(Options{Verify: true})
		var atOnce []string
		s.syncFn = func(ctx context.Context, o observation.Observation, etcd hooks.Etcd) (decision.Decision,
			*decision.Outcome) {
			d, outcome := hooks.Sync(ctx, o, etcd)
			guarded, _ := etcd.(*guarded)
			last := guarded.o
			last.Taken = outcome
			for _, one := range append(slices.Clone(s.journal.waiting), &kept{of: &unpacked{o: last, d: d}}) {
				text, _, err := s.journal.written(one.of)
				require.NoError(t, err)
				atOnce = append(atOnce, string(text))
			}
			return d, outcome
		}
		require.Equal(t, http.StatusOK, post(s.Handler(), "/sync", body).Code)
		require.Len(t, s.journal.waiting, len(atOnce))
		for i, one := range s.journal.waiting {
			text, _, err := s.journal.written(one.of)
			require.NoError(t, err)
			assert.Equal(t, atOnce[i], string(text))
		}
	}
}

// TestTheJournalIsAskedFor: through the socket, and by our own user.
func TestTheJournalIsAskedFor(t *testing.T) {
	s, log := testServer(Options{})
	require.Equal(t, http.StatusOK, post(s.Handler(), "/sync", steady(t)).Code)
	at := filepath.Join(t.TempDir(), "socket")
	socket, err := net.Listen("unix", at)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.ServeJournal(ctx, socket) }()
	var out bytes.Buffer
	require.NoError(t, AskJournal(ctx, at, JournalAsked{Namespace: "shop"}, &out))
	entries, _, err := journal.Read(&out)
	require.NoError(t, err)
	assert.Len(t, entries, 1)

	conn, err := net.Dial("unix", at)
	require.NoError(t, err)
	_, err = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.NoError(t, AskJournal(ctx, at, JournalAsked{Namespace: "elsewhere"}, &out), "it answers the next one")
	cancel()
	<-done
	assert.Contains(t, log.String(), "the question can't be read")
	require.Error(t, AskJournal(t.Context(), at, JournalAsked{}, &out))
}
