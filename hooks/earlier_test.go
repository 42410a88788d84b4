package hooks

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// TestOracleOfBootstraps: what the rules decide where nothing is left of an earlier cluster is wrong where something
// is.
func TestOracleOfBootstraps(t *testing.T) {
	unbegun := fresh(3)
	founds := Decide(unbegun)
	require.NotEmpty(t, founds.Children.ConfigMaps)
	claim := observation.Remain{Kind: "PersistentVolumeClaim", Name: "demo-0"}
	for name, c := range map[string]struct {
		remain observation.Remain
		spec   *v1beta1.Bootstrap
		seen   []string
		says   string
	}{
		"a claim":              {claim, nil, nil, "the spec says of no data"},
		"a record":             {observation.Remain{Kind: "ConfigMap", Name: "demo-epoch-1"}, nil, nil, "beside the record"},
		"a number":             {claim, &v1beta1.Bootstrap{}, nil, "S9: demo-0 has the number"},
		"what was seen before": {observation.Remain{}, nil, []string{"demo-0"}, "after [demo-0] of a backup"},
	} {
		o := fresh(3)
		o.Cluster.Spec.Bootstrap, o.Cluster.Status.Internal.EarlierLife = c.spec, c.seen
		if c.remain.Name != "" {
			o.Related.Remains = []observation.Remain{c.remain}
		}
		require.ErrorContains(t, verify(o, founds), c.says, name)
		require.NoError(t, verify(o, Decide(o)), name)
	}
}
