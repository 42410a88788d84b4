#!/usr/bin/env bash
# Makes what is made from the Go types in hooks/api: the CRDs and docs/reference/api.md; etcd's own alerts from its module; and from
# what quorate install prints and the manifests for monitoring the templates of the Helm chart, whose README has a table of its values.
#   generate.sh           writes them
#   generate.sh --check   compares them with what is there, and fails if they differ
# The tools are in bin/: `make generate` and `make generate-check` see to that.
set -euo pipefail
cd "$(dirname "$0")/../.."

files=(manifests/crds/etcd.quorate.dev_etcd{clusters,mirrors,operations,snapshots,snapshotschedules}.yaml docs/reference/api.md
  manifests/monitoring/prometheusrule-etcd.yaml manifests/chart/templates/{crds,quorate,monitoring}.yaml
  manifests/chart/crds/metacontroller.yaml manifests/chart/README.md manifests/cluster-chart/values.schema.json)
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
for file in "${files[@]}"; do
  mkdir -p "$fresh/$(dirname "$file")"
done

bin/controller-gen crd:allowDangerousTypes=true paths=./hooks/api/... output:crd:dir="$fresh/manifests/crds"
# The API server parses a quantity in its rules, and computes for minutes with an exponent of ten digits. Its pattern is checked
# beside the rules, its length before them; hooks/objects/read.go says the same.
sed --in-place --regexp-extended \
  's/^( *)(pattern: .*\(\[KMGTPE\]i\)\|\[numkMGTPE\]\|\(\[eE\]\(\\\+\|-\)\?).*$/\1maxLength: 32\n\1\2[0-9]{1,2}))?$/' \
  "$fresh"/manifests/crds/*.yaml
bin/crd-ref-docs --log-level=ERROR --renderer=markdown --source-path=hooks/api \
  --config=test/tools/api-docs/config.yaml --templates-dir=test/tools/api-docs --output-path="$fresh/docs/reference/api.md"

etcd=go.etcd.io/etcd/v3@v3.6.8 # the newest of its module that has contrib/mixin
mixin=$(go mod download -json "$etcd" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')/contrib/mixin
{
  echo "# etcd's own alerts, for the members of our clusters. Made by \`make generate\` from contrib/mixin of $etcd,"
  echo "# Copyright the etcd authors, Apache License 2.0; test/tools/etcd-mixin.jsonnet says what is ours. docs/alerts.md has a section for each."
  bin/jsonnet --string --jpath "$mixin" test/tools/etcd-mixin.jsonnet
} > "$fresh/manifests/monitoring/prometheusrule-etcd.yaml"

# The binary embeds the CRDs, so new ones are copied before it is built.
binary=$PWD/bin/quorate-made
if [[ "${1:-}" != --check ]]; then
  for file in "$fresh"/manifests/crds/*.yaml; do
    cmp --silent "$file" "manifests/crds/${file##*/}" || cp "$file" manifests/crds/
  done
fi
go build -o "$binary" .
cp manifests/monitoring/{podmonitor.yaml,prometheusrule.yaml,dashboard.json} "$fresh/manifests/monitoring/"
cp manifests/chart/{README.md,values.yaml,values.schema.json} "$fresh/manifests/chart/"
go run -C test/tools ./chart "$binary" "$fresh/manifests/monitoring" "$fresh/manifests/chart" "$fresh/manifests/cluster-chart"
rm "$binary"

stale=()
for file in "${files[@]}"; do
  if [[ "${1:-}" != --check ]]; then
    mkdir -p "$(dirname "$file")"
    cmp --silent "$fresh/$file" "$file" || cp "$fresh/$file" "$file"
  elif ! diff --unified=1 --label "$file" "$file" --label "$file, generated" "$fresh/$file"; then
    stale+=("$file")
  fi
done
if ((${#stale[@]})); then
  echo "stale: ${stale[*]}" >&2
  echo "What they are made from has changed since. Run: make generate" >&2
  exit 1
fi
