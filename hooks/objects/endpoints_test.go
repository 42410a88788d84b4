package objects

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func allowing(t *testing.T, list string) *AllowedEndpoints {
	t.Helper()
	a, err := ParseAllowedEndpoints(list)
	require.NoError(t, err)
	return a
}

// TestAllowedEndpoints: what a tenant may have Quorate dial is what the installation lists, and no list reaches the
// server itself, its node, or another tenant's Service by name.
func TestAllowedEndpoints(t *testing.T) {
	// the policy is held against the same: TestPolicyForAllowedEtcdEndpoints in test/static/manifests
	raw, err := os.ReadFile("testdata/endpoints.json")
	require.NoError(t, err)
	var cases []struct{ Allowed, Host, Refused string }
	require.NoError(t, json.Unmarshal(raw, &cases))
	for _, c := range cases {
		why := allowing(t, c.Allowed).Refuses("https://"+c.Host+":2379", "shop")
		if c.Refused == "" {
			assert.Empty(t, why, "%+v", c)
		} else {
			assert.Contains(t, why, c.Refused, "%+v", c)
		}
	}
}

// TestANameLeadsWhereItMay: the name of a Service is its namespace's to point anywhere, so its addresses count; a
// name that is listed may have every address but those that are can't be allowed.
func TestANameLeadsWhereItMay(t *testing.T) {
	for _, c := range []struct {
		list, host, address string
		takes               bool
	}{
		{"10.244.0.0/16", "former.shop.svc", "10.244.1.7", true},
		{"10.244.0.0/16", "former.shop.svc", "::ffff:10.244.1.7", true},
		{"10.244.0.0/16", "former.shop.svc", "10.96.0.1", false},
		{"10.244.0.0/16,.local", "former.shop.svc.cluster.local", "10.96.0.1", false},
		{"etcd.example.com", "etcd.example.com", "10.96.0.1", true},
		{"etcd.example.com", "etcd.example.com", "127.0.0.1", false},
		{"etcd.example.com", "etcd.example.com", "169.254.169.254", false},
		{"etcd.example.com", "etcd.example.com", "::1", false},
		{"etcd.example.com", "fe80::1%eth0", "fe80::1%eth0", false},
		{"", "etcd.example.com", "10.96.0.1", false},
	} {
		assert.Equal(t, c.takes, allowing(t, c.list).Takes(c.host, netip.MustParseAddr(c.address)), "%v", c)
	}
	for host, lookedUp := range map[string]string{
		"etcd.example.com": "etcd.example.com.", "etcd.example.com.": "etcd.example.com.", "10.1.2.3": "10.1.2.3",
		"etcd": "etcd", "fd00::1": "fd00::1",
		"former.shop.svc": "former.shop.svc", "former.shop.svc.cluster.local": "former.shop.svc.cluster.local",
	} {
		assert.Equal(t, lookedUp, Absolute(host))
	}
}

func TestParseAllowedEndpoints(t *testing.T) {
	assert.Nil(t, allowing(t, ""))
	assert.Equal(t, ".example.com,10.1.0.0/16,10.2.3.4/32,etcd.example.com",
		allowing(t, "etcd.example.com,10.2.3.4/32,.example.com,10.1.0.0/16,etcd.example.com").String())
	for _, bad := range []string{"*", "10.1.2.3", "10.1.2.3/16", "10.1.0.0/33", "::ffff:10.0.0.0/104", "127.0.0.0/8",
		"169.254.0.0/16", "ff00::/8", "a b", "http://a", "a:1", ".", "a..b", "-a.b",
		"former.shop.svc", ".svc", ".shop.svc.cluster.local", "localhost", "A.example.com", strings.Repeat("a", 255),
		"10.1.0.0/16,"} {
		_, err := ParseAllowedEndpoints(bad)
		assert.ErrorContains(t, err, strings.TrimPrefix(bad, "10.1.0.0/16,"), bad)
	}
}
