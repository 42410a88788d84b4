package install

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/etcdops/command"
)

// TestWhatTenantsMayAskFor: nothing beyond their namespace by default; what is allowed, policy and server are told
// alike.
func TestWhatTenantsMayAskFor(t *testing.T) {
	told := func(objects map[string]string) (serving, string) {
		var d appsv1.Deployment
		require.NoError(t, yaml.UnmarshalStrict([]byte(objects["Deployment/quorate"]), &d))
		env := map[string]string{"QUORATE_IMAGE": "q"}
		for _, e := range d.Spec.Template.Spec.Containers[0].Env {
			if strings.Contains(e.Name, "ENDPOINTS") || strings.Contains(e.Name, "ISSUERS") {
				env[e.Name] = e.Value
			}
		}
		var v serving
		require.NoError(t, command.ParseWithEnv(v.flags(), nil, func(name string) string { return env[name] }))
		require.NoError(t, v.check())
		return v, objects["ValidatingAdmissionPolicy/quorate-existing-endpoints"]
	}
	objects, _ := installed(t)
	v, policy := told(objects)
	require.Nil(t, v.options.Settings.AllowedEndpoints)
	require.False(t, v.options.Settings.SharedIssuers)
	require.Contains(t, policy, "|| false)")
	require.Contains(t, policy, "join an etcd nowhere")
	require.Contains(t, objects, "ValidatingAdmissionPolicy/quorate-shared-issuers")

	objects, _ = installed(t, "--existing-endpoints=.example.com,10.1.0.0/16", "--shared-issuers", "--selector=a=b")
	v, policy = told(objects)
	require.Equal(t, ".example.com,10.1.0.0/16", v.options.Settings.AllowedEndpoints.String())
	require.True(t, v.options.Settings.SharedIssuers)
	require.NotContains(t, policy, "|| false)")
	require.Contains(t, policy, "join an etcd at .example.com, 10.1.0.0/16 alone (")
	require.Contains(t, policy, "objectSelector:\n      matchLabels:\n        a: b\n")
	require.NotContains(t, objects, "ValidatingAdmissionPolicy/quorate-shared-issuers")
	require.NotContains(t, objects, "ValidatingAdmissionPolicyBinding/quorate-shared-issuers")

	for _, bad := range []string{"*", "10.1.2.3", "former.shop.svc", "127.0.0.0/8", "https://a"} {
		require.ErrorContains(t, install(t.Context(), []string{"--existing-endpoints=" + bad}, nil, io.Discard, io.Discard), "--existing-endpoints: \""+bad+"\"")
	}
}
