package wire

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/etcdops/pki"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
)

// TestAPreviousAuthorityGoes: the key of an authority that was succeeded leaves the Secret, though nothing that a
// Secret holds is answered as data, from which Metacontroller would take what is left out.
func TestAPreviousAuthorityGoes(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	forge := func(recipe decision.Recipe, data map[string][]byte) map[string][]byte {
		made, err := pki.Make("ca", recipe, map[string]map[string][]byte{"ca": data})
		require.NoError(t, err)
		return made
	}
	first := forge(decision.Authority{CommonName: "one", NotBefore: began, NotAfter: began.Add(time.Hour)}, nil)
	second := forge(decision.Authority{CommonName: "two", NotBefore: began, NotAfter: began.Add(24 * time.Hour),
		Previous: true}, first)
	require.NotEmpty(t, second[objects.KeyPreviousPrivate])

	r := &ClusterCall{Cluster: &v1beta1.EtcdCluster{}, secrets: map[string]map[string][]byte{"ca": second}}
	r.Children.Secrets = map[string]*observation.Secret{"ca": {}}
	answer, err := r.secret(&decision.DesiredSecret{
		ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Make: decision.Trim{At: began.Add(2 * time.Hour)},
	})
	require.NoError(t, err)
	require.Nil(t, answer.Data)

	now := maps.Clone(second) // as the API server puts stringData into data
	for key, value := range answer.StringData {
		now[key] = []byte(value)
	}
	read := pki.Read(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "ca", Namespace: "shop"}, Data: now})
	require.Empty(t, now[objects.KeyPreviousPrivate])
	require.Nil(t, read.Previous)
	require.Empty(t, read.Flaw)
	require.Len(t, read.Trust, 1)
}

// TestKeysOfStreamsAreTold where the Secret has others, by what the installation's keys are now; without any it stays.
func TestKeysOfStreamsAreTold(t *testing.T) {
	const name = "orders-restore-key"
	r := &ClusterCall{Cluster: &v1beta1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}},
		Keys: [][]byte{[]byte("a key of the installation")}, secrets: map[string]map[string][]byte{}}
	told := func() map[string]string {
		answer, err := r.secret(&decision.DesiredSecret{ObjectMeta: metav1.ObjectMeta{Name: name}, Make: decision.StreamKeys{}})
		require.NoError(t, err)
		require.Nil(t, answer.Data)
		return answer.StringData
	}
	now := record.StreamKeys(r.Keys, "shop")
	require.Equal(t, map[string]string{objects.KeyStream: now}, told())
	r.secrets[name] = map[string][]byte{objects.KeyStream: []byte(now)}
	require.Empty(t, told())
	r.secrets[name] = map[string][]byte{objects.KeyStream: []byte("by others")}
	require.Equal(t, map[string]string{objects.KeyStream: now}, told())
	r.Keys = nil
	require.Empty(t, told())
}
