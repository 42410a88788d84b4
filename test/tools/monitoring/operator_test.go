package monitoring

import (
	"path/filepath"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// TestOperatorReads: Prometheus' operator knows every field of what we give it. An unknown one would be dropped by
// its API server without a word, and a relabeling with it.
func TestOperatorReads(t *testing.T) {
	kinds := map[string]func() any{
		"PodMonitor":     func() any { return new(monitoringv1.PodMonitor) },
		"PrometheusRule": func() any { return new(monitoringv1.PrometheusRule) },
	}
	files, err := filepath.Glob(folder + "*rule*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no rules", err)
	}
	for _, file := range append(files, folder+"podmonitor.yaml") {
		for _, document := range strings.Split(read(t, file), "\n---\n") {
			var is struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal([]byte(document), &is); err != nil {
				t.Fatal(err)
			}
			if is.APIVersion != "monitoring.coreos.com/v1" || kinds[is.Kind] == nil {
				t.Errorf("%s: %s of %s is nothing that the operator reads", file, is.Kind, is.APIVersion)
			} else if err := yaml.UnmarshalStrict([]byte(document), kinds[is.Kind]()); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}
