#!/usr/bin/env bash
# Changes of members by other operators, beside ours and by hand. COZYSTACK and ETCD_IO are checkouts of their sources, either of which may be missing:
# they are built, and installed as they come, without the proxy of their metrics; ROUNDS=3. Run by `make bench-operators`, in the lab.
set -euo pipefail
cd "$(dirname "$0")/../../.."

out=$(mktemp -d) beside=()
# Their kinds have our kind's name, which kubectl may take for theirs.
cleans() {
  rm -rf "$out"
  kubectl get crd -o name | grep -E '\.(etcd-operator\.cozystack|operator\.etcd)\.io$' | xargs -r kubectl delete >&2 || true
  kubectl delete namespace --ignore-not-found cozystack etcd-operator-system >&2
}
trap cleans EXIT

# loads NAME CHECKOUT PACKAGE: builds a manager and loads its image into the lab.
loads() {
  (cd "$2" && CGO_ENABLED=0 go build -o "$out/manager" "$3")
  bin/lab image -o "$out/$1.tar" -ref "bench.internal/$1:bench" -user 65532 -entrypoint /manager "$out/manager=/manager"
  bin/lab load "$out/$1.tar"
  beside+=("$1")
}

if [[ -n ${COZYSTACK:-} ]]; then
  loads cozystack "$COZYSTACK" .
  bin/helm upgrade --install --create-namespace -n cozystack cozystack "$COZYSTACK/charts/etcd-operator" \
    --set image.repository=bench.internal/cozystack,image.tag=bench,kubeRbacProxy.enabled=false >&2 # its image is not built here
  kubectl -n cozystack rollout status deployment >&2
fi
if [[ -n ${ETCD_IO:-} ]]; then
  # it takes this domain for granted, and the lab has another one
  sed -i 's/kubernetes lab.internal in-addr/kubernetes lab.internal cluster.local in-addr/' "$(dirname "$KUBECONFIG")/node1/conf/Corefile"
  bin/lab stop 1 coredns
  bin/lab again 1 coredns
  loads etcd-io "$ETCD_IO" ./cmd
  kubectl kustomize "$ETCD_IO/config/default" | sed -E "s,image: (controller|etcd-operator):.*,image: bench.internal/etcd-io:bench," |
    kubectl apply --server-side -f - >&2
  kubectl -n etcd-operator-system rollout status deployment >&2
fi
QUORATE_ROUNDS=${ROUNDS:-3} QUORATE_BESIDE="${beside[*]}" QUORATE_BENCH=1 go test -v -count=1 -timeout 120m -tags e2e -run '^TestMembersBesideOthers$' \
  ./test/real/e2e/ > "$out/log" || status=$?
cp "$out/log" bin/bench-operators.log
grep '^|' "$out/log"
exit "${status:-0}"
