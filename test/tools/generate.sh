#!/usr/bin/env bash
# Makes what is made from the Go types in hooks/api: the deepcopy functions, the CRDs and docs/api.md.
#   generate.sh           writes them
#   generate.sh --check   compares them with what is there, and fails if they differ
# The tools are in bin/: `make generate` and `make generate-check` see to that.
set -euo pipefail
cd "$(dirname "$0")/../.."

files=(hooks/api/v1alpha1/zz_generated.deepcopy.go manifests/crds/etcd.quorate.dev_etcd{clusters,snapshots,snapshotschedules}.yaml docs/api.md)
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
for file in "${files[@]}"; do
  mkdir -p "$fresh/$(dirname "$file")"
done

bin/controller-gen object crd:allowDangerousTypes=true paths=./hooks/api/... \
  output:object:dir="$fresh/hooks/api/v1alpha1" output:crd:dir="$fresh/manifests/crds"
bin/crd-ref-docs --log-level=ERROR --renderer=markdown --source-path=hooks/api \
  --config=test/tools/api-docs/config.yaml --templates-dir=test/tools/api-docs --output-path="$fresh/docs/api.md"

stale=()
for file in "${files[@]}"; do
  if [[ "${1:-}" != --check ]]; then
    cmp --silent "$fresh/$file" "$file" || cp "$fresh/$file" "$file"
  elif ! diff --unified=1 --label "$file" "$file" --label "$file, made anew" "$fresh/$file"; then
    stale+=("$file")
  fi
done
if ((${#stale[@]})); then
  echo "stale: ${stale[*]}" >&2
  echo "The Go types in hooks/api have changed since. Run: make generate" >&2
  exit 1
fi
