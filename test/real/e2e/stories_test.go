//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

const three = "  replicas: 3\n  version: 3.6.16\n"

// TestMembers: what becomes of members with volumes, told on one cluster.
func TestMembers(t *testing.T) {
	beside(t)
	c := newCluster(t, "  version: 3.6.16\n")
	c.tell("Create", (*cluster).isCreated)
	c.tell("BadSpecsAreRefused", (*cluster).refusesBadSpecs)
	c.tell("StrangerCalls", (*cluster).heedsNoStranger)
	c.tell("PauseAndResume", (*cluster).pausesAndResumes)
	c.tell("DeletedPodReturns", (*cluster).bringsADeletedPodBack)
	c.tell("LeaderKilledUnderLoad", (*cluster).survivesItsLeader)
	c.tell("AFencedMemberStaysAMember", (*cluster).fencesAMember)
	c.tell("LostClaimIsReplaced", (*cluster).replacesALostClaim)
	c.tell("PauseKeepsThePodOfAClaimThatIsBeingDeleted", (*cluster).pausesBesideAClaimThatGoes)
	c.tell("ScaleUpAndDown", (*cluster).scalesUpAndDown)
	c.tell("ATemplateChangeIsRolled", (*cluster).rolls)
	c.tell("AnAutoscalerChangesAPod", (*cluster).isScaledVertically)
	c.tell("EveryMemberIsReachedFromOutside", (*cluster).reachesEveryMember)
	c.tell("ARestartWaitsForItsWindow", (*cluster).waitsForItsWindow)
	c.tell("ABadChangeStopsAtItsFirstMember", (*cluster).stopsABadChange)
	c.tell("SteadyStateWritesNothing", (*cluster).restsInSilence)
	c.tell("DeleteCleansUp", (*cluster).leavesNothing)
}

func (c *cluster) isCreated() {
	out := c.asked("demo-0", "member", "list")
	assert.Equal(c.t, 3, strings.Count(out, "started"))

	c.writes().losesNothing()

	for _, pod := range c.pods() {
		assert.True(c.t, *pod.Spec.SecurityContext.RunAsNonRoot)
		assert.Equal(c.t, corev1.PodQOSBurstable, pod.Status.QOSClass)
	}
	row := regexp.MustCompile(`demo +3 +3 +3\.6\.16 .*Converged`)
	eventually(c.t, "kubectl get says it in a line", func() string {
		table := c.kube("get", "etcdcluster", name)
		c.t.Log("\n" + table)
		return while(!row.MatchString(table), table)
	})

	// The restricted profile of Pod Security accepts the pods.
	out, err := kubectl("", "label", "--dry-run=server", "--overwrite", "ns", c.ns,
		"pod-security.kubernetes.io/enforce=restricted")
	require.NoError(c.t, err)
	assert.NotContains(c.t, out, "violate")
}

func (c *cluster) refusesBadSpecs() {
	for spec, says := range map[string]string{
		"  version: v3.6.16":                                               "without a leading v",
		"  version: 3.4.30":                                                "3.5, 3.6 and 3.7",
		"  version: 3.5.25":                                                "3.5.26 or later",
		"  replicas: 10\n  version: 3.6.16":                                "less than or equal to 9",
		"  version: 3.6.16\n  storage: {size: 0}":                          "at least 512Mi",
		"  replicas: 0\n  version: 3.6.16\n  storage: {medium: Memory}":    "can't be paused",
		"  version: 3.6.16\n  options: {electionTimeout: 400ms}":           "at least 5 times",
		"  version: 3.6.16\n  options: {quotaBackendBytes: 2000000000}":    "has room for",
		"  version: 3.6.16\n  options: {autoCompaction: {retention: abc}}": "retention",
	} {
		assert.ErrorContains(c.t, c.tries(c.manifest(spec)), says, spec)
	}
	for patch, says := range map[string]string{
		`{"storage":{"medium":"Memory"}}`:                        "can't be changed",
		`{"storage":{"size":"100Mi"}}`:                           "can't shrink",
		`{"resources":{"limits":{"memory":"10Mi"}}}`:             "at least 32Mi",
		`{"additionalMetadata":{"labels":{"team":"two words"}}}`: "additionalMetadata.labels",
		`{"additionalMetadata":{"labels":{"two words":"team"}}}`: "in a label's key",
	} {
		assert.ErrorContains(c.t, c.edits(patch), says, patch)
	}
}

func (c *cluster) scalesUpAndDown() {
	w, clusterID, used := c.writes(), c.object().Status.ClusterID, c.ids()
	goes := func(to int) {
		before := c.ids()
		maps.Copy(used, before)
		c.kube("scale", "etcdcluster", name, fmt.Sprintf("--replicas=%d", to))
		c.converges(to)
		for member := range c.ids() {
			if _, stayed := before[member]; !stayed {
				assert.NotContains(c.t, used, member, "a name was used twice")
			}
		}
	}
	c.edit(`{"replicas":5}`) // and it is taken back
	eventually(c.t, "a member is added", func() string {
		ids := c.ids()
		return while(len(ids) == 3, fmt.Sprint(ids))
	})
	for _, to := range []int{3, 5, 1, 3} {
		goes(to)
	}
	w.losesNothing()
	assert.Equal(c.t, clusterID, c.object().Status.ClusterID)
	c.claims(3) // those of removed members are gone
}

func (c *cluster) pausesAndResumes() {
	c.writes().losesNothing()
	before, clusterID := c.ids(), c.object().Status.ClusterID
	c.stops()
	assert.Len(c.t, list[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc"), 3)

	c.edit(`{"replicas":3}`)
	c.converges(3)
	assert.Equal(c.t, before, c.ids())
	assert.Equal(c.t, clusterID, c.object().Status.ClusterID)
	c.remembers()
}

// pausesBesideAClaimThatGoes suspends first, so that both are seen at once: a voter whose claim goes would be
// succeeded.
func (c *cluster) pausesBesideAClaimThatGoes() {
	c.writes().losesNothing()
	member, others := c.follower()
	c.edit(`{"suspend":true}`)
	c.meets("etcdcluster/demo", "Suspended")
	c.meets("etcdcluster/demo", "Ready") // there is nothing to do
	c.deletes("pvc", member)
	c.edit(`{"replicas":0}`)
	c.meets("etcdcluster/demo", "Stalled") // nothing goes on before a person ends it
	assert.Len(c.t, c.pods(), 3)
	c.edit(`{"suspend":false}`)
	eventually(c.t, "all pods but "+member+" stopped", func() string {
		if pods := c.pods(); len(pods) != 1 || pods[0].Name != member || pods[0].DeletionTimestamp != nil {
			return fmt.Sprintf("%d pods", len(pods))
		}
		phase := c.object().Status.Rule
		return while(phase != "Pause", "STATUS "+phase)
	})
	assert.Len(c.t, list[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc"), 3, "the claim lives as long as its pod")

	c.edit(`{"replicas":3}`)
	c.converges(3)
	assert.NotContains(c.t, c.ids(), member, "it has been replaced")
	assert.Subset(c.t, slices.Collect(maps.Keys(c.ids())), others)
	c.remembers()
}

func (c *cluster) bringsADeletedPodBack() {
	w, before, pod := c.writes(), c.ids(), c.pods()[1]
	c.deletes("pods", pod.Name)
	c.another(pod)
	c.converges(3)
	assert.Equal(c.t, before, c.ids(), "the member is the same one")
	w.losesNothing()
}

func (c *cluster) replacesALostClaim() {
	w := c.writes()
	member, others := c.follower()
	c.deletes("pvc", member)
	c.deletes("pods", member)
	successor := c.succeeds(member, func() {})
	assert.ElementsMatch(c.t, append(others, successor), slices.Collect(maps.Keys(c.ids())),
		"the successor has a new name")
	w.losesNothing()
}

func (c *cluster) survivesItsLeader() {
	w, before := c.writes(), c.ids()
	leader := c.leader()
	pod, _ := get[corev1.Pod](c.t, c.ns, "pods", leader)
	c.kills(leader)
	c.another(*pod)
	c.converges(3)
	c.t.Logf("%s led, now %s does", leader, c.leader())
	assert.Equal(c.t, before, c.ids())
	w.losesNothing()
}

// leavesNothing deletes a cluster of which etcd is down for good: no image can be pulled, and two members are gone.
func (c *cluster) leavesNothing() {
	c.kills(podNames(c.pods()[:2])...)
	c.kube("delete", "etcdcluster", name)
	eventually(c.t, "nothing is left", func() string { return strings.Join(c.left(), " ") })
}

// left are the objects of the cluster that are there.
func (c *cluster) left() (left []string) {
	for _, kind := range []string{"pods", "pvc", "svc", "pdb", "cm", "secrets", "netpol"} {
		for _, o := range list[metav1.PartialObjectMetadata](c.t, c.ns, kind) {
			if o.Labels["etcd.quorate.dev/cluster"] == name {
				left = append(left, kind+"/"+o.Name)
			}
		}
	}
	return left
}

// uids are the pods' UIDs by name.
func (c *cluster) uids() map[string]types.UID {
	c.t.Helper()
	all := map[string]types.UID{}
	for _, pod := range c.pods() {
		all[pod.Name] = pod.UID
	}
	return all
}

// versions waits until every member has said which one it runs, and returns these by name.
func (c *cluster) versions() map[string]string {
	c.t.Helper()
	var all map[string]string
	eventually(c.t, "every member has said its version", func() string {
		all = map[string]string{}
		for _, m := range c.object().Status.Members {
			if m.Version == "" {
				return m.Name + " has not"
			}
			all[m.Name] = m.Version
		}
		return ""
	})
	return all
}

// decides waits until the status has this rule as its phase, and words in its message, which it returns.
func (c *cluster) decides(rule, words string) (message string) {
	c.t.Helper()
	eventually(c.t, rule+": "+words, func() string {
		o := c.object()
		if ready := meta.FindStatusCondition(o.Status.Conditions, v1beta1.Ready); ready != nil {
			message = ready.Message
		}
		if o.Status.ObservedGeneration != o.Generation || o.Status.Rule != rule || !strings.Contains(message, words) {
			return fmt.Sprintf("%s: %s", o.Status.Rule, message)
		}
		return ""
	})
	return message
}

func (c *cluster) rolls() {
	w := c.writes()
	before, ids := c.uids(), c.ids()

	c.edit(`{"resources":{"requests":{"cpu":"55m"}},"options":{"extraArgs":{"max-txn-ops":"200"}}}`)
	took := c.converges(3)
	w.losesNothing()
	assert.Equal(c.t, ids, c.ids(), "restarted, not replaced")
	for name, uid := range c.uids() {
		assert.NotEqual(c.t, before[name], uid)
	}
	assert.Equal(c.t, "55m", c.pods()[0].Spec.Containers[0].Resources.Requests.Cpu().String())
	c.t.Logf("three members were restarted in %.1f s; longest stall of a writer: %d ms", took.Seconds(),
		w.stalled().Milliseconds())
}

func (c *cluster) waitsForItsWindow() {
	w := c.writes()
	before := c.uids()
	daily := func(at time.Time) string {
		return fmt.Sprintf(`{"windows":[{"schedule":"%d %d * * *","duration":"1h"}]}`, at.Minute(), at.Hour())
	}
	later := time.Now().UTC().Add(12 * time.Hour).Truncate(time.Minute)

	c.edit(`{"maintenance":` + daily(later) + `,"resources":{"requests":{"cpu":"60m"}}}`)
	c.decides("WaitForWindow", "that opens at "+later.Format(time.RFC3339)+" to restart demo-")
	assert.True(c.t, meta.IsStatusConditionTrue(c.object().Status.Conditions, v1beta1.Ready),
		"it serves, and no tool waits for half a day")
	assert.Equal(c.t, before, c.uids(), "no member was restarted")

	c.edit(`{"maintenance":` + daily(time.Now().UTC().Add(-time.Minute)) + `}`)
	c.converges(3)
	for name, uid := range c.uids() {
		assert.NotEqual(c.t, before[name], uid, "the window is open")
	}
	c.edit(`{"maintenance":null}`)
	c.converges(3)
	w.losesNothing()
}

func (c *cluster) stopsABadChange() {
	w := c.writes()
	before := c.uids()

	c.edit(`{"nodeSelector":{"kubernetes.io/os":"plan9"}}`)
	c.decides("WaitForMembers", "no node accepts its pod: 0/")
	c.edit(`{"nodeSelector":null}`)
	c.converges(3)
	untouched := 0
	for name, uid := range c.uids() {
		if before[name] == uid {
			untouched++
		}
	}
	assert.Equal(c.t, 2, untouched, "no other was restarted")
	w.losesNothing()
}

func TestUpgradesAndDowngrades(t *testing.T) {
	beside(t)
	c := newCluster(t, "  replicas: 3\n  version: 3.5.35\n")
	c.converges(3)
	w := c.writes()
	ids := c.ids()

	c.edit(`{"version":"3.7.3"}`)
	c.decides("Upgrade", "3.5.35 -> 3.6.16 -> 3.7.3")
	for _, version := range c.versions() {
		require.Equal(t, "3.5.35", version)
	}

	steps := []struct{ version, patch string }{
		{"3.7.3", `{"upgradePolicy":"Step"}`},
		{"3.6.16", `{"version":"3.6.16"}`},
		{"3.5.35", `{"version":"3.5.35"}`},
	}
	if !*longFlag {
		steps = steps[:1] // TestMemory goes back from 3.7
	}
	for _, step := range steps {
		c.edit(step.patch)
		took := c.converges(3)
		for _, version := range c.versions() {
			assert.Equal(t, step.version, version)
		}
		t.Logf("at %s after %.1f s; longest stall so far %d ms, %d writes repeated", step.version, took.Seconds(),
			w.stalled().Milliseconds(), w.retries())
	}
	assert.Equal(t, ids, c.ids(), "restarted, not replaced")
	w.losesNothing()
}

// TestMemory: what becomes of members without volumes, told on one cluster. That a lost pod is replaced is in
// TestOnTheHostsNetwork, and that there are no claims in TestSamples/memory.
func TestMemory(t *testing.T) {
	beside(t)
	c := newCluster(t, three+"  storage: {medium: Memory, size: 512Mi}\n")
	c.tell("WritingOverKeysFillsNoMemory", (*cluster).isWrittenOver)
	c.tell("AnImageIsExchangedInPlace", (*cluster).exchangesImagesInPlace)
	c.tell("AnEmptiedMemoryUnderLoad", (*cluster).forgetsNothing)
	c.tell("ALostMemoryQuorumComesBackFromASurvivor", (*cluster).comesBackFromALastMember)
	c.tell("ALostMemoryClusterIsRecreated", (*cluster).isRecreated)
}

// isWrittenOver writes more than the volumes hold over one key, and has all but the last compacted.
func (c *cluster) isWrittenOver() {
	started, client := c.lives(), c.client()
	for range 40 {
		require.NoError(c.t, overwrite(c.t, client, 40))
		last, err := answered(c.t, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return client.Get(ctx, "large", clientv3.WithCountOnly())
		})
		require.NoError(c.t, err)
		compacts(c.t, client, last.Header.Revision)
	}
	c.converges(3)
	assert.Equal(c.t, started, c.lives(), "no member has died of a full disk")
}

func (c *cluster) exchangesImagesInPlace() {
	w, before := c.writes(), c.uids()
	for _, version := range []string{"3.7.3", "3.6.16"} {
		c.edit(`{"version":"` + version + `"}`)
		took := c.converges(3)
		assert.Equal(c.t, before, c.uids(), "the pods stay, and with them what is in their memory")
		for _, runs := range c.versions() {
			assert.Equal(c.t, version, runs)
		}
		c.t.Logf("to %s on Memory in %.1f s", version, took.Seconds())
	}
	w.losesNothing()

	// An image that is not there stops at the first member; taken back, that one comes back, with its data.
	c.edit(`{"image":{"repository":"nowhere.invalid/etcd"}}`)
	c.decides("WaitForMembers", "its image can't be pulled: ")
	c.edit(`{"image":{"repository":"gcr.io/etcd-development/etcd"}}`)
	c.converges(3)
	assert.Equal(c.t, before, c.uids())
}

func (c *cluster) succeedsItsOnlyMember() {
	w, before := c.writes(), c.pods()[0].Name
	c.edit(`{"resources":{"requests":{"cpu":"55m"}}}`)
	took := c.converges(1)
	assert.NotContains(c.t, c.ids(), before)
	w.losesNothing()
	c.t.Logf("one member was succeeded in %.1f s", took.Seconds())
	c.claims(1)
}

// TestEveryMinorVersion: clusters begin and grow with the versions that TestUpgradesAndDowngrades and TestMemory only
// come to, or from.
func TestEveryMinorVersion(t *testing.T) {
	beside(t)
	for _, version := range []string{"3.5.35", "3.7.3"} {
		t.Run(version, func(t *testing.T) {
			c := newCluster(t, "  replicas: 1\n  version: "+version+"\n")
			c.converges(1)
			c.edit(`{"replicas":2}`)
			c.converges(2)
			for member, runs := range c.versions() {
				assert.Equal(t, version, runs, member)
			}
			assert.True(t, meta.IsStatusConditionTrue(c.object().Status.Conditions, v1beta1.Advised),
				"two voters deserve a word")
		})
	}
}
