//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// typing is a folder with kubectl-quorate, and what completes its lines, as docs/reference/cli.md says; it is on the
// PATH of a program that is run in it.
func typing(t *testing.T) func(program string, args ...string) (out, errs string, code int) {
	t.Helper()
	dir := t.TempDir()
	binary, err := filepath.Abs("../../../bin/quorate") // as the image has it
	require.NoError(t, err)
	require.NoError(t, os.Symlink(binary, filepath.Join(dir, "kubectl-quorate")))
	require.NoError(t, os.Symlink("kubectl-quorate", filepath.Join(dir, "kubectl_complete-quorate")))
	path := strings.Join([]string{dir, filepath.Join(os.Getenv("QUORATE_LAB_BIN"), "etcd-3.6.16"), os.Getenv("PATH")},
		string(os.PathListSeparator))
	return func(program string, args ...string) (string, string, int) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+path, "TMPDIR="+dir)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); err != nil {
			require.ErrorAs(t, err, &exit, "%s did not run", program)
		}
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
}

// plugin is kubectl quorate.
func plugin(t *testing.T) func(args ...string) (out, errs string, code int) {
	t.Helper()
	types := typing(t)
	return func(args ...string) (string, string, int) {
		return types("kubectl", append([]string{"quorate"}, args...)...)
	}
}

// doing is kubectl quorate in the cluster's namespace, of lines that work.
func (c *cluster) doing() func(args ...string) string {
	quorate := plugin(c.t)
	return func(args ...string) string {
		c.t.Helper()
		out, errs, code := quorate(append(args, "-n", c.ns)...)
		require.Zero(c.t, code, errs)
		c.t.Logf("kubectl quorate %s\n%s", strings.Join(args, " "), out)
		return out
	}
}

// answersByPlugin: what a person asks with kubectl quorate is answered by the real etcd, and by the hooks without
// their server.
func (c *cluster) answersByPlugin() {
	quorate := plugin(c.t)
	does := c.doing()

	// status asks the members themselves: the lag is in no EtcdCluster.
	var screen string
	eventually(c.t, "status and the object name the same leader", func() string {
		screen = does("status")
		if line := "demo in namespace " + c.ns + ": 3/3 ready, etcd 3.6.16, " + c.object().Status.Leader +
			" leads"; !strings.Contains(screen, line) {
			return "no line " + line
		}
		if strings.Contains(screen, "can't be reached") {
			return "no way to etcd"
		}
		for _, member := range []string{"demo-0", "demo-1", "demo-2"} {
			fields := strings.Fields(lineWith(screen, "  "+member))
			require.Greater(c.t, len(fields), 5, screen)
			if _, err := strconv.Atoi(fields[len(fields)-2]); err != nil {
				return "the lag of " + member + " is not known"
			}
		}
		return ""
	})

	// explain comes to the decision of the server, and changes nothing.
	before := c.object()
	var explained string
	eventually(c.t, "explain finds the cluster at rest", func() string {
		explained = does("explain", name)
		return while(!strings.Contains(explained, "Converged applies."), explained)
	})
	assert.Contains(c.t, explained, "breaks none of the rules of safety")
	assert.Contains(c.t, does("history", name), "Converged: serving as the spec says")
	for _, verb := range []string{"make", "change", "delete"} {
		assert.NotContains(c.t, explained, "  "+verb+"  ")
	}
	now := c.object() // the status may have changed: Quorate goes on meanwhile
	assert.Equal(c.t, before.Generation, now.Generation)
	assert.Equal(c.t, before.Annotations, now.Annotations)

	c.showsItselfToPrograms(does)
	c.leadsEtcdctl()
	c.standsStill(does)
	c.movesTheLeader(quorate, does)
	c.asksForDefragmentation(does)
	c.reports(does)

	_, errs, code := quorate("status", "missing", "-n", c.ns)
	assert.Equal(c.t, 1, code)
	assert.Contains(c.t, errs, "EtcdCluster missing does not exist in namespace "+c.ns)
	_, _, code = quorate("status", "one", "two")
	assert.Equal(c.t, 2, code)
}

// showsItselfToPrograms: status has one shape, and a row for each where there are several.
func (c *cluster) showsItselfToPrograms(does func(...string) string) {
	c.t.Helper()
	var all struct {
		Clusters []struct {
			Name, Leader string
			Live         bool
			Members      []struct{ Lag *int64 }
		}
	}
	require.NoError(c.t, json.Unmarshal([]byte(does("status", "-o", "json")), &all))
	require.Len(c.t, all.Clusters, 1)
	assert.True(c.t, all.Clusters[0].Live)
	require.Len(c.t, all.Clusters[0].Members, 3)
	assert.NotNil(c.t, all.Clusters[0].Members[0].Lag)
	assert.Contains(c.t, strings.Join(strings.Fields(does("status", "-A", "-o", "wide")), " "), c.ns+" demo 3/3 3.6.16 ")
}

// leadsEtcdctl: env is all that etcdctl needs, and kubectl's own completion knows the plugin's words.
func (c *cluster) leadsEtcdctl() {
	c.t.Helper()
	types := typing(c.t)
	const script = `set -euo pipefail
eval "$(kubectl quorate env -n $0)"
kubectl port-forward -n $0 service/demo :2379 > forwarded &
trap "kill $!" EXIT
until grep -q 'Forwarding from 127' forwarded; do kill -0 $!; sleep 0.1; done
port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\) .*/\1/p' forwarded)
ETCDCTL_ENDPOINTS=https://127.0.0.1:$port etcdctl member list`
	eventually(c.t, "etcdctl lists the members", func() string {
		out, errs, _ := types("bash", "-c", script, c.ns)
		return while(strings.Count(out, "started, demo-") != 3, out+errs)
	})
	eventually(c.t, "members are offered", func() string { // it gives up soon, as no person waits for that
		out, errs, _ := types("kubectl", "__complete", "quorate", "fence", "-n", c.ns, "demo", "demo-")
		return while(out != "demo-0\ndemo-1\ndemo-2\n:4\n", out+errs)
	})
}

// standsStill while it is suspended.
func (c *cluster) standsStill(does func(...string) string) {
	c.t.Helper()
	does("suspend")
	c.meets("etcdcluster/demo", "Suspended")
	does("resume", name)
	c.converges(3)
}

// lineWith is the line of a text that begins so.
func lineWith(text, begin string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, begin) {
			return line
		}
	}
	return ""
}

func (c *cluster) movesTheLeader(quorate func(...string) (string, string, int), does func(...string) string) {
	c.t.Helper()
	names := []string{"demo-0", "demo-1", "demo-2"}
	eventually(c.t, "another leads as was asked, and without an election meanwhile", func() string {
		leader := c.leader()
		to := names[(slices.Index(names, leader)+1)%len(names)]
		moved, why, _ := quorate("move-leader", to, "--wait", "-n", c.ns)
		screen := does("status")
		if !strings.HasSuffix(moved, "Succeeded: "+to+" leads\n") || !strings.Contains(screen, "etcd 3.6.16, "+to+" leads") {
			return moved + why + screen
		}
		return ""
	})
	_, errs, code := quorate("move-leader", "demo-9", "--wait", "-n", c.ns)
	assert.Equal(c.t, 1, code)
	assert.Contains(c.t, errs, "demo-9 is not a voter of this cluster: the voters are demo-0, demo-1, demo-2")
}

// asksForDefragmentation waits for the end of it.
func (c *cluster) asksForDefragmentation(does func(...string) string) {
	c.t.Helper()
	assert.Contains(c.t, does("defrag", "--wait"), "Succeeded: 3 members defragmented")
	status := c.object().Status.Defragmentation
	require.NotNil(c.t, status)
	assert.Equal(c.t, v1beta1.TriggerRequest, status.Trigger)
}

// reports makes a bundle that lacks nothing, and looks for every secret of the cluster in it.
func (c *cluster) reports(does func(...string) string) {
	c.t.Helper()
	var files []string
	var all string
	eventually(c.t, "everything is in the report", func() (problems string) {
		file := filepath.Join(c.t.TempDir(), "report.tar.gz")
		does("report", "-o", file)
		files, all, problems = unpacked(c.t, file)
		return problems
	})
	for _, want := range []string{"status.txt", "explain.txt", "etcdcluster.yaml", "children/pods.yaml",
		"children/secrets.yaml", "events.txt", "nodes.txt",
		"logs/demo-0.etcd.log", "logs/demo-0.prepare.log", "quorate/deployment.yaml",
		"quorate/compositecontroller.yaml", "metacontroller/pods.yaml"} {
		assert.Contains(c.t, files, want)
	}
	for _, ns := range []string{c.ns, "quorate-system"} {
		for _, secret := range list[corev1.Secret](c.t, ns, "secrets") {
			for key, value := range secret.Data {
				if strings.HasSuffix(key, ".crt") || strings.HasSuffix(key, ".pub") {
					continue
				}
				value = bytes.TrimSpace(value)
				assert.False(c.t, strings.Contains(all, string(value)), "%s of %s/%s", key, ns, secret.Name)
				assert.False(c.t, strings.Contains(all, base64.StdEncoding.EncodeToString(value)),
					"%s of %s/%s in base64", key, ns, secret.Name)
			}
		}
	}
}

// unpacked are the names of a bundle's files, all that is in them, and what it says was not to be had.
func unpacked(t *testing.T, file string) (files []string, all, problems string) {
	t.Helper()
	packed, err := os.Open(file)
	require.NoError(t, err)
	defer packed.Close()
	zipped, err := gzip.NewReader(packed)
	require.NoError(t, err)
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, all, problems
		}
		require.NoError(t, err)
		text, err := io.ReadAll(archive)
		require.NoError(t, err)
		name := strings.TrimPrefix(header.Name, "quorate-report/")
		if files, all = append(files, name), all+string(text); name == "problems.txt" {
			problems = string(text)
		}
	}
}

// TestWhatKubernetesRefusesIsSaid: the status names the object, and the plugin says why.
func TestWhatKubernetesRefusesIsSaid(t *testing.T) {
	beside(t)
	t.Run("AStorageClassThatDoesNotExist", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, "  replicas: 1\n  version: 3.6.16\n  storage: {storageClassName: nowhere}\n")
		c.decides("Start", "demo-0: no node accepts its pod: 0/")
		c.decides("Start", "its claim has no volume of storage class nowhere: ")
	})
	refuses := func(c *cluster, rule string, words ...string) {
		t, quorate := c.t, plugin(c.t)
		t.Helper()
		_, command, _ := strings.Cut(c.decides(rule, "Kubernetes has not created Pod demo-0: `kubectl quorate status -n "),
			"`kubectl quorate ")
		command, _, _ = strings.Cut(command, "`")
		screen, errs, code := quorate(strings.Fields(command)...)
		assert.Zero(t, code, errs)
		screen = strings.Join(strings.Fields(screen), " ")
		for _, want := range append(words, "Pod demo-0 is not there, asked for ", "Metacontroller said ") {
			assert.Contains(t, screen, want)
		}
	}
	t.Run("APriorityClassThatDoesNotExist", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, "  replicas: 1\n  version: 3.6.16\n  priorityClassName: nowhere\n")
		refuses(c, "Start", "no PriorityClass with name nowhere was found")
		c.edit(`{"priorityClassName":null}`)
		c.converges(1)
	})
	// Of one object, Metacontroller tells no more than 25 such events in a short time: this is another one.
	t.Run("AQuotaThatIsFull", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, "  replicas: 1\n  version: 3.6.16\n")
		c.converges(1)
		kube(t, "create", "quota", "none", "--hard=pods=0", "-n", c.ns)
		c.deletes("pods", "demo-0")
		refuses(c, "Blind", `pods "demo-0" is forbidden`)
		kube(t, "delete", "quota", "none", "-n", c.ns)
		c.converges(1)
		assert.Empty(t, c.object().Status.Internal.Awaited)
		assert.Equal(t, "3.6.16", c.object().Status.Version)
	})
	t.Run("AQuotaOnLimitsLetsThemIn", func(t *testing.T) {
		t.Parallel()
		c := inNamespace(t)
		kube(t, "create", "quota", "limits", "--hard=limits.cpu=2,limits.memory=1Gi", "-n", c.ns)
		kube(t, "create", "serviceaccount", "etcd", "-n", c.ns)
		c.apply(`  replicas: 1
  version: 3.6.16
  serviceAccountName: etcd
  resources: {requests: {cpu: 500m, memory: 256Mi}, limits: {cpu: 500m, memory: 256Mi}}
`)
		c.converges(1)
		pod := c.pods()[0]
		assert.Equal(t, corev1.PodQOSGuaranteed, pod.Status.QOSClass)
		assert.Equal(t, "etcd", pod.Spec.ServiceAccountName)
	})
}
