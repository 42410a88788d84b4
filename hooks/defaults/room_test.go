package defaults

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// TestTooSmallIsRefused: with what would be enough.
func TestTooSmallIsRefused(t *testing.T) {
	for _, c := range []struct {
		medium  v1beta1.Medium
		size    string
		request int64
		says    string
	}{
		{v1beta1.Memory, "256Mi", 3 << 19, "spec.storage.size 256Mi is too small: it must be at least 512Mi"},
		{v1beta1.Persistent, "511Mi", 3 << 19, "spec.storage.size 511Mi is too small: it must be at least 512Mi"},
		{v1beta1.Persistent, "1Gi", 100 << 20, "spec.storage.size 1Gi is too small: it must be at least 5971Mi"},
		{v1beta1.Persistent, "5971Mi", 100 << 20, ""},
		{v1beta1.Memory, "512Mi", 3 << 19, ""},
	} {
		s := &v1beta1.EtcdClusterSpec{Options: v1beta1.Options{MaxRequestBytes: new(c.request)},
			Storage: v1beta1.StorageSpec{Medium: c.medium, Size: resource.MustParse(c.size)}}
		if c.says == "" {
			require.NoError(t, ValidateRoom(s))
			continue
		}
		require.ErrorContains(t, ValidateRoom(s), c.says)
	}
}
