package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// clusters renders the chart of one cluster, below another one if above is a folder.
func clusters(t *testing.T, release, chart string, args ...string) (map[string]map[string]any, string) {
	t.Helper()
	out, err := exec.Command("../../../bin/helm", append([]string{"template", release, chart, "--kube-version=1.36",
		"--namespace=team"}, args...)...).CombinedOutput()
	if err != nil {
		return nil, string(out)
	}
	return byName(t, string(out)), ""
}

// TestChartOfACluster: what it renders is what the API server takes, under the name that Bitnami's chart gives.
func TestChartOfACluster(t *testing.T) {
	hourly := `schedules={"hourly":{"schedule":"0 * * * *","template":{"spec":{"store":{"claim":{"name":"backups"}}}}}}`
	below := above(t, "{name: etcd-cluster, version: 0.1.0}")
	twice := above(t, "{name: etcd-cluster, version: 0.1.0, alias: orders}, "+
		"{name: etcd-cluster, version: 0.1.0, alias: sessions}")
	for _, c := range []struct {
		release, chart, prefix, name string
		args                         []string
	}{
		{"shop", clusterChart, "", "shop-etcd", nil},
		{"my-etcd", clusterChart, "", "my-etcd", []string{"--set", "labels.team=shop", "--set", "annotations.of=it"}},
		{"shop", clusterChart, "", "other", []string{"--set", "fullnameOverride=other"}},
		{"shop", below, "etcd-cluster.", "shop-etcd", nil},
		{"shop", twice, "orders.", "shop-orders", nil},
		{"shop", twice, "sessions.", "shop-sessions", nil},
	} {
		objects, refused := clusters(t, c.release, c.chart, append(c.args, "--set-json", c.prefix+hourly,
			"--set", c.prefix+"spec.options.quotaBackendBytes=536870912")...)
		if refused != "" {
			t.Fatal(refused)
		}
		for kind, name := range map[string]string{"EtcdCluster": c.name, "EtcdSnapshotSchedule": c.name + "-hourly"} {
			object, judge := objects[kind+"/team/"+name], kindOf(t, kind)
			if object == nil {
				t.Fatalf("%v has no %s %s: %v", c, kind, name, objects)
			}
			if fields := judge.unknown(object); len(fields) > 0 {
				t.Errorf("unknown fields: %v", fields)
			}
			if errs := judge.admit(object, nil); len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
		}
		of := within(objects["EtcdSnapshotSchedule/team/"+c.name+"-hourly"], "spec", "template", "spec", "clusterRef")
		if of["name"] != c.name {
			t.Errorf("the schedule is for %v", of)
		}
	}
}

// above is a chart with these dependencies, which are all the chart of a cluster, and with global values.
func above(t *testing.T, dependencies string) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{
		"Chart.yaml":  "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies: [" + dependencies + "]\n",
		"values.yaml": "global: {storageClass: fast}\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	must(t, os.CopyFS(dir+"/charts/etcd-cluster", os.DirFS(clusterChart)))
	return dir
}

// TestChartOfAClusterRefusesMistakes: helm says what is wrong, before anything reaches the API server.
func TestChartOfAClusterRefusesMistakes(t *testing.T) {
	for value, says := range map[string]string{
		"spec.replica=3":         "'replica' not allowed",
		"spec.replicas=12":       "maximum",
		"replicaCount=3":         "'replicaCount' not allowed",
		"spec.storage.medium=No": "/spec/storage/medium",
	} {
		_, refused := clusters(t, "shop", clusterChart, "--set", value)
		if !strings.Contains(refused, says) {
			t.Errorf("%s: %q does not say %q", value, refused, says)
		}
	}
}

const clusterChart = root + "/cluster-chart"
