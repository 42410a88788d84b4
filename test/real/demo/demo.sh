#!/usr/bin/env bash
# From nothing to a three-member etcd: starts the lab, or with the argument kind a cluster of kind's, installs Quorate, applies
# manifests/samples/etcdcluster.yaml, watches it come up, writes a key and reads it back, and says how long that took.
set -euo pipefail
cd "$(dirname "$0")/../../.."

live=false
[[ -t 1 ]] && live=true
bold() { if $live; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n== %s\n' "$*"; fi; }

# members prints the cluster and its pods as a table.
members() {
  kubectl get etcdcluster demo -o custom-columns='CLUSTER:.metadata.name,REPLICAS:.spec.replicas,READY:.status.readyReplicas,VERSION:.status.version,LEADER:.status.leader,STATUS:.status.rule'
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
    if kubectl get etcdcluster demo -o jsonpath='{.status.conditions[?(@.type=="Available")].status} {.status.readyReplicas}/{.spec.replicas}' 2>/dev/null |
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

# start_lab fetches what the lab compiles while Quorate is compiled. Its image has no quorate-snapshot, with the SDKs of
# clouds, unless that is compiled already.
start_lab() {
  if [[ $(uname) != Linux || $EUID != 0 ]]; then
    echo "make demo needs Linux and root; without them there are make try and make demo-kind" >&2
    exit 1
  fi
  make --no-print-directory bin/lab
  bin/lab download &
  trap "kill $! 2>/dev/null || :" EXIT
  local programs="quorate quorate-trim"
  if [[ -x bin/quorate-snapshot ]]; then
    programs+=" quorate-snapshot"
  else
    snapshots="make install                                         # adds what takes snapshots: a minute or two"
  fi
  make --no-print-directory install PROGRAMS="$programs"
  eval "$(bin/lab env)"
  more="export PATH=$QUORATE_LAB_BIN:\$PATH   # kubectl, if you have none"
  upgrade="$PWD/bin/lab etcd                        # images of etcd's other releases, for an upgrade"
  end="make lab-down                                        # ends it and leaves nothing behind"
}

# start_kind makes a cluster called quorate, or takes the one that is there. Its kubeconfig is a file of its own: the caller's
# clusters are not touched.
start_kind() {
  local tool image
  for tool in docker kind kubectl; do
    if ! command -v "$tool" >/dev/null; then
      echo "make demo-kind: there is no $tool in the PATH. Install it, or run make demo, which needs none (Linux, root)." >&2
      exit 1
    fi
  done
  if ! docker info >/dev/null 2>&1; then
    echo "make demo-kind: Docker does not answer (docker info fails). Start it, and see that you may use it." >&2
    exit 1
  fi
  mkdir -p bin
  export KUBECONFIG=$PWD/bin/kind.kubeconfig
  if kind get clusters 2>/dev/null | grep -qx quorate; then
    kind export kubeconfig --name quorate
  else
    kind create cluster --name quorate
  fi
  image=$(sed -n 's/^ *image: \(ghcr.*\)/\1/p' manifests/base/deployment.yaml)
  docker build -t "$image" .
  kind load docker-image "$image" --name quorate
  make --no-print-directory build
  bin/quorate install --apply
  end="kind delete cluster --name quorate                   # ends it"
}

more="" snapshots="" upgrade="" end=""
began=$SECONDS
case ${1:-lab} in
lab | kind) ;;
*)
  echo "usage: $0 [lab | kind]" >&2
  exit 2
  ;;
esac
bold "A Kubernetes on this machine, with Metacontroller and Quorate"
"start_${1:-lab}"
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

  export KUBECONFIG=$KUBECONFIG${more:+
  $more}
  kubectl get etcdcluster demo -w                      # in another terminal
  kubectl scale etcdcluster demo --replicas=5          # two learners join and are promoted, one after the other
  kubectl delete pod $member                        # the leader's: it comes back with its data
  kubectl delete pvc/demo-1 pod/demo-1                 # a member's data: it is replaced under a new name
  kubectl describe etcdcluster demo                    # what Quorate is doing and why
${upgrade:+
  $upgrade}${snapshots:+
  $snapshots}

  $end
TEXT
