package record

import (
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

var owner = &v1beta1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "shop", UID: "uid"}}

// fill sets every field of a value, whatever it is.
func fill(v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
		return
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse("1Gi")))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint64:
		v.SetUint(1<<63 + 0xc1)
	default:
		panic(v.Type().String())
	}
}

// full is a record with all that one can say.
func full() Record {
	var r Record
	fill(reflect.ValueOf(&r).Elem())
	r.Source = SourceSnapshot
	return r
}

// none is an empty record that can be read.
func none() Record { return Record{Bootstrap: Bootstrap{Origin: Origin{Source: SourceEmpty}}} }

// TestAllIsReadAsItWasWritten: every field, also one that is added and forgotten elsewhere.
func TestAllIsReadAsItWasWritten(t *testing.T) {
	for _, r := range []Record{full(), none()} {
		cm := New(owner, 3, r)
		n, is := Is("demo", cm)
		assert.True(t, is)
		assert.Equal(t, 3, n)
		read, err := Read(cm)
		require.NoError(t, err)
		assert.Equal(t, r, read)

		with := none().State
		with.Version = "3.6.16"
		with.WriteTo(cm)
		read, err = Read(cm)
		require.NoError(t, err)
		assert.Equal(t, Record{Bootstrap: r.Bootstrap, State: with}, read, "what it was made with stays")
	}
}

// TestNothingToStartOnIsSomething: an epoch that is provisioned with nothing is another than one that is not yet.
func TestNothingToStartOnIsSomething(t *testing.T) {
	r := none()
	r.StartsOn = map[string]types.UID{}
	read, err := Read(New(owner, 1, r))
	require.NoError(t, err)
	assert.NotNil(t, read.StartsOn)
	r.StartsOn = nil
	r.ClusterID = 1
	read, err = Read(New(owner, 1, r))
	require.NoError(t, err)
	assert.NotNil(t, read.StartsOn, "it has had a quorum")
}

// TestAPersonCanReadIt in what kubectl get -o yaml prints: IDs as etcd prints them, nothing that is not said.
func TestAPersonCanReadIt(t *testing.T) {
	r := none()
	r.Initial = map[string]string{"demo-10": "http://b", "demo-9": "http://a"}
	r.After = 1
	r.Past = map[int]Past{1: {ClusterID: 0xc1, Voters: []int{0, 2}}}
	r.StartsOn = map[string]types.UID{"demo-9": "a1b2"}
	r.ClusterID = 0xcdf818194e3a8c32
	r.NextOrdinal = 11
	r.Choice = Choice{Name: "demo-9", Removes: true}
	cm := New(owner, 2, r)
	assert.Equal(t, map[string]string{"token": "uid-2", "initial-cluster": "demo-9=http://a,demo-10=http://b",
		"bootstrap": `{
  "initial": {
    "demo-10": "http://b",
    "demo-9": "http://a"
  },
  "source": "Empty",
  "previousEpoch": 1,
  "past": {
    "1": {
      "clusterID": "c1",
      "voters": [
        0,
        2
      ]
    }
  }
}`}, cm.Data)
	assert.Equal(t, map[string]string{"etcd.quorate.dev/state": `{
  "startsOn": {
    "demo-9": "a1b2"
  },
  "clusterID": "cdf818194e3a8c32",
  "nextMember": 11,
  "chosen": {
    "name": "demo-9",
    "removes": true
  }
}`}, cm.Annotations)
	assert.True(t, *cm.Immutable)
}

// TestALongLifeIsForgotten: the newest epochs and answers are kept.
func TestALongLifeIsForgotten(t *testing.T) {
	r := none()
	r.Past = map[int]Past{}
	r.Answered = map[string]int{}
	for n := 1; n <= Remembered+8; n++ {
		r.Past[n] = Past{ClusterID: uint64(n)}
		r.Answered[strings.Repeat("x", n)] = n
	}
	read, err := Read(New(owner, Remembered+9, r))
	require.NoError(t, err)
	assert.Len(t, read.Past, Remembered)
	assert.Len(t, read.Answered, Remembered)
	assert.NotContains(t, read.Past, 8)
	assert.EqualValues(t, 9, read.Past[9].ClusterID)
	assert.Equal(t, 9, read.Answered["xxxxxxxxx"])
}

// TestWhatNoRecordSays is refused, in words that quote nothing.
func TestWhatNoRecordSays(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *Record)
		err    error
	}{
		"no source":               {func(r *Record) { r.Source = "" }, errOrigin},
		"another source":          {func(r *Record) { r.Source = "Secret" }, errOrigin},
		"a snapshot without one":  {func(r *Record) { r.Source = SourceSnapshot }, errOrigin},
		"claims without one":      {func(r *Record) { r.Source = SourceClaims }, errOrigin},
		"a member without a name": {func(r *Record) { r.Initial = map[string]string{"": "http://a"} }, errMembers},
		"a member without a URL":  {func(r *Record) { r.Initial = map[string]string{"demo-0": ""} }, errMembers},
		"a start on nothing":      {func(r *Record) { r.StartsOn = map[string]types.UID{"demo-0": ""} }, errMembers},
		"a negative number":       {func(r *Record) { r.NextOrdinal = -1 }, errNumbers},
		"a member above all":      {func(r *Record) { r.First = objects.MostMembers + 1 }, errNumbers},
		"an epoch above all":      {func(r *Record) { r.After = objects.MostMembers + 1 }, errNumbers},
		"a former member above":   {func(r *Record) { r.FormerFirst = objects.MostMembers + 1 }, errNumbers},
		"survivors above":         {func(r *Record) { r.SurvivorsOf = objects.MostMembers + 1 }, errNumbers},
		"a floor above all":       {func(r *Record) { r.Floor = MostRevisions + 1 }, errNumbers},
		"a revision above all":    {func(r *Record) { r.Highest = MostRevisions + 1 }, errNumbers},
		"an end above all":        {func(r *Record) { r.Until = MostRevisions + 1 }, errNumbers},
		"a log above all":         {func(r *Record) { r.OldLog.UpTo = MostRevisions + 1 }, errNumbers},
		"a snapshot until -1":     {func(r *Record) { r.Snapshot = &Resolved{Until: -1} }, errNumbers},
		"all that is allowed":     {func(r *Record) { r.NextOrdinal = objects.MostMembers }, nil},
		"and every revision":      {func(r *Record) { r.Highest = MostRevisions }, nil},
	} {
		r := none()
		c.change(&r)
		read, err := Read(New(owner, 1, r))
		assert.ErrorIs(t, err, c.err, name)
		assert.Equal(t, err != nil, reflect.ValueOf(read).IsZero(), name)
	}
	for _, spoil := range []func(cm *corev1.ConfigMap){
		func(cm *corev1.ConfigMap) { cm.Data["bootstrap"] = `{"source":"hunter2` },
		func(cm *corev1.ConfigMap) { cm.Data["bootstrap"] = `{"previousEpoch":"hunter2"}` },
		func(cm *corev1.ConfigMap) { cm.Data["bootstrap"] = `{"source":"Empty","source":"hunter2"}` },
		func(cm *corev1.ConfigMap) { cm.Data["initial-cluster"] = "demo-0=hunter2" },
		func(cm *corev1.ConfigMap) { cm.Annotations[annotationState] = `{"clusterID":"hunter2"}` },
		func(cm *corev1.ConfigMap) { cm.Annotations[annotationState] = `{"nextMember":"hunter2"}` },
		func(cm *corev1.ConfigMap) { clear(cm.Annotations) },
	} {
		cm := New(owner, 1, none())
		spoil(cm)
		r, err := Read(cm)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "hunter2")
		assert.Zero(t, r)
	}
}

// FuzzRead holds what must be true of every text: a record that is read is one that can be written, and says the same
// then; and none takes much more memory than its text.
func FuzzRead(f *testing.F) {
	cm := New(owner, 1, full())
	f.Add(cm.Data["bootstrap"], cm.Annotations[annotationState], cm.Data["initial-cluster"])
	f.Add(`{"source":"Empty"}`, `{}`, "")
	f.Add(`null`, `{"startsOn":null}`, "")
	f.Add(`{"source":"Empty","past":{"-1":{"voters":[1,2,3]}}}`, `{"clusterID":7,"externalSince":"x"}`, "")
	f.Add(strings.Repeat("[", 20_000), strings.Repeat(`{"external":`, 20_000), "")
	f.Fuzz(func(t *testing.T, plan, state, initial string) {
		cm := &corev1.ConfigMap{Data: map[string]string{"bootstrap": plan, "initial-cluster": initial},
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationState: state}}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := Read(cm)
		runtime.ReadMemStats(&after)
		size := len(plan) + len(state) + len(initial)
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(size)*100+1<<20 {
			t.Errorf("%d bytes took %d", size, took)
		}
		if err != nil {
			return
		}
		again, err := Read(New(owner, 1, r))
		require.NoError(t, err)
		if len(r.Past) <= Remembered && len(r.Answered) <= Remembered {
			assert.Equal(t, encode(r.Bootstrap), encode(again.Bootstrap))
		}
		assert.Equal(t, encode(r.State), encode(again.State))
	})
}
