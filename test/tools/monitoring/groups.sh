#!/usr/bin/env bash
# groups.sh FILE prints what Prometheus itself takes for rule_files of a PrometheusRule: its spec.
sed -n '/^spec:/,$p' "$1" | tail -n +2 | sed 's/^  //'
