package objects

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
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
		require.Equal(t, image, Images{}.Etcd(&v1beta1.EtcdClusterSpec{}, version))
	}
}

// TestQuantitiesAreWrittenInOneWay: whatever means the same amount is the same template.
func TestQuantitiesAreWrittenInOneWay(t *testing.T) {
	for want, all := range map[string][]string{
		"1Gi": {"1073741824", "1024Mi", "1048576Ki", "1Gi"}, "1G": {"1000M", "1e9", "1000000000"}, "0": {"0", "0Gi"},
		"500m": {"0.5", "500000u", "500m"}, "2": {"2", "2000m", "2.0"}, "1500u": {"1.5m", "0.0015"},
		"512": {"0.5Ki", "512"},
	} {
		for _, q := range all {
			is := Canonical(resource.MustParse(q))
			assert.Equal(t, want, is.String(), q)
		}
	}
}
