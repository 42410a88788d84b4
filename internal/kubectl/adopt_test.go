package kubectl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// formerly are claims that another operator has left, one of them with a pod.
func formerly(t *testing.T) *kube {
	k := steady(t)
	k.says["get pvc"] = `{"items":[
		{"metadata":{"name":"data-former-0","namespace":"shop"},
			"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"fast"},
			"status":{"phase":"Bound","capacity":{"storage":"2Gi"}}},
		{"metadata":{"name":"data-former-1","namespace":"shop",
				"ownerReferences":[{"kind":"EtcdMember","name":"former-1","controller":true}]},
			"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"fast",
				"resources":{"requests":{"storage":"1Gi"}}},
			"status":{"phase":"Pending"}}]}`
	k.says["get pods"] = `{"items":[
		{"metadata":{"name":"former-0"},
			"spec":{"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"data-former-0"}}]},
			"status":{"phase":"Running"}},
		{"metadata":{"name":"done"},
			"spec":{"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"data-former-1"}}]},
			"status":{"phase":"Succeeded"}}]}`
	return k
}

// TestAdopt: it prints the EtcdCluster that begins with the claims, and what is known of these; nothing is changed.
func TestAdopt(t *testing.T) {
	for _, line := range []string{"taken data-former-0 data-former-1", "taken -l app=former"} {
		k := formerly(t)
		code, out, errs := k.runs(healthy(),
			strings.Fields("adopt -n shop --dry-run --etcd-version=3.6.16 --path=. "+line)...)
		require.Zero(t, code, errs)
		assert.Empty(t, k.applied)
		comments, manifest, _ := strings.Cut(out, "apiVersion")
		assert.Equal(t, "# data-former-0: Bound, 2Gi, fast, ReadWriteOnce; IN USE by pod former-0: stop its etcd "+
			"first\n# data-former-1: Pending, 1Gi, fast, ReadWriteOnce; EtcdMember former-1 owns it, and it goes "+
			"with that\n",
			comments)
		var c v1alpha1.EtcdCluster
		require.NoError(t, yaml.UnmarshalStrict([]byte("apiVersion"+manifest), &c))
		assert.Equal(t, "shop/taken", c.Namespace+"/"+c.Name)
		assert.Equal(t, "2Gi", c.Spec.Storage.Size.String())
		assert.Equal(t, "fast", *c.Spec.Storage.StorageClassName)
		assert.EqualValues(t, 2, *c.Spec.Replicas)
		assert.Equal(t, &v1alpha1.FormerClaims{Names: []string{"data-former-0", "data-former-1"}, Path: "."},
			c.Spec.Bootstrap.Claims)
	}
}

func TestAdoptRefuses(t *testing.T) {
	for line, says := range map[string]string{
		"taken data-former-0":                                               "changes nothing, and needs --dry-run",
		"taken data-former-0 --dry-run":                                     "needs --etcd-version",
		"--dry-run --etcd-version=3.6.16":                                   "needs NAME",
		"taken --dry-run --etcd-version=3.6.16":                             "either names of claims",
		"taken data-former-0 -l app=former --dry-run --etcd-version=3.6.16": "either names of claims",
	} {
		code, _, errs := formerly(t).runs(healthy(), strings.Fields("adopt "+line)...)
		assert.Equal(t, exitUsage, code, line)
		assert.Contains(t, errs, says)
	}
	code, _, errs := formerly(t).runs(healthy(),
		strings.Fields("adopt taken data-gone-0 --dry-run --etcd-version=3.6.16")...)
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "claim data-gone-0 does not exist in namespace")
	k := formerly(t)
	k.says["get pvc"] = `{"items":[]}`
	_, _, errs = k.runs(healthy(), strings.Fields("adopt taken -l app=former --dry-run --etcd-version=3.6.16")...)
	assert.Contains(t, errs, "no claim in namespace")
}
