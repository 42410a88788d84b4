#!/usr/bin/env bash
# From nothing to a three-member etcd: starts the lab, installs Quorate, applies manifests/samples/etcdcluster.yaml, watches
# it come up, writes a key and reads it back, and says how long that took.
set -euo pipefail
cd "$(dirname "$0")/../.."

live=false
[[ -t 1 ]] && live=true
bold() { if $live; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n== %s\n' "$*"; fi; }

# members prints the cluster and its pods as a table.
members() {
  kubectl get etcdcluster demo -o custom-columns='CLUSTER:.metadata.name,READY:.status.ready,VERSION:.status.version,LEADER:.status.leader,STATUS:.status.phase'
  kubectl get pods -l etcd.quorate.dev/cluster=demo \
    -o custom-columns='POD:.metadata.name,PHASE:.status.phase,READY:.status.containerStatuses[0].ready,NODE:.spec.nodeName' 2>/dev/null || true
}

# watch_until shows the table until the cluster is Available with all members: in place on a terminal, else when it changes.
watch_until() {
  local before="" now lines=0
  local deadline=$((SECONDS + 180))
  while ((SECONDS < deadline)); do
    now=$(members)
    if [[ "$now" != "$before" ]]; then
      if $live && ((lines)); then printf '\033[%dA\033[J' "$lines"; fi
      printf '%s\n' "$now"
      $live || echo
      lines=$(wc -l <<<"$now")
      before=$now
    fi
    if kubectl get etcdcluster demo -o jsonpath='{.status.conditions[?(@.type=="Available")].status} {.status.ready}' 2>/dev/null |
      grep -q '^True 3/3$'; then
      return 0
    fi
    sleep 0.5
  done
  echo "not available after three minutes:" >&2
  kubectl describe etcdcluster demo >&2
  kubectl -n quorate-system logs -l app.kubernetes.io/name=quorate --tail=20 >&2
  return 1
}

began=$SECONDS
bold "A Kubernetes on this machine, with Metacontroller and Quorate"
make --no-print-directory install
environment=$(go run -C test/lab . env)
eval "$environment"
installed=$SECONDS

bold "kubectl apply -f manifests/samples/etcdcluster.yaml"
grep -v '^#' manifests/samples/etcdcluster.yaml
echo
applied=$SECONDS
kubectl apply -f manifests/samples/etcdcluster.yaml
watch_until
available=$SECONDS

bold "etcdctl put and get, in a member's pod"
member=$(kubectl get etcdcluster demo -o jsonpath='{.status.leader}')
kubectl exec "$member" -c etcd -- etcdctl put greeting hello
kubectl exec "$member" -c etcd -- etcdctl get greeting
kubectl exec "$member" -c etcd -- etcdctl member list -w table

bold "Done in $((SECONDS - began)) s: Kubernetes and Quorate $((installed - began)) s, etcd $((available - applied)) s"
cat <<TEXT

It keeps running. Try:

  $(grep '^export KUBECONFIG' <<<"$environment")
  export PATH=$QUORATE_LAB_BIN:\$PATH   # kubectl, if you have none
  kubectl get etcdcluster demo -w                      # in another terminal
  kubectl scale etcdcluster demo --replicas=5          # two learners join and are promoted, one after the other
  kubectl delete pod $member                        # the leader's: it comes back with its data
  kubectl delete pvc/demo-1 pod/demo-1                 # a member's data: it is replaced under a new name
  kubectl describe etcdcluster demo                    # what Quorate is doing and why

  make lab-down                                        # ends it and leaves nothing behind
TEXT
