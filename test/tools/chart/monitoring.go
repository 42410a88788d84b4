package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// monitoring are the objects of manifests/monitoring as templates, each file behind a value.
func (t *templates) monitoring(folder string) (string, error) {
	var all []string
	for _, part := range []struct{ value, file string }{
		{"podMonitors", "podmonitor.yaml"}, {"prometheusRules", "prometheusrule.yaml"},
		{"prometheusRules", "prometheusrule-etcd.yaml"},
	} {
		text, err := os.ReadFile(filepath.Join(folder, part.file))
		if err != nil {
			return "", err
		}
		for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
			var o object
			if err := yaml.Unmarshal(document, &o); err != nil {
				return "", fmt.Errorf("%s: %w", part.file, err)
			}
			all = append(all, t.monitor(o, part.value))
		}
	}
	dashboard, err := os.ReadFile(filepath.Join(folder, "dashboard.json"))
	if err != nil {
		return "", err
	}
	all = append(all, t.monitor(object{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": object{"name": "quorate-dashboard", "namespace": "", "labels": object{"grafana_dashboard": "1"}},
		"data":     object{"quorate.json": string(dashboard)},
	}, "dashboard"))
	return strings.Join(all, ""), nil
}

// monitor is one of them. The labels are those of the kustomization, and the user's, by which their Prometheus finds
// it.
func (t *templates) monitor(o object, value string) string {
	meta := at(o, "metadata")
	t.set(meta, "namespace", release)
	labels := at(meta, "labels")
	labels["app.kubernetes.io/part-of"] = "quorate"
	t.labelled(o)
	t.add(labels, "of the user", "{{- with .Values.monitoring.labels }}", "{{- toYaml . | nindent INDENT }}",
		"{{- end }}")
	if o["kind"] == "PrometheusRule" {
		t.ofRelease(o["spec"])
	}
	if meta["name"] == "quorate-metacontroller" {
		at(o, "spec", "namespaceSelector")["matchNames"] = []any{t.value(metaNamespace)} // the one of two that it is
	}
	return when(".Values.monitoring."+value, "---\n"+t.yaml(o)) + "\n"
}

// ofRelease has rules tell of this release: alerts are about its own Quorate and Metacontroller, and what to type names
// its namespace.
func (t *templates) ofRelease(part any) any {
	switch part := part.(type) {
	case object:
		for key, value := range part {
			part[key] = t.ofRelease(value)
		}
	case []any:
		for n, value := range part {
			part[n] = t.ofRelease(value)
		}
	case string:
		namespace := t.value(release)
		return strings.NewReplacer(
			"quorate-system", namespace,
			`job="quorate"`, `job="quorate", namespace="`+namespace+`"`,
			`job="metacontroller"`, `job="metacontroller", namespace="`+t.value(metaNamespace)+`"`,
		).Replace(part)
	}
	return part
}
