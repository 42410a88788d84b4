package defaults

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheAPIKnowsTheMinorVersions of the table of releases: who adds one finds each place here.
func TestTheAPIKnowsTheMinorVersions(t *testing.T) {
	var digits, list []string
	for _, r := range Newest {
		digits = append(digits, fmt.Sprint(r.Minor()))
		list = append(list, fmt.Sprintf("'%d'", r.Minor()))
	}
	form := "^3[.][" + strings.Join(digits, "") + "][.]"
	for file, want := range map[string]string{
		"../api/v1beta1/etcdcluster.go":   "in [" + strings.Join(list, ", ") + "]",
		"../api/v1beta1/snapshot.go":      form,
		"../snapshot/job.go":              form,
		"../../internal/kubectl/words.go": form,
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.True(t, strings.Contains(string(text), want), "%s has no %s", file, want)
	}
	assert.True(t, Supported(Newest[0]))
	assert.False(t, Supported(Release{3, Newest[len(Newest)-1].Minor() + 1, 0}))
	assert.False(t, Supported(Release{3, Newest[0].Minor() - 1, 0}))
}
