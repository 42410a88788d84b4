#!/usr/bin/env bash
# Karmada's operator into the lab, from a checkout of its sources, with the images of all that it installs.
# Run by `make karmada KARMADA=...`, in the lab.
set -euo pipefail
cd "$(dirname "$0")/../../.."
. test/real/planes/images.sh
user=0 # the operator writes below /var/lib, and servers listen on port 443

version() { sed -n "s/^.*\b$1 *= \"\(.*\)\"/\1/p" "$KARMADA/$2"; }
mkdir "$out/bin" "$out/crds"
(cd "$KARMADA" && CGO_ENABLED=0 go build -o "$out/bin/" ./operator/cmd/operator ./cmd/{aggregated-apiserver,controller-manager,scheduler,webhook,metrics-adapter})
for program in aggregated-apiserver controller-manager scheduler webhook metrics-adapter; do
  image "docker.io/karmada/karmada-$program:$(version gitVersion pkg/version/base.go)" "$out/bin/$program" "karmada-$program"
done
kubernetes "$(version KubeDefaultVersion operator/pkg/constants/constants.go)" kube-apiserver kube-controller-manager
# The operator has its CRDs here already, and so fetches them from nowhere.
cp -r "$KARMADA/charts/karmada/_crds/." "$out/crds"
tar -czf "$out/crds.tar.gz" -C "$out" crds
image docker.io/karmada/karmada-operator:latest "$out/bin/operator" karmada-operator \
  "$out/crds.tar.gz=/var/lib/karmada/cache/$(printf http://crds.internal | sha256sum | cut -d' ' -f1)/crds.tar.gz"
kubectl create namespace karmada-system --dry-run=client -o yaml | kubectl apply -f - >&2
kubectl apply --server-side -f "$KARMADA/operator/config/crds" -f "$KARMADA/operator/config/deploy" >&2
kubectl -n karmada-system rollout status deployment --timeout=120s >&2
