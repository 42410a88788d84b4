#!/usr/bin/env bash
# Kamaji into the lab, from a checkout of its sources: its chart without an etcd. Its tenants' control planes are the lab's own programs.
# Run by `make kamaji KAMAJI=...`, in the lab.
set -euo pipefail
cd "$(dirname "$0")/../../.."
. test/real/planes/images.sh

(cd "$KAMAJI" && CGO_ENABLED=0 go build -o "$out/kamaji" .)
image kamaji.internal/kamaji:lab "$out/kamaji" kamaji
kubernetes v1.36.0 kube-apiserver kube-controller-manager kube-scheduler
kubectl apply -f test/real/planes/kamaji.yaml >&2

cp -r "$KAMAJI/charts/kamaji" "$out/chart"
rm -f "$out/chart/Chart.lock"
sed -i '/^dependencies:/,/condition:/d' "$out/chart/Chart.yaml"
bin/helm upgrade --install --create-namespace -n kamaji-system kamaji "$out/chart" --set telemetry.disabled=true,defaultDatastoreName= \
  --set image.repository=kamaji.internal/kamaji,image.tag=lab,image.pullPolicy=IfNotPresent >&2
# What cert-manager's injector would do, which the lab does not have.
kubectl -n kamaji-system wait --for=condition=Ready certificate --all --timeout=60s >&2
ca=$(kubectl -n kamaji-system get secret kamaji-webhook-server-cert -o 'jsonpath={.data.ca\.crt}')
for hooks in $(kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations -o name | grep kamaji); do
  kubectl get "$hooks" -o json | sed "s,\"clientConfig\": {,&\"caBundle\": \"$ca\"\,," | kubectl replace -f - >&2
done
kubectl -n kamaji-system rollout status deployment --timeout=120s >&2
