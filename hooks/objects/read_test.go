package objects

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// TestQuantitiesThatComputeForMinutes: they are refused before they are parsed, wherever they stand.
func TestQuantitiesThatComputeForMinutes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`"1e-2000000000"`, `"1E-2000000000"`, `1e2000000000`, `"1e+100"`, `" 1e-2000000000 "`,
		`"100000000000000000000000000000000000000"`, `"0.1e-999"`} {
		began := time.Now()
		var pod corev1.Pod
		err := Read([]byte(`{"spec":{"containers":[{"resources":{"limits":{"cpu":`+text+`}}}]}}`), &pod)
		require.ErrorIs(t, err, errLongQuantity, text)
		require.Less(t, time.Since(began), time.Second)
	}
	for _, text := range []string{`"1e3"`, `"1E"`, `"1Ei"`, `"1e-9"`, `"100m"`, `1`, `"9223372036854775807"`, `"12E+18"`} {
		var claim corev1.PersistentVolumeClaim
		require.NoError(t, Read([]byte(`{"spec":{"resources":{"requests":{"storage":`+text+`}}}}`), &claim), text)
	}
}

// TestAVersionIsATag: a record that others wrote chooses no digest by its version.
func TestAVersionIsATag(t *testing.T) {
	t.Parallel()
	for version, image := range map[string]string{
		"3.6.16": DefaultEtcdRepository + ":v3.6.16", "3.6.16-rc.1": DefaultEtcdRepository + ":v3.6.16-rc.1",
		"3.6.16@sha256:00ff": DefaultEtcdRepository + ":v3.6.16", "/x:y": DefaultEtcdRepository + ":v",
	} {
		require.Equal(t, image, Images{}.Etcd(&v1alpha1.EtcdClusterSpec{}, version))
	}
}
