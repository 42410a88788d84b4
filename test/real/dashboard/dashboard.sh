#!/usr/bin/env bash
# Makes docs/dashboard.png: a real Prometheus on a node of the lab scrapes Quorate, members and Metacontroller while clusters live
# through some minutes of events; then a page draws manifests/monitoring/dashboard.json with that Prometheus' answers, and a browser without
# a window takes the picture. The lab runs, with Quorate in it (make install); `make dashboard` sees to that, and to bin/prometheus.
# Needs npm (uPlot, by its name and version) and chromium.
set -euo pipefail
cd "$(dirname "$0")/../../.."

namespace=shop cluster=orders port=9095 # what the picture chooses, and where Prometheus listens
work=$(mktemp -d)
running=()
finish() {
  if ((${#running[@]})); then kill "${running[@]}" 2> /dev/null || true; wait "${running[@]}" 2> /dev/null || true; fi
  kubectl delete namespace "$namespace" --wait=false --ignore-not-found > /dev/null || true
  rm -rf "$work"
}
trap finish EXIT

say() { printf '%s %s\n' "$(date +%T)" "$*"; }
k() { kubectl -n "$namespace" "$@"; }
converged() { # converged NAME...: until STATUS is that for the newest spec
  local name
  for name in "$@"; do
    k wait "etcdcluster/$name" --for=jsonpath='{.status.rule}'=Converged --timeout=5m > /dev/null
  done
}
leader() { k get etcdcluster "$1" -o jsonpath='{.status.leader}'; }
traffic() { # writes, 150 a second, by the leader, minute by minute; what fails begins again
  until ! k get etcdcluster "$cluster" > /dev/null; do
    k exec "$(leader "$cluster")" -c etcd -- etcdctl check perf --load=s --prefix="/load/$SECONDS/" || sleep 1
  done
}
in_lab=(nsenter --net="$QUORATE_LAB_NETNS") # no function: killing what a function has begun kills a shell

npm pack --silent --pack-destination "$work" uplot@1.6.32 > /dev/null
mkdir "$work/page"
tar xzf "$work"/uplot-*.tgz -C "$work/page" --strip-components=2 package/dist/uPlot.iife.min.js package/dist/uPlot.min.css
test/tools/monitoring/groups.sh manifests/monitoring/prometheusrule.yaml > "$work/rules.yaml"
test/tools/monitoring/groups.sh manifests/monitoring/prometheusrule-etcd.yaml > "$work/rules-etcd.yaml"
cp test/real/dashboard/page.html "$work/page/"
cp test/real/dashboard/prometheus.yaml "$work/"
sed 's#\(https://127.0.0.1:\)[0-9]*#\16443#' "$KUBECONFIG" > "$work/kubeconfig" # the API server, as its own node sees it
"${in_lab[@]}" bin/prometheus --config.file="$work/prometheus.yaml" --storage.tsdb.path="$work/data" --web.listen-address="127.0.0.1:$port" \
  --web.user-assets="$work/page" > "$work/prometheus.log" 2>&1 &
running+=($!)
until "${in_lab[@]}" curl --noproxy "*" -fs "http://127.0.0.1:$port/-/ready" > /dev/null; do # until this one is: another at the port would have ended it
  kill -0 "${running[0]}" 2> /dev/null || { cat "$work/prometheus.log" >&2; exit 1; }
  sleep 0.2
done
start=$(date +%s)

say "clusters are created: on volumes, in memory, of one member, and one that no node has room for"
kubectl create namespace "$namespace" --dry-run=client -o yaml | kubectl apply -f - > /dev/null
k apply -f test/real/dashboard/clusters.yaml > /dev/null
converged orders cache single
say "writes begin"
traffic > "$work/traffic.log" 2>&1 &
running+=($!)
sleep 60
say "the leader's pod is killed"
k delete pod "$(leader orders)" --grace-period=0 --force > /dev/null 2>&1
sleep 45
converged orders
say "a pod of the cluster in memory is deleted: a new member takes its place"
k delete pod cache-1 > /dev/null
say "an upgrade from 3.6 to 3.7"
k patch etcdcluster orders --type=merge -p '{"spec":{"version":"3.7.3"}}' > /dev/null
until [[ $(k get etcdcluster orders -o jsonpath='{.status.version} {.status.rule}') == "3.7.3 Converged" ]]; do sleep 1; done
converged cache
sleep 45
say "five members"
k scale etcdcluster orders --replicas=5 > /dev/null
until [[ $(k get etcdcluster orders -o jsonpath='{.status.readyReplicas}/{.spec.replicas} {.status.rule}') == "5/5 Converged" ]]; do sleep 1; done
say "until a snapshot was taken and restored on trial"
k wait etcdsnapshotschedule/orders-often --for=jsonpath='{.status.lastVerified.name}' --timeout=4m > /dev/null
sleep 60
end=$(date +%s)

say "the picture"
{
  printf 'const input = {start: %d, end: %d, step: 5,\n' "$((end - (end - start) / 5 * 5))" "$end"
  printf 'variables: {namespace: "%s", cluster: "%s", __rate_interval: "30s"},\ndashboard: ' "$namespace" "$cluster"
  cat manifests/monitoring/dashboard.json
  printf '};\n'
} > "$work/page/input.js"
"${in_lab[@]}" chromium --headless=new --no-sandbox --disable-gpu --no-proxy-server --hide-scrollbars --user-data-dir="$work/chromium" --window-size=1400,2600 \
  --virtual-time-budget=30000 --screenshot="$work/dashboard.png" "http://127.0.0.1:$port/user/page.html" 2> "$work/chromium.log" || { cat "$work/chromium.log" >&2; exit 1; }
cp "$work/dashboard.png" docs/dashboard.png
say "$(wc -c < docs/dashboard.png) bytes: docs/dashboard.png. Look at it."
