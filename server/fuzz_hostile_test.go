package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/etcdops/pki"
)

// allowance is what one call may take: more than it ever does on a machine that does ten other things, and far less
// than what has been a finding.
type allowance struct {
	began  time.Time
	before uint64
}

func allow() allowance {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return allowance{time.Now(), m.TotalAlloc}
}

// spent: no more than so much was allocated, garbage among it, and no more time taken than a call has.
func (a allowance) spent(t *testing.T, most uint64) {
	t.Helper()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	require.Less(t, m.TotalAlloc-a.before, most)
	require.Less(t, time.Since(a.began), 8*time.Second)
}

// FuzzHostileObject: whatever JSON a tenant gives to an object, as often as it fits, a call that holds it is answered
// or refused at a bounded price. The text is the fuzzer's, and stands where a field of an object does; it is repeated,
// as an item of a list or a key of a map would be.
func FuzzHostileObject(f *testing.F) {
	places := [][]string{
		{"parent", "spec"}, {"parent", "status"}, {"parent", "metadata", "annotations"},
		{"children", groupPods, "orders-0", "spec"},
		{"children", groupPods, "orders-0", "status"}, {"children", groupPolicies, "orders"},
		{"children", groupConfigMaps, "orders-epoch-1", "data"},
		{"children", groupSecrets}, {"related", groupSecrets}, {"related", groupSnapshots},
	}
	for _, item := range []string{ // JSON that becomes much when it is decoded
		`{}`, `""`, `"a"`, `{"name":"a"}`, `{"name":"","uid":""}`, `{"operator":"Exists"}`,
		`{"name":"a","emptyDir":{}}`,
		`{"name":"a","resources":{}}`,
		`{"name":"","state":{},"lastState":{},"ready":false,"restartCount":0,"image":"","imageID":""}`,
	} {
		for place := range places {
			f.Add(byte(place), "ingress", item, uint16(2000))
		}
	}
	f.Add(byte(7), "s", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"shop","uid":"u"},"data":{"a":"","b":"","tls.crt":"LS0t"}}`, uint16(1))
	f.Add(byte(8), "s", `{"data":{"a":"","a":"","\u0061":""}}`, uint16(500))
	f.Add(byte(9), "s", `{"spec":{},"status":{"history":[{},{}]}}`, uint16(500))
	f.Fuzz(func(t *testing.T, place byte, key, item string, times uint16) {
		way := places[int(place)%len(places)]
		if !json.Valid([]byte(item)) || len(item)*int(times) > 1<<20 {
			return
		}
		list := json.RawMessage("[" + strings.Repeat(item+",", int(times)) + item + "]")
		body := edited(t, func(r map[string]any) {
			r["related"] = map[string]any{groupSecrets: map[string]any{}, groupSnapshots: map[string]any{}}
			at := r
			for _, step := range way {
				next, is := at[step].(map[string]any)
				if !is {
					next = map[string]any{}
					at[step] = next
				}
				at = next
			}
			if times%2 == 0 {
				at[key] = list
				return
			}
			for i := range min(int(times), 2000) {
				at[fmt.Sprintf("%s%d", key, i)] = json.RawMessage(item)
			}
		})
		s, _ := testServer(Options{Verify: false, Etcd: made{0}})
		h := s.Handler()
		a := allow()
		w := post(h, "/sync", body)
		require.Contains(t, []int{http.StatusOK, http.StatusBadRequest, http.StatusRequestEntityTooLarge}, w.Code,
			w.Body.String())
		a.spent(t, 16<<20+40*uint64(len(body)))
		require.Zero(t, s.memory.held)
		require.Zero(t, s.large.held)
	})
}

// FuzzHostileSecret: whatever bytes a tenant puts under the keys that are read, a Secret is read at a bounded price,
// and what is wrong with it is said without what is in it.
func FuzzHostileSecret(f *testing.F) {
	data := secretsForFuzz(f)
	f.Add(data["tls.crt"], data["ca.crt"], data["tls.key"], uint8(1))
	f.Add(data["tls.crt"], data["ca.crt"], data["tls.key"], uint8(40))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte("x"), []byte("y"), uint8(255))
	f.Fuzz(func(t *testing.T, chain, trust, key []byte, times uint8) {
		if len(trust) > 64<<10 || len(chain) > 64<<10 {
			return
		}
		trust = bytes.Repeat(trust, int(times)+1)
		a := allow()
		read := pki.Read(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "shop"},
			Data: map[string][]byte{"tls.crt": chain, "ca.crt": trust, "tls.key": key}})
		a.spent(t, 16<<20+40*uint64(len(chain)+len(trust)+len(key)))
		require.LessOrEqual(t, len(read.Trust), 32)
		require.LessOrEqual(t, len(read.Anchors), len(read.Trust))
		require.Less(t, len(read.Flaw), 200)
		if len(key) > 20 {
			require.NotContains(t, read.Flaw, string(key))
		}
		if _, err := pki.Client(map[string][]byte{"tls.crt": chain, "ca.crt": trust, "tls.key": key}); err != nil {
			require.Less(t, len(err.Error()), 200)
		}
	})
}

// secretsForFuzz is a pair of certificate and key with its authority.
func secretsForFuzz(f *testing.F) map[string][]byte {
	f.Helper()
	s, _ := testServer(Options{Etcd: silent{}})
	h := s.Handler()
	request := newborn(f)
	var data map[string][]byte
	for range 3 {
		w := post(h, "/sync", request)
		require.Equal(f, http.StatusOK, w.Code)
		request = applied(f, request, w.Body.Bytes())
		if all := secretsIn(f, w.Body.Bytes()); len(all["orders-operator-tls"]) > 0 {
			data = all["orders-operator-tls"]
		}
	}
	require.NotEmpty(f, data)
	return data
}
