//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

const three = "  replicas: 3\n  version: 3.6.16\n"

func TestCreateThree(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "  version: 3.6.16\n")
	c.converges(3, 60*time.Second)

	out, err := c.etcdctl("demo-0", "member", "list")
	require.NoError(t, err, "etcdctl must work without flags")
	assert.Equal(t, 3, strings.Count(out, "started"))

	c.writes().losesNothing()

	for _, pod := range c.pods() {
		assert.True(t, *pod.Spec.SecurityContext.RunAsNonRoot)
		assert.Equal(t, corev1.PodQOSBurstable, pod.Status.QOSClass)
	}
	row := regexp.MustCompile(`demo .*3/3 .*3\.6\.16 .*Converged`)
	eventually(t, 30*time.Second, "kubectl get says it in a line", func() string {
		table := kube(t, "-n", c.ns, "get", "etcdcluster", name)
		t.Log("\n" + table)
		if !row.MatchString(table) {
			return table
		}
		return ""
	})

	// The restricted profile of Pod Security accepts the pods.
	out, err = kubectl("", "label", "--dry-run=server", "--overwrite", "ns", c.ns, "pod-security.kubernetes.io/enforce=restricted")
	require.NoError(t, err)
	assert.NotContains(t, out, "violate")
}

func TestEveryMinorVersion(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"3.5.35", "3.7.3"} {
		t.Run(version, func(t *testing.T) {
			c := newCluster(t, "  replicas: 1\n  version: "+version+"\n")
			c.converges(1, 60*time.Second)
			c.edit(`{"replicas":2}`)
			c.converges(2, 60*time.Second)
			for member, runs := range c.versions() {
				assert.Equal(t, version, runs, member)
			}
			assert.True(t, meta.IsStatusConditionTrue(c.object().Status.Conditions, v1alpha1.Advised), "two voters deserve a word")
		})
	}
}

func TestScaleUpAndDown(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	c.converges(3, 60*time.Second)
	w := c.writes()
	kube(t, "-n", c.ns, "scale", "etcdcluster", name, "--replicas=5")
	c.converges(5, 120*time.Second)
	clusterID := c.object().Status.ClusterID
	kube(t, "-n", c.ns, "scale", "etcdcluster", name, "--replicas=1")
	c.converges(1, 120*time.Second)
	kube(t, "-n", c.ns, "scale", "etcdcluster", name, "--replicas=3")
	c.converges(3, 120*time.Second)
	w.losesNothing()

	status := c.object().Status
	assert.Equal(t, clusterID, status.ClusterID)
	c.claims(3) // those of removed members are gone
	for _, m := range status.Members[1:] {
		assert.NotContains(t, []string{"demo-1", "demo-2", "demo-3", "demo-4"}, m.Name, "a name was used twice")
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	c.converges(3, 60*time.Second)
	c.writes().losesNothing()
	before := c.ids()
	clusterID := c.object().Status.ClusterID

	c.edit(`{"replicas":0}`)
	eventually(t, 60*time.Second, "all pods stopped", func() string {
		if n := len(c.pods()); n > 0 {
			return fmt.Sprintf("%d pods", n)
		}
		return ""
	})
	assert.Len(t, list[corev1.PersistentVolumeClaim](t, c.ns, "pvc"), 3)

	c.edit(`{"replicas":3}`)
	c.converges(3, 60*time.Second)
	assert.Equal(t, before, c.ids())
	assert.Equal(t, clusterID, c.object().Status.ClusterID)
	out, err := c.etcdctl("demo-0", "get", "key-first")
	require.NoError(t, err)
	assert.Contains(t, out, "value of key-first")
}

func TestGrowthTakenBackUsesNoNameTwice(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	c.converges(3, 60*time.Second)
	c.edit(`{"replicas":5}`)
	eventually(t, 60*time.Second, "demo-3 is listed", func() string {
		if c.ids()["demo-3"] == "" {
			return fmt.Sprint(c.ids())
		}
		return ""
	})
	c.edit(`{"replicas":3}`)
	c.converges(3, 90*time.Second)
	gone := slices.DeleteFunc([]string{"demo-0", "demo-1", "demo-2", "demo-3"}, func(member string) bool { return c.ids()[member] != "" })
	require.Len(t, gone, 1, "demo-3, unless it was the leader by then or others did not serve")
	c.edit(`{"replicas":5}`)
	c.converges(5, 120*time.Second)
	assert.NotContains(t, c.ids(), gone[0], "its name has been used")
}

func TestPauseKeepsThePodOfAClaimThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	c.converges(3, 60*time.Second)
	c.writes().losesNothing()
	c.edit(`{"suspend":true}`) // so that both are seen at once: a voter whose claim goes would be succeeded first
	kube(t, "-n", c.ns, "wait", "--for=condition=Suspended", "etcdcluster/"+name, "--timeout=90s")
	kube(t, "-n", c.ns, "delete", "pvc", "demo-1", "--wait=false")
	c.edit(`{"suspend":false,"replicas":0}`)
	eventually(t, 60*time.Second, "all pods but demo-1 stopped", func() string {
		if pods := c.pods(); len(pods) != 1 || pods[0].Name != "demo-1" || pods[0].DeletionTimestamp != nil {
			return fmt.Sprintf("%d pods", len(pods))
		}
		if phase := c.object().Status.Phase; phase != "Pause" {
			return "STATUS " + phase
		}
		return ""
	})
	assert.Len(t, list[corev1.PersistentVolumeClaim](t, c.ns, "pvc"), 3, "the claim lives as long as its pod")

	c.edit(`{"replicas":3}`)
	c.converges(3, 120*time.Second)
	assert.NotContains(t, c.ids(), "demo-1", "it has been replaced")
	out, err := c.etcdctl("demo-0", "get", "key-first")
	require.NoError(t, err)
	assert.Contains(t, out, "value of key-first")
}

func TestDeletedPodReturns(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	c.converges(3, 60*time.Second)
	w := c.writes()
	before := c.ids()
	uid := c.pods()[1].UID
	kube(t, "-n", c.ns, "delete", "pod", "demo-1", "--wait=false")
	eventually(t, 60*time.Second, "a new pod serves", func() string {
		pod, found := get[corev1.Pod](t, c.ns, "pods", "demo-1")
		if !found || pod.UID == uid {
			return "the old pod"
		}
		return c.notConverged(3)
	})
	assert.Equal(t, before, c.ids(), "the member is the same one")
	w.losesNothing()
}

func TestLostClaimIsReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	c.converges(3, 60*time.Second)
	w := c.writes()
	kube(t, "-n", c.ns, "delete", "pvc", "demo-1", "--wait=false")
	kube(t, "-n", c.ns, "delete", "pod", "demo-1", "--wait=false")
	eventually(t, 120*time.Second, "the member was replaced", func() string {
		if _, there := c.ids()["demo-1"]; there {
			return "demo-1 is still a member"
		}
		return c.notConverged(3)
	})
	ids := c.ids()
	delete(ids, "demo-0")
	delete(ids, "demo-2")
	assert.Len(t, ids, 1, "the successor has a new name")
	w.losesNothing()
}

func TestLeaderKilledUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	c.converges(3, 60*time.Second)
	w := c.writes()
	leader := c.leader()
	kube(t, "-n", c.ns, "delete", "pod", leader, "--grace-period=0", "--force", "--wait=false")
	eventually(t, 60*time.Second, "another leads", func() string {
		if now := c.object().Status.Leader; now == leader || now == "" {
			return "the status says " + now
		}
		return ""
	})
	c.converges(3, 60*time.Second)
	w.losesNothing()
}

func TestMemory(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three+"  storage: {medium: Memory, size: 128Mi}\n")
	c.converges(3, 60*time.Second)
	assert.Empty(t, list[corev1.PersistentVolumeClaim](t, c.ns, "pvc"))
	w := c.writes()
	kube(t, "-n", c.ns, "delete", "pod", "demo-0", "--wait=false")
	eventually(t, 120*time.Second, "the lost member was replaced", func() string {
		if _, there := c.ids()["demo-0"]; there {
			return "demo-0 is still a member"
		}
		return c.notConverged(3)
	})
	w.losesNothing()
}

func TestBadSpecsAreRefused(t *testing.T) {
	t.Parallel()
	c := inNamespace(t)
	for spec, says := range map[string]string{
		"  version: v3.6.16":                                               "without a leading v",
		"  version: 3.4.30":                                                "3.5, 3.6 and 3.7",
		"  version: 3.5.25":                                                "3.5.26 or later",
		"  replicas: 10\n  version: 3.6.16":                                "less than or equal to 9",
		"  version: 3.6.16\n  storage: {size: 0}":                          "at least 128Mi",
		"  replicas: 0\n  version: 3.6.16\n  storage: {medium: Memory}":    "can't be paused",
		"  version: 3.6.16\n  options: {electionTimeout: 400}":             "at least 5 times",
		"  version: 3.6.16\n  options: {quotaBackendBytes: 2000000000}":    "95 %",
		"  version: 3.6.16\n  options: {autoCompaction: {retention: abc}}": "duration",
	} {
		_, err := kubectl(c.manifest(spec), "apply", "-f", "-")
		if assert.Error(t, err, spec) {
			assert.Contains(t, err.Error(), says)
		}
	}

	c.apply("  replicas: 1\n  version: 3.6.16\n")
	for patch, says := range map[string]string{
		`{"storage":{"medium":"Memory"}}`: "can't be changed",
		`{"storage":{"size":"100Mi"}}`:    "can't shrink",
	} {
		_, err := kubectl("", "-n", c.ns, "patch", "etcdcluster", name, "--type=merge", "-p", `{"spec":`+patch+`}`)
		if assert.Error(t, err, patch) {
			assert.Contains(t, err.Error(), says)
		}
	}
	c.converges(1, 60*time.Second)
}

func TestDeleteCleansUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	c.converges(3, 60*time.Second)
	// Etcd is down for good: no image can be pulled, and two members are gone.
	c.deleteEtcd()
	kube(t, "-n", c.ns, "delete", "etcdcluster", name, "--timeout=60s")
	eventually(t, 90*time.Second, "nothing is left", func() string {
		var left []string
		for _, kind := range []string{"pods", "pvc", "svc", "pdb", "cm"} {
			for _, o := range list[metav1.PartialObjectMetadata](t, c.ns, kind) {
				if o.Labels["etcd.quorate.dev/cluster"] == name {
					left = append(left, kind+"/"+o.Name)
				}
			}
		}
		return strings.Join(left, " ")
	})
}

// deleteEtcd takes the quorum away just before the cluster is deleted.
func (c *cluster) deleteEtcd() {
	kube(c.t, "-n", c.ns, "delete", "pod", "demo-0", "demo-1", "--grace-period=0", "--force", "--wait=false")
}

func TestSuspendHoldsEverythingBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "  replicas: 1\n  version: 3.6.16\n")
	c.converges(1, 60*time.Second)
	c.edit(`{"suspend":true}`)
	c.meets("etcdcluster/demo", "Suspended")
	c.meets("etcdcluster/demo", "Ready") // there is nothing to do
	c.edit(`{"replicas":3}`)
	c.meets("etcdcluster/demo", "Stalled") // nothing goes on before a person ends it
	eventually(t, 30*time.Second, "the condition shouts", func() string {
		if !meta.IsStatusConditionTrue(c.object().Status.Conditions, v1alpha1.Suspended) {
			return "not suspended"
		}
		return ""
	})
	assert.Len(t, c.pods(), 1)
	c.edit(`{"suspend":false}`)
	c.converges(3, 120*time.Second)
}
