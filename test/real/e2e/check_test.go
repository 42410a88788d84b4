//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/quorate-dev/quorate/internal/kubectl/check"
)

// TestCheck: `kubectl quorate check` finds the lab's installation well, with the rights that
// manifests/samples/check-rights.yaml lists and no others (all of them are to get and to list, so it changes nothing).
// Where nothing is installed it says what to do, and who may read nothing learns which right lacks.
func TestCheck(t *testing.T) {
	quorate := plugin(t)
	findings := func(args ...string) (map[string]check.Finding, int) {
		t.Helper()
		out, errs, code := quorate(append([]string{"check", "-o", "json"}, args...)...)
		var said struct {
			Fine   bool
			Checks []check.Finding
		}
		require.NoError(t, json.Unmarshal([]byte(out), &said), errs)
		assert.Equal(t, said.Fine, code == 0)
		all := map[string]check.Finding{}
		for _, f := range said.Checks {
			all[f.Name] = f
		}
		require.Len(t, all, len(check.Checks))
		return all, code
	}
	allowed(t, "checker")

	// Other stories may have restarted a part of it a moment ago.
	eventually(t, "the installation is found well", func() string {
		all, code := findings("--as=checker")
		if code == 0 {
			// The lab's Metacontroller has its own number of workers, and stories make calls fail on purpose.
			for _, f := range all {
				if f.State != check.OK && !slices.Contains([]string{"MetacontrollerFlags", "Asked"}, f.Name) {
					return f.Name + ": " + f.Found
				}
			}
			return ""
		}
		var bad []string
		for _, f := range all {
			if f.State == check.Fail || f.State == check.Unknown {
				bad = append(bad, f.Name+": "+f.Found)
			}
		}
		return strings.Join(bad, "\n")
	})
	all, _ := findings("--as=checker")
	assert.Contains(t, all["MetacontrollerVersion"].Found, os.Getenv("QUORATE_METACONTROLLER_VERSION"))
	assert.Contains(t, all["Installed"].Found, "quorate-etcdcluster, quorate-etcdmirror, quorate-etcdoperation, "+
		"quorate-etcdsnapshot, quorate-etcdsnapshotschedule")
	began := time.Now()
	screen, _, code := quorate("check")
	t.Logf("kubectl quorate check, in %.1f s:\n%s", time.Since(began).Seconds(), screen)
	assert.Zero(t, code)
	assert.LessOrEqual(t, strings.Count(screen, "\n"), 45, "one screen")
	var secret corev1.Secret
	require.True(t, read(t, "/api/v1/namespaces/"+quorateNamespace+"/secrets/quorate-hooks", &secret))
	for line := range strings.Lines(string(secret.Data["tokens"])) {
		assert.NotContains(t, screen, strings.TrimSpace(line))
	}

	nowhere, code := findings("--namespace=kube-public", "--metacontroller-namespace=default")
	assert.Equal(t, 1, code)
	assert.Equal(t, check.Fail, nowhere["Metacontroller"].State)
	assert.Contains(t, nowhere["Metacontroller"].Do, "--metacontroller-namespace="+metacontrollerPods(t)[0].Namespace)
	assert.Contains(t, nowhere["Quorate"].Found, "no Deployment of Quorate exists in namespace kube-public")
	assert.Contains(t, nowhere["Installed"].Found, "calls quorate.quorate-system.svc, not quorate.kube-public.svc")
	assert.NotContains(t, nowhere["Installed"].Found, "etcdclusters.etcd.quorate.dev", "the kinds are well")

	powerless, code := findings("--as=powerless")
	assert.Equal(t, 1, code)
	for name, f := range powerless {
		if name != "Kubernetes" {
			assert.Equal(t, check.Unknown, f.State, "%s: %s", name, f.Found)
		}
	}
	assert.Contains(t, powerless["MetacontrollerRights"].Do, "the right to list clusterroles and clusterrolebindings")
}

// allowed lets a user do what manifests/samples/check-rights.yaml lists.
func allowed(t *testing.T, user string) {
	t.Helper()
	kube(t, "apply", "-f", "../../../manifests/samples/check-rights.yaml")
	kube(t, "delete", "clusterrolebinding", "e2e-check", "--ignore-not-found") // of a run that was cut off
	kube(t, "create", "clusterrolebinding", "e2e-check", "--clusterrole=quorate-check", "--user="+user)
	t.Cleanup(func() { kube(t, "delete", "clusterrole/quorate-check", "clusterrolebinding/e2e-check") })
}

// metacontrollerPods are the pods of the lab's Metacontroller that run. Version 4 came with Quorate and is in its
// namespace, one of two replicas at work; 1.5 has a namespace of its own.
func metacontrollerPods(t *testing.T) []corev1.Pod {
	t.Helper()
	var all []corev1.Pod
	for _, namespace := range []string{quorateNamespace, "metacontroller"} {
		for _, pod := range list[corev1.Pod](t, namespace, "pods") {
			if pod.Labels["app.kubernetes.io/name"] == "metacontroller" && pod.DeletionTimestamp == nil &&
				pod.Status.PodIP != "" {
				all = append(all, pod)
			}
		}
	}
	return all
}

// killsMetacontroller kills every replica of it; Kubernetes starts others.
func killsMetacontroller(t *testing.T) {
	t.Helper()
	for _, pod := range metacontrollerPods(t) {
		kube(t, "-n", pod.Namespace, "delete", "pod", pod.Name, "--grace-period=0", "--force", "--ignore-not-found")
	}
}

// asked is a request in the API server's audit log.
type asked struct {
	Verb      string
	User      struct{ Username string }
	ObjectRef *struct{ Resource, APIGroup, Subresource, Namespace string }

	Annotations map[string]string
}

// right is what the request needs, such as "list customresourcedefinitions.apiextensions.k8s.io".
func (a asked) right() string {
	if a.ObjectRef == nil {
		return "discovery" // of the API's kinds and versions
	}
	resource := a.ObjectRef.Resource
	if a.ObjectRef.APIGroup != "" {
		resource += "." + a.ObjectRef.APIGroup
	}
	if a.ObjectRef.Subresource != "" {
		resource += "/" + a.ObjectRef.Subresource
	}
	return a.Verb + " " + resource
}

// auditOfMetacontroller is what Metacontroller's service account has asked of the API server since the lab began.
func auditOfMetacontroller(each func(asked)) error {
	file, err := os.Open(os.Getenv("QUORATE_LAB_AUDIT"))
	if err != nil {
		return fmt.Errorf("QUORATE_LAB_AUDIT: %w; run the stories with `make all-stories`", err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a asked
		if json.Unmarshal(lines.Bytes(), &a) != nil || !strings.HasSuffix(a.User.Username, ":metacontroller") {
			continue // the last line may be half written
		}
		each(a)
	}
	return lines.Err()
}

// requestsOfMetacontroller counts its requests since the lab began, by right.
func requestsOfMetacontroller(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	require.NoError(t, auditOfMetacontroller(func(a asked) { all[a.right()]++ }))
	return all
}

// neverForbidden: with the few rights that an installation grants, Metacontroller was refused nothing in all stories,
// in any of its versions. It prints which of the rights no story has used.
func neverForbidden() error {
	var refused []string
	used := map[string]int{}
	err := auditOfMetacontroller(func(a asked) {
		used[a.right()]++
		if a.Annotations["authorization.k8s.io/decision"] == "forbid" && !slices.Contains(refused, a.right()) {
			refused = append(refused, a.right())
		}
	})
	if err != nil {
		return err
	}
	if len(used) == 0 {
		return errors.New("the audit log has no request of Metacontroller's")
	}
	if len(refused) > 0 {
		return fmt.Errorf("Metacontroller was refused these rights, which the installation lacks: %s",
			strings.Join(refused, ", "))
	}
	granted, err := grantedToMetacontroller()
	if err != nil {
		return err
	}
	unused := map[string][]string{} // resources by verb
	for _, right := range granted {
		if verb, resource, _ := strings.Cut(right, " "); used[right] == 0 {
			unused[verb] = append(unused[verb], resource)
		}
	}
	fmt.Printf("Metacontroller used %d rights and was refused none; granted and not used: %v\n", len(used), unused)
	return nil
}

// grantedToMetacontroller are the rights that the installation's ClusterRoles and Roles grant, as asked.right writes
// them.
func grantedToMetacontroller() ([]string, error) {
	var all []string
	for _, path := range []string{"clusterroles", "namespaces/" + quorateNamespace + "/roles"} {
		var roles struct{ Items []rbacv1.ClusterRole }
		if _, err := api.read("/apis/rbac.authorization.k8s.io/v1/"+path, &roles); err != nil {
			return nil, err
		}
		for _, role := range roles.Items {
			if !strings.Contains(role.Name, "metacontroller") {
				continue
			}
			for _, rule := range role.Rules {
				for _, resource := range rule.Resources {
					resource, subresource, divided := strings.Cut(resource, "/")
					if group := rule.APIGroups[0]; group != "" {
						resource += "." + group
					}
					if divided {
						resource += "/" + subresource
					}
					for _, verb := range rule.Verbs {
						all = append(all, verb+" "+resource)
					}
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
