// etcd's own alerts, from contrib/mixin of the module go.etcd.io/etcd/v3, as a PrometheusRule for the members of our clusters: with their
// job, their labels, and a section of docs/alerts.md for each. `make generate` renders it.
local mixin = (import 'config.libsonnet') + (import 'alerts/alerts.libsonnet') + {
  _config+:: {
    etcd_selector: 'job="quorate-members"',
    etcd_instance_labels: 'instance, pod, member',
    clusterLabel: 'namespace }}/{{ $labels.cluster',
  },
};
local runbook = 'https://github.com/quorate-dev/quorate/blob/main/docs/alerts.md#';
std.manifestYamlDoc({
  apiVersion: 'monitoring.coreos.com/v1',
  kind: 'PrometheusRule',
  metadata: { name: 'quorate-etcd', namespace: 'quorate-system', labels: { 'app.kubernetes.io/name': 'quorate' } },
  spec: {
    groups: [
      group {
        name: 'quorate-' + super.name,
        rules: [
          rule { annotations+: { runbook_url: runbook + std.asciiLower(rule.alert) } }
          for rule in super.rules
        ],
      }
      for group in mixin.prometheusAlerts.groups
    ],
  },
}, quote_keys=false)
