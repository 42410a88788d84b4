#!/usr/bin/env bash
# Installs Metacontroller and this Quorate in the lab, with what `quorate install` prints, as a user would, and waits until
# the hooks answer. A Metacontroller of version 4 is part of the installation. One of version 1.5 is installed by the lab
# first. The image has been loaded under the tag that the manifests name; an annotation with its hash makes the Deployment
# roll when only its content has changed. In the lab, every decision is checked against the safety rules before it counts.
# Certificate and token of an earlier installation stay. CERT_MANAGER=1 installs cert-manager first.
set -euo pipefail
cd "$(dirname "$0")/../.."
umask 077 # bin/install holds certificate and token

# The stories' external etcds are processes on the nodes, and pods; those of manifests/samples are in the first network.
endpoints=10.1.2.0/24,172.30.0.0/24,10.244.0.0/16
if [[ ${QUORATE_LAB_IP:-v4} != v4 ]]; then endpoints+=,fd00:172:30::/64,fd00:244::/48; fi
flags=(--metacontroller-version="$QUORATE_METACONTROLLER_VERSION" --allowed-etcd-endpoints="$endpoints")
own=
if [[ $QUORATE_METACONTROLLER_VERSION != 1.* ]]; then own=1; else flags+=(--metacontroller-namespace=metacontroller); fi
rm -rf bin/install
mkdir -p bin/install
kubectl -n quorate-system get secret quorate-hooks -o yaml --ignore-not-found > bin/install/kept.yaml
keep=()
if [[ -s bin/install/kept.yaml ]]; then keep=(--keep bin/install/kept.yaml); fi
if [[ -n ${CERT_MANAGER:-} ]]; then bin/lab cert-manager; fi
# Where cert-manager is, EtcdClusters may use it. The kind must be there before Metacontroller hears of it.
if kubectl get crd certificates.cert-manager.io > /dev/null 2>&1; then flags+=(--cert-manager); fi
bin/quorate install "${flags[@]}" --kinds > bin/install/kinds.yaml
bin/quorate install "${flags[@]}" --no-kinds "${keep[@]}" > bin/install/quorate.yaml 2> bin/install/advice.txt ||
  { cat bin/install/advice.txt >&2; exit 1; }
cat > bin/install/kustomization.yaml <<YAML
resources: [quorate.yaml]
patches:
- target: {kind: Deployment, name: quorate}
  patch: |-
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: quorate, namespace: quorate-system}
    spec:
      template:
        metadata: {annotations: {quorate.dev/binary: "$(sha256sum bin/quorate | cut -c1-16)"}}
        spec: {containers: [{name: quorate, env: [{name: QUORATE_VERIFY, value: "1"}]}]}
YAML

apply() { kubectl apply --server-side --force-conflicts "$@"; }
if [[ -n $own ]]; then
  bin/lab metacontroller image
  # Of another story in this lab: two Metacontrollers would both serve Quorate.
  kubectl delete --ignore-not-found clusterrole/metacontroller clusterrolebinding/metacontroller namespace/metacontroller
else
  # Of another run in this lab: the own one of version 4 would serve Quorate too.
  kubectl -n quorate-system delete --ignore-not-found deployment/metacontroller poddisruptionbudget/metacontroller networkpolicy/metacontroller
  # What Metacontroller trusts is there before it starts, or it starts again: it reads that once.
  awk -v RS='\n---\n' '/\nkind: ConfigMap\n/ && /\n  name: quorate-hook-ca\n/' bin/install/quorate.yaml > bin/install/trust.yaml
  kubectl apply -f - <<< '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "metacontroller"}}'
  apply -f bin/install/trust.yaml
  if ((!${#keep[@]})); then kubectl -n metacontroller delete pod metacontroller-0 --ignore-not-found --wait=false; fi
  bin/lab metacontroller
fi
apply -f bin/install/kinds.yaml
kubectl wait --for=condition=Established --timeout=10m -f bin/install/kinds.yaml
apply -k bin/install
if [[ -n $own ]]; then kubectl -n quorate-system rollout status deployment/metacontroller --timeout=10m; fi
kubectl -n quorate-system rollout status deployment/quorate --timeout=10m
