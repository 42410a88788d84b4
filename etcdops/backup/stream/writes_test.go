package stream

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// TestWrites: what is told of the last hour that is over, or of the one that goes on while there is none, is what a
// count by brute force has. A deleted key was changed, too.
func TestWrites(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 3, 1, 10, 20, 30, 0, time.UTC)
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 3))
		w := NewWrites()
		require.Nil(t, w.Report())
		hours := map[time.Time]map[string]*v1beta1.PrefixContents{}
		changed := map[string]int64{} // by hour and key
		at := began
		for revision := int64(5); revision < 200; revision++ {
			b := batch{first: revision, last: revision, at: at}
			hour := at.Truncate(time.Hour)
			if hours[hour] == nil {
				hours[hour] = map[string]*v1beta1.PrefixContents{"": {}}
			}
			for range random.IntN(4) {
				key := fmt.Sprintf("/registry/%d/%d", random.IntN(3), random.IntN(9))
				e := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: revision,
					Value: make([]byte, random.IntN(99))}}
				record, err := proto.Marshal(e.Kv)
				require.NoError(t, err)
				if random.IntN(5) == 0 {
					e = &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: e.Kv.Key, ModRevision: revision}}
					record, err = proto.Marshal(&mvccpb.KeyValue{Key: e.Kv.Key})
					require.NoError(t, err)
				}
				b.records = appendRecord(b.records, e)
				b.events++
				changed[hour.String()+key]++
				for _, prefix := range []string{"", "/registry/", key[:strings.LastIndexByte(key, '/')+1]} {
					p := hours[hour][prefix]
					if p == nil {
						p = &v1beta1.PrefixContents{Prefix: prefix}
						hours[hour][prefix] = p
					}
					p.Writes++
					p.Bytes += int64(len(record) + 17)
					p.LargestValue = max(p.LargestValue, int64(len(e.Kv.Value)))
					p.MostRevisions = max(p.MostRevisions, changed[hour.String()+key])
					if changed[hour.String()+key] == 1 {
						p.Keys++
					}
				}
			}
			if b.events == 0 {
				b.first++ // it only tells that there are no others
			}
			w.add(&b)
			told := w.Report()
			require.False(t, told.From.Before(began))
			if hour.Equal(began.Truncate(time.Hour)) {
				require.Equal(t, at, told.To)
			} else {
				require.Equal(t, told.From.Truncate(time.Hour).Add(time.Hour), told.To)
				require.True(t, told.To.Compare(hour) <= 0)
			}
			of := hours[told.From.Truncate(time.Hour)]
			is := map[string]*v1beta1.PrefixContents{}
			for _, p := range append(told.Contents.Prefixes, told.Contents.Total) {
				require.Equal(t, p.Writes, p.Revisions)
				p.Revisions = 0
				p.LiveBytes = 0
				is[p.Prefix] = &p
			}
			require.Equal(t, of, is)
			at = at.Add(time.Duration(random.IntN(9)) * time.Minute)
			if random.IntN(50) == 0 {
				at = at.Add(5 * time.Hour)
			}
		}
	}
}

// TestWritesOfWhatIsEncrypted: no prefix is told, and the totals are. More keys than are told apart have no number.
func TestWritesOfWhatIsEncrypted(t *testing.T) {
	t.Parallel()
	w := NewWrites()
	w.Nameless = true
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, nil)
	require.Equal(t, "null\n", answer.Body.String())
	b := batch{first: 5, last: 5, at: time.Now()}
	for i := range keysCounted + 1 {
		b.records = appendRecord(b.records, put(fmt.Sprint("a/", i), 5))
		b.events++
	}
	w.add(&b)
	answer = httptest.NewRecorder()
	w.ServeHTTP(answer, nil)
	require.NotContains(t, answer.Body.String(), "a/")
	var told stores.Writes
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &told))
	require.EqualValues(t, keysCounted+1, told.Contents.Total.Writes)
	require.Zero(t, told.Contents.Total.Keys)
	require.True(t, told.Contents.Estimated)
}
