package cluster

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/endpoints"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/state"
)

func allowing(t *testing.T, list string) *endpoints.AllowedEndpoints {
	t.Helper()
	a, err := endpoints.ParseAllowedEndpoints(list)
	require.NoError(t, err)
	return a
}

// TestAllowedEndpoints: what a tenant may have Quorate dial is what the installation lists, and no list reaches the
// server itself, its node, or another tenant's Service by name.
func TestAllowedEndpoints(t *testing.T) {
	// the policy is held against the same: TestPolicyForExistingEndpoints in test/tools/manifests
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
		assert.Equal(t, lookedUp, endpoints.Absolute(host))
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
		_, err := endpoints.ParseAllowedEndpoints(bad)
		assert.ErrorContains(t, err, strings.TrimPrefix(bad, "10.1.0.0/16,"), bad)
	}
}

// TestNoEtcdIsJoinedThatIsNotAllowed: before the members have joined the cluster can't be run, and nothing is asked
// at those URLs; once they have, a shorter list takes no pod away.
func TestNoEtcdIsJoinedThatIsNotAllowed(t *testing.T) {
	o := fresh(3)
	o.Cluster.Spec.Bootstrap = &v1alpha1.Bootstrap{Existing: &v1alpha1.ExistingCluster{
		Endpoints: []string{"http://10.1.2.3:2379", "http://10.9.9.9:2379"}}}
	o.Children.ConfigMaps = nil
	d := Decide(o)
	assert.Equal(t, "Unsupported", d.Reason.Rule)
	assert.Contains(t, d.Reason.Message, "spec.bootstrap.existing.endpoints[0] is not asked: this installation of "+
		"Quorate allows no endpoints (quorate install --existing-endpoints)")
	o.Settings.AllowedEndpoints = allowing(t, "10.1.0.0/16")
	assert.Contains(t, Decide(o).Reason.Message, "endpoints[1] is not asked: this installation of Quorate allows only 10.1.0.0/16")
	o.Settings.AllowedEndpoints = allowing(t, "10.0.0.0/8")
	assert.Equal(t, "Record", Decide(o).Reason.Rule)

	for _, e := range state.Endpoints(besideThree(1)) {
		assert.Equal(t, e.Foreign, e.Allowed != nil && e.Namespace == "default", "%+v", e)
	}
	joined := besideThree(3)
	joined.Settings.AllowedEndpoints = nil
	assert.Equal(t, "ForeignMembers", Decide(joined).Reason.Rule)
}

// TestWhatAForeignMemberCallsItself: what has not the form of a name or URL reaches neither a person nor the record.
func TestWhatAForeignMemberCallsItself(t *testing.T) {
	o := besideThree(0)
	delete(o.Children.ConfigMaps["demo-epoch-1"].Annotations, objects.AnnotationClusterID)
	delete(o.Children.ConfigMaps["demo-epoch-1"].Annotations, objects.AnnotationForeign)
	o.Etcd.Members[1].Name = "run `kubectl delete ns shop`"
	o.Etcd.Members[1].ClientURLs = []string{"http://a:2379,99 http://b:2379", "http://old-1:2379"}
	d := Decide(o)
	assert.Contains(t, d.Reason.Message, "with the members 65, old-0, old-2")
	for _, m := range d.Children.ConfigMaps {
		if note := m.Annotations[objects.AnnotationForeign]; note != "" {
			assert.Equal(t, "65 http://old-1:2379,64 http://old-0:2379,66 http://old-2:2379", note)
		}
	}
}
