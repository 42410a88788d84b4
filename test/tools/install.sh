#!/usr/bin/env bash
# Installs Metacontroller and this Quorate in the lab, with what `quorate install` prints, as a user would, and waits until
# the hooks answer. The image has been loaded under the tag that the manifests name; an annotation with its hash makes the
# Deployment roll when only its content has changed. In the lab, every decision is checked against the safety rules before
# it counts. Certificate and token of an earlier installation stay. CERT_MANAGER=1 installs cert-manager first.
set -euo pipefail
cd "$(dirname "$0")/../.."
umask 077 # bin/install holds them

version=1.5.20
if [[ -n ${METACONTROLLER:-} ]]; then version=${METACONTROLLER_VERSION:-4.0.0}; fi

rm -rf bin/install
mkdir -p bin/install
kubectl -n quorate-system get secret quorate-hooks -o yaml --ignore-not-found > bin/install/kept.yaml
keep=()
if [[ -s bin/install/kept.yaml ]]; then keep=(--keep bin/install/kept.yaml); fi
if [[ -n ${CERT_MANAGER:-} ]]; then go run -C test/lab . cert-manager; fi
# Whoever has cert-manager lets EtcdClusters use it. The kind must be there before Metacontroller hears of it.
with=()
if kubectl get crd certificates.cert-manager.io > /dev/null 2>&1; then with=(--cert-manager); fi
bin/quorate install --metacontroller="$version" "${with[@]}" "${keep[@]}" > bin/install/quorate.yaml 2> bin/install/advice.txt ||
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

# What Metacontroller trusts is there before it starts, or it starts again: it reads that once.
awk -v RS='\n---\n' '/\nkind: ConfigMap\n/ && /\n  name: quorate-hook-ca\n/' bin/install/quorate.yaml > bin/install/trust.yaml
if [[ -s bin/install/trust.yaml ]]; then
  kubectl apply -f - <<< '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "metacontroller"}}'
  kubectl apply --server-side --force-conflicts -f bin/install/trust.yaml
  if ((!${#keep[@]})); then kubectl -n metacontroller delete pod metacontroller-0 --ignore-not-found --wait=false; fi
fi
go run -C test/lab . metacontroller
# The lab lets Metacontroller do everything; what is tested is that our own, few rights are enough.
kubectl apply --server-side --force-conflicts -f test/tools/metacontroller-rights.yaml
kubectl apply --server-side --force-conflicts -k bin/install
kubectl wait --for=condition=Established --timeout=30s crd/etcdclusters.etcd.quorate.dev
kubectl -n quorate-system rollout status deployment/quorate --timeout=90s
