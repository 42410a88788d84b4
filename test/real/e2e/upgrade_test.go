//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// TestUpgradeOfQuorate: a new release takes over from the one before it under running clusters of all kinds, by the
// command that docs/how-to/upgrade.md has, then the old one takes over again, and then the new one. No member is
// restarted, none is another one afterwards, and no write is lost.
func TestUpgradeOfQuorate(t *testing.T) {
	before, now := previousRelease(t), thisRelease(t)
	before.install(t)

	running := map[string]*cluster{}
	for kind, spec := range map[string]string{
		"persistent": three,
		"memory":     three + "  storage: {medium: Memory, size: 512Mi}\n",
		"auth": "  replicas: 1\n  version: 3.6.16\n  auth: {enabled: true, roles: [{name: all, permissions: " +
			"[{access: ReadWrite, prefix: \"\"}]}], " +
			"users: [{name: client, roles: [all]}]}\n",
		"plain":     "  replicas: 1\n  version: 3.6.16\n  tls: {mode: Disabled}\n",
		"scheduled": "  replicas: 1\n  version: 3.6.16\n  storage: {size: 1Gi}\n",
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
	now.takesOver(t, running)
	before.takesOver(t, running)
	now.takesOver(t, running)

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
			if snapshot.Status.Phase == v1beta1.SnapshotSucceeded && snapshot.Status.Revision >= revision {
				return ""
			}
		}
		return fmt.Sprintf("%d snapshots; %s", len(all), s.Status.Message)
	})
}

// takesOver installs the release while the clusters run, and checks that it only looks after them.
func (r release) takesOver(t *testing.T, running map[string]*cluster) {
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

	r.answers(t, running)
	for kind, c := range running {
		assert.Equal(t, lives[kind], c.lives(), "%s: a pod was restarted or replaced by %s", kind, r.name)
		assert.Equal(t, ids[kind], c.ids(), "%s: a member is another one", kind)
	}
	t.Log("\n" + kube(t, "get", "etcdcluster", "-A"))
}

// answers makes a change that only the release that runs now can answer, and that restarts no member; and waits
// until it has answered.
func (r release) answers(t *testing.T, running map[string]*cluster) {
	t.Helper()
	word := fmt.Sprint(time.Now().UnixNano())
	for _, c := range running {
		c.edit(`{"additionalMetadata":{"annotations":{"e2e/answered":"` + word + `"}}}`)
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

// release of Quorate: what a user who installs it has of it.
type release struct{ name, binary, image string }

// thisRelease is what `make image` has built, and the Makefile has loaded.
func thisRelease(t *testing.T) release {
	t.Helper()
	binary, err := filepath.Abs("../../../bin/quorate")
	require.NoError(t, err)
	manifest, err := os.ReadFile("../../../manifests/base/deployment.yaml")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(manifest), "image: ")
	image, _, _ := strings.Cut(after, "\n")
	return release{name: "this release", binary: binary, image: image}
}

// previousRelease is built as its own Makefile builds it, from the commit that testdata/previous-release names, and
// loaded.
func previousRelease(t *testing.T) release {
	t.Helper()
	r := release{name: "the previous release", image: "ghcr.io/quorate-dev/quorate:previous"}
	dir := t.TempDir()
	out, err := exec.Command("../../../test/tools/previous.sh", dir).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 3 {
		t.Skip(string(out))
	}
	require.NoError(t, err, string(out))
	begin := time.Now()
	build := exec.Command("make", "-s", "-C", dir, "image", "VERSION=previous", "COMMIT=previous", "IMAGE="+r.image)
	// those of the make that runs this
	build.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") })
	out, err = build.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Logf("%s was built in %.0f s", r.name, time.Since(begin).Seconds())
	out, err = exec.Command("go", "run", "-C", "../lab", ".", "load",
		filepath.Join(dir, "bin/quorate.tar")).CombinedOutput()
	require.NoError(t, err, string(out))
	r.binary = filepath.Join(dir, "bin/quorate")
	return r
}

// install does what docs/how-to/install.md says the first time and docs/how-to/upgrade.md later, and
// waits until no other release answers.
func (r release) install(t *testing.T) {
	t.Helper()
	args := []string{"install", "--metacontroller-namespace=metacontroller",
		"--metacontroller-version=" + os.Getenv("QUORATE_METACONTROLLER_VERSION"), "--image=" + r.image}
	kept := kube(t, "-n", "quorate-system", "get", "secret", "quorate-hooks", "-o", "yaml", "--ignore-not-found")
	if kept != "" {
		args = append(args, "--keep", "-")
	}
	if read(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/certificates.cert-manager.io", &struct{}{}) {
		args = append(args, "--cert-manager")
	}
	prints := exec.Command(r.binary, args...)
	prints.Stdin = strings.NewReader(kept)
	var manifests, errs bytes.Buffer
	prints.Stdout, prints.Stderr = &manifests, &errs
	require.NoError(t, prints.Run(), errs.String())
	r.leavesNoController(t, manifests.String())
	_, err := kubectl(manifests.String(), "apply", "--server-side", "-f", "-")
	require.NoError(t, err)

	// In the lab every decision is checked against the rules of safety. The field is another manager's, so the next
	// release keeps it.
	kube(t, "-n", "quorate-system", "set", "env", "deployment/quorate", "QUORATE_VERIFY=1")
	kube(t, "-n", "quorate-system", "rollout", "status", "deployment/quorate")
	// A pod that is being stopped answers calls too, to the end of its grace.
	eventually(t, "only "+r.name+" answers", func() string {
		for _, pod := range podsOfQuorate(t) {
			if image := pod.Spec.Containers[0].Image; image != r.image {
				return pod.Name + " with " + image + " is there still"
			}
		}
		return ""
	})
	r.tellsItsVersion(t)
	if kept == "" && strings.HasPrefix(os.Getenv("QUORATE_METACONTROLLER_VERSION"), "1.") { // it reads once what it trusts
		kube(t, "-n", "metacontroller", "rollout", "restart", "statefulset/metacontroller")
		kube(t, "-n", "metacontroller", "rollout", "status", "statefulset/metacontroller")
	}
}

// leavesNoController deletes the CompositeControllers of a newer release that this one does not have: Metacontroller
// would ask for what it has no right to any more.
func (r release) leavesNoController(t *testing.T, manifests string) {
	t.Helper()
	for name := range strings.FieldsSeq(kube(t, "get", "crd", "compositecontrollers.metacontroller.k8s.io",
		"--ignore-not-found", "-o", "name")) {
		require.NotEmpty(t, name)
		for controller := range strings.FieldsSeq(kube(t, "get", "compositecontrollers", "-o",
			"jsonpath={.items[*].metadata.name}")) {
			if !strings.Contains(manifests, "name: "+controller+"\n") {
				kube(t, "delete", "compositecontroller", controller)
			}
		}
	}
}

// tellsItsVersion: what runs in the pods says that it is the binary that made the manifests.
func (r release) tellsItsVersion(t *testing.T) {
	t.Helper()
	out, err := exec.Command(r.binary, "version").Output()
	require.NoError(t, err)
	m := regexp.MustCompile(`^quorate (\S+) \(commit (\S+), go1\.`).FindSubmatch(out)
	require.NotNil(t, m, "%s", out)
	all, err := quorateMetrics()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for pod, metrics := range all {
		require.Contains(t, metrics, fmt.Sprintf("\nquorate_build_info{commit=%q,version=%q} 1\n", m[2], m[1]), pod)
	}
	t.Logf("%s: %s", r.name, out)
}
