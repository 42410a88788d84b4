package objects

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKubeletsWords(t *testing.T) {
	const cause = `failed to resolve reference "registry/etcd:v3.6.99": registry/etcd:v3.6.99: not found`
	for message, want := range map[string]string{
		"":    "",
		cause: cause,
		`Back-off pulling image "registry/etcd:v3.6.99": ErrImagePull: ` + cause: cause,
		`Back-off pulling image "registry/etcd:v3.6.99"`:                         `Back-off pulling image "registry/etcd:v3.6.99"`,
		`Back-off pulling image "registry/etcd:v3.6.99": RegistryUnavailable: image pull failed for registry/etcd:v3.6.99 because the registry is unavailable: x`: "image pull failed for registry/etcd:v3.6.99 because the registry is unavailable: x",
		"dial https://robot:secret@registry/v2?token=secret:\n no": "dial https://registry/v2 no",
		"read tcp 10.0.0.1:41234->10.0.0.2:443: connection reset by peer": "read tcp 10.0.0.2:443: connection reset " +
			"by peer",
		"denied, request 01234567-89ab-cdef-0123-456789abcdef": "denied, request ...",
		`couldn't find key x in Secret shop/y`:                 `couldn't find key x in Secret shop/y`,
	} {
		assert.Equal(t, want, Kubelet(message), message)
	}
	assert.Equal(t, "..."+strings.Repeat("é", longestQuote), Kubelet("x "+strings.Repeat("é", 1000)))
	assert.Equal(t, "no", Kubelet("https://robot:"+strings.Repeat("secret", 1000)+"@registry no"),
		"half of a URL may be half of a secret")
}

func TestSchedulersWords(t *testing.T) {
	for message, want := range map[string]string{
		"": "",
		"0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims " +
			"found for incoming pod.": "0/1 nodes are available: 1 Insufficient cpu",
		"0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are " +
			"available: 1 Preemption is not helpful for scheduling.": "0/1 nodes are available: 1 Insufficient cpu",
	} {
		assert.Equal(t, want, Scheduler(message))
	}
	assert.Equal(t, strings.Repeat("a", longestQuote)+"...", Scheduler(strings.Repeat("a", 10000)))
}
