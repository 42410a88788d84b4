//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// TestUpgradeOfQuorate: a new release takes over from the one before it under running clusters of all kinds, by the
// command that docs/how-to/upgrade.md has, then the old one takes over again, and then the new one. No member is
// restarted, none is another one afterwards, and no write is lost.
func TestUpgradeOfQuorate(t *testing.T) {
	alone(t)
	before, now := previousRelease(t), thisRelease(t)
	before.install(t)

	running := map[string]*cluster{}
	for kind, spec := range map[string]string{
		"persistent": three,
		"memory":     three + "  storage: {medium: Memory, size: 128Mi}\n",
		"auth": "  replicas: 1\n  version: 3.6.16\n  auth: {enabled: true, roles: [{name: all, permissions: " +
			"[{access: ReadWrite, prefix: \"\"}]}], " +
			"users: [{name: client, roles: [all]}]}\n",
		"plain":     "  replicas: 1\n  version: 3.6.16\n  tls: {mode: Disabled}\n",
		"scheduled": "  replicas: 1\n  version: 3.6.16\n  storage: {size: 128Mi}\n",
		"paused":    "  replicas: 1\n  version: 3.6.16\n",
	} {
		running[kind] = namespaced(t, "e2e-upgrade-"+kind)
		running[kind].apply(spec)
	}
	for _, c := range running {
		c.converges(int(*c.object().Spec.Replicas))
	}
	eventually(t, "users and roles are applied", func() string { return running["auth"].authorized("Enabled") })
	paused, scheduled := running["paused"], running["scheduled"]
	paused.put("from before")
	paused.edit(`{"replicas":0}`)
	scheduled.put("first")
	bucket := store(t)
	bucket.credentials(scheduled)
	scheduled.schedules("often", `schedule: "* * * * *", retention: {last: 2}`,
		"deletionPolicy: Retain, store: "+bucket.yaml(scheduled.ns))

	writers := map[string]*writer{
		"persistent": running["persistent"].writes(),
		"memory":     running["memory"].writes(),
		"auth":       running["auth"].writes(),
		"plain":      running["plain"].writesWith(running["plain"].clientWith(nil, running["plain"].service()), "key"),
	}
	// What these say is so anyway. The release before restarts all members for such words, unless it is told that
	// they are no others.
	const words = `,"tolerations":[],"nodeSelector":{},"options":{"snapshotCount":10000,"autoCompaction":{"retention":"60m"}}`
	now.takesOver(t, running, words)
	before.takesOver(t, running, "")
	now.takesOver(t, running, "")

	for kind, w := range writers {
		t.Log(kind)
		w.losesNothing()
	}
	paused.edit(`{"replicas":1}`)
	paused.converges(1)
	assert.Equal(t, "from before", paused.value())
	scheduled.put("after the upgrade")
	revision := scheduled.revision()
	eventually(t, "what was written after the upgrade is in a snapshot by the schedule", func() string {
		s, all := scheduled.schedule("often")
		for _, snapshot := range all {
			if snapshot.Status.Phase == v1alpha1.SnapshotSucceeded && snapshot.Status.Revision >= revision {
				return ""
			}
		}
		return fmt.Sprintf("%d snapshots; %s", len(all), s.Status.Message)
	})
}

// takesOver installs the release while the clusters run, and checks that it only looks after them. Once it has
// answered about all pods, the specs also say these words, which have no effect.
func (r release) takesOver(t *testing.T, running map[string]*cluster, words string) {
	t.Helper()
	for _, c := range running {
		c.rests()
	}
	lives, ids := map[string]map[string]string{}, map[string]map[string]string{}
	for kind, c := range running {
		lives[kind], ids[kind] = c.lives(), c.ids()
	}
	require.NoError(t, noViolations(), "those who leave would take what they have counted with them")
	begin := time.Now()
	r.install(t)
	t.Logf("%s runs after %.1f s", r.name, time.Since(begin).Seconds())

	said := []string{""}
	if words != "" {
		said = append(said, words)
	}
	for _, words := range said {
		r.answers(t, running, words)
		for kind, c := range running {
			assert.Equal(t, lives[kind], c.lives(), "%s: a pod was restarted or replaced by %s", kind, r.name)
			assert.Equal(t, ids[kind], c.ids(), "%s: a member is another one", kind)
		}
	}
	t.Log("\n" + kube(t, "get", "etcdcluster", "-A"))
}

// answers has the specs say these words, with a change that only the release that runs now can answer, and that
// restarts no member; and waits until it has.
func (r release) answers(t *testing.T, running map[string]*cluster, words string) {
	t.Helper()
	word := fmt.Sprint(time.Now().UnixNano())
	for _, c := range running {
		c.edit(`{"additionalMetadata":{"annotations":{"e2e/answered":"` + word + `"}}` + words + `}`)
	}
	for kind, c := range running {
		c.rests()
		eventually(t, kind+": "+r.name+" has answered about every pod", func() string {
			for _, pod := range c.pods() {
				if pod.Annotations["e2e/answered"] != word {
					return "not about " + pod.Name
				}
			}
			return ""
		})
	}
}

// rests waits until nothing is left to do for the newest spec: all members serve, or are stopped because the spec
// says so.
func (c *cluster) rests() {
	c.t.Helper()
	eventually(c.t, c.ns+" rests", func() string {
		o := c.object()
		if n := *o.Spec.Replicas; n > 0 {
			return c.notConverged(int(n))
		}
		return while(o.Status.ObservedGeneration != o.Generation || o.Status.Rule != "Pause" || len(c.pods()) > 0,
			fmt.Sprintf("%s, %d pods", o.Status.Rule, len(c.pods())))
	})
}

// lives tells one life of a pod and of its containers from the next, by pod.
func (c *cluster) lives() map[string]string {
	c.t.Helper()
	all := map[string]string{}
	for _, pod := range c.pods() {
		life := []string{string(pod.UID)}
		for _, s := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			life = append(life, fmt.Sprintf("%s %s restarted %d times", s.Name, s.ContainerID, s.RestartCount))
		}
		all[pod.Name] = strings.Join(life, ", ")
	}
	return all
}

// value of the key that put writes.
func (c *cluster) value() string {
	c.t.Helper()
	r := c.reads("key")
	require.NotEmpty(c.t, r.Kvs, "the key is gone")
	return string(r.Kvs[0].Value)
}
