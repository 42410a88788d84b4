package check

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestWhatIsAllowedNeedsNoPolicy: an installation with --shared-issuers has no policy against them, and installing
// again keeps what it allows.
func TestWhatIsAllowedNeedsNoPolicy(t *testing.T) {
	w := good(t)
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		w.lose(policies, kind, "quorate-shared-issuers")
	}
	f := w.judged()["Installed"]
	assert.Equal(t, Warn, f.State)
	assert.Contains(t, f.Found, "quorate-shared-issuers")
	assert.NotContains(t, f.Do, "--shared-issuers")

	c := container(w.deployment())
	c["env"] = append(c["env"].([]any), map[string]any{"name": "QUORATE_SHARED_ISSUERS", "value": "true"},
		map[string]any{"name": "QUORATE_ALLOWED_ETCD_ENDPOINTS", "value": "10.1.0.0/16"})
	assert.Equal(t, OK, w.judged()["Installed"].State)
	w.lose(policies, "ValidatingAdmissionPolicy", "quorate-deletion-protection")
	assert.Contains(t, w.judged()["Installed"].Do, " --allowed-etcd-endpoints=10.1.0.0/16 --shared-issuers --apply")
}
