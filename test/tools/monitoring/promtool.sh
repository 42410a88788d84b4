#!/usr/bin/env bash
# promtool.sh check: Prometheus' own tool reads the rules of manifests/monitoring, and complains of whatever its linter knows.
# promtool.sh play: it plays testdata/alerts*.yaml with them: every alert fires when it must, and not when it must not.
# bin/promtool is there: `make monitoring` sees to that.
set -euo pipefail
cd "$(dirname "$0")/../../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
test/tools/monitoring/groups.sh manifests/monitoring/prometheusrule.yaml > "$work/rules.yaml"
test/tools/monitoring/groups.sh manifests/monitoring/prometheusrule-etcd.yaml > "$work/rules-etcd.yaml"
cp test/tools/monitoring/testdata/alerts*.yaml "$work/"

case $1 in
  check) bin/promtool check rules --lint=all --lint-fatal "$work/rules.yaml" "$work/rules-etcd.yaml" ;;
  play) bin/promtool test rules "$work"/alerts*.yaml ;;
esac
