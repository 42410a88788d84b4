#!/usr/bin/env bash
# Rehearses with bin/release what the workflow of a release does behind the build, and what its users do: pushes image and charts to a
# registry on this machine, signs and attests, verifies, and has what is damaged or of another key refused. A key of the moment stands
# for the workflow's identity, so neither that nor the public log is rehearsed. `make rehearse` sees to bin/helm; cosign and crane are
# built by their versions, once: cosign takes many minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOBIN=$PWD/bin GOFLAGS=-trimpath CGO_ENABLED=0
version=v3.1.3 # that of .github/workflows/release.yml
[[ $(go version -m bin/cosign 2> /dev/null) == *"sigstore/cosign/v3	$version"* ]] || go install "github.com/sigstore/cosign/v3/cmd/cosign@$version"
[[ -x bin/crane ]] || go install github.com/google/go-containerregistry/cmd/crane@v0.22.1
work=$(mktemp -d) bin=$PWD/bin
export TUF_ROOT=$work/tuf DOCKER_CONFIG=$work COSIGN_PASSWORD=
running=
finish() {
  if [[ $running ]]; then kill "$running" 2> /dev/null || true; fi
  rm -rf "$work"
}
trap finish EXIT
cosign() { "$bin/cosign" "$@" 2>> "$work/log" > "$work/out" || { cat "$work/log" >&2; return 1; }; }
refused() { # verification fails, for its signature or its digest
  if "$bin/cosign" "$@" > "$work/out" 2>&1; then echo "cosign $*: what is damaged, or of another key, was accepted" >&2; exit 1; fi
  grep -qiE 'signature|digest' "$work/out" || { cat "$work/out" >&2; exit 1; }
}

"$bin/crane" registry serve --address 127.0.0.1:0 > "$work/registry" 2>&1 &
running=$!
until grep -q 'serving on port' "$work/registry"; do kill -0 "$running"; sleep 0.1; done
at=127.0.0.1:$(sed -n 's/.*serving on port //p' "$work/registry")
cosign generate-key-pair --output-key-prefix "$work/key"
cosign generate-key-pair --output-key-prefix "$work/other"
sign=(--yes --key "$work/key.key" --use-signing-config=false --tlog-upload=false)
by=(--key "$work/key.pub" --insecure-ignore-tlog)
other=(--key "$work/other.pub" --insecure-ignore-tlog)
cd "${1:-bin/release}"
grep -q "\"gitCommit\": \"$(git rev-parse HEAD)\"" quorate.intoto.json || { echo "the release is of another commit: make release" >&2; exit 1; }

sha256sum --quiet --check --strict SHA256SUMS
cosign sign-blob "${sign[@]}" --bundle "$work/sums.sigstore.json" SHA256SUMS
cosign verify-blob "${by[@]}" --bundle "$work/sums.sigstore.json" SHA256SUMS
refused verify-blob "${other[@]}" --bundle "$work/sums.sigstore.json" SHA256SUMS
{ cat SHA256SUMS; echo; } > "$work/damaged"
refused verify-blob "${by[@]}" --bundle "$work/sums.sigstore.json" "$work/damaged"

cosign attest-blob "${sign[@]}" --statement quorate.intoto.json --bundle "$work/provenance.sigstore.json"
sed 's/^[0-9a-f]*  //' SHA256SUMS | grep -vx quorate.intoto.json > "$work/files"
while read -r file; do
  cosign verify-blob-attestation "${by[@]}" --type slsaprovenance1 --bundle "$work/provenance.sigstore.json" "$file"
done < "$work/files"
refused verify-blob-attestation "${by[@]}" --type slsaprovenance1 --bundle "$work/provenance.sigstore.json" "$work/damaged"

mkdir "$work/image"
tar xf quorate-image.tar -C "$work/image"
image=$at/quorate-dev/quorate@$(cat quorate-image.digest)
[[ $("$bin/crane" push "$work/image" "$at/quorate-dev/quorate:v0.1.0" 2>> "$work/log") == "$image" ]]
cosign sign "${sign[@]}" --recursive "$image"
cosign verify "${by[@]}" "$image"
refused verify "${other[@]}" "$image"
for sbom in quorate*-linux-amd64.cdx.json; do
  cosign attest "${sign[@]}" --type cyclonedx --predicate "$sbom" "$image"
done
cosign verify-attestation "${by[@]}" --type cyclonedx "$image"

for chart in quorate etcd-cluster; do
  "$bin/helm" push "$chart-chart.tgz" "oci://$at/charts" --plain-http &> "$work/pushed"
  digest=$(sed -n 's/^Digest: *//p' "$work/pushed")
  cosign sign "${sign[@]}" "$at/charts/$chart@$digest"
  cosign verify "${by[@]}" "$at/charts/$chart@$digest"
done
version=$(tar xzOf quorate-chart.tgz quorate/Chart.yaml | sed -n 's/^version: //p')
"$bin/helm" pull "oci://$at/charts/quorate" --version "$version" --plain-http -d "$work" &>> "$work/log"
cmp "$work/quorate-$version.tgz" quorate-chart.tgz
"$bin/helm" template quorate "$work/quorate-$version.tgz" --kube-version=1.36 --set registry="$at" | grep -q "image: $at/quorate-dev/quorate:v$version@${image#*@}"
echo "signed and verified: SHA256SUMS, $(wc -l < "$work/files") files by their provenance, the image with its SBOMs, and the charts"
