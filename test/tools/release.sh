#!/usr/bin/env bash
# Makes all files of a release in a folder, which is emptied first: `make release` calls it. No Docker and no registry is needed.
#   quorate-OS-ARCH                  the binary; on darwin and windows only the plugin in it is needed
#   quorate-snapshot-OS-ARCH         the program of snapshot Jobs and init containers, for linux alone
#   quorate-trim-OS-ARCH             the one beside etcd, for linux alone
#   quorate-*OS-ARCH.cdx.json        their SBOMs, CycloneDX 1.6
#   kubectl-quorate-OS-ARCH.tar.gz   the plugin with the licences
#   quorate-image.tar                the image for linux/amd64 and linux/arm64, an OCI layout; quorate-image.digest is its digest in every registry
#   THIRD-PARTY-LICENSES.txt         licences of all that is linked
#   quorate-chart.tgz                the Helm chart, with the digest of the image
#   etcd-cluster-chart.tgz           the chart of one cluster
#   quorate-manifests.tar.gz         the kustomizations, with the digest of the image
#   kubectl-quorate.krew.yaml        the plugin's manifest for krew
#   quorate.intoto.json              of which commit and modules all these are made: in-toto, SLSA provenance v1
#   SHA256SUMS                       of all these
# The same commit gives the same bytes on every machine, since all that could differ is set here: with another release of Go they
# differ. VERSION, COMMIT, REVISION, SOURCE_DATE_EPOCH, TAGS, LDFLAGS and OF_IMAGE come from the Makefile. PLATFORMS makes fewer, one of linux at least.
set -euo pipefail
if (($# != 1)) || [[ ${1##*/} != release ]]; then # it will be emptied
  echo "usage: $0 FOLDER/release" >&2
  exit 2
fi
mkdir -p "$1"
out=$(realpath "$1")
cd "$(dirname "$0")/../.."

if ! [[ ${REVISION:-} =~ ^[0-9a-f]{40}$ ]] || [[ -e .git && -n $(git status --porcelain) ]]; then
  echo "a release is made of a commit, whole: commit what 'git status' shows, and call make release in a clone" >&2
  exit 1
fi

unset GOOS GOARCH GOAMD64 GOARM64 GOFIPS140 GODEBUG GOEXPERIMENT GOWORK
export GOTOOLCHAIN=go1.26.8 CGO_ENABLED=0 GOFLAGS=-buildvcs=false LC_ALL=C
umask 022
rm -rf "${out:?}"/*

binaries=() archs=()
compile() { # PACKAGE FILE: in the loop's GOOS and GOARCH
  GOOS=$os GOARCH=$arch go build -trimpath -tags "$TAGS" -ldflags "$LDFLAGS" -o "$out/$2" "$1"
  binaries+=("$out/$2")
}
for platform in ${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64}; do
  os=${platform%/*} arch=${platform#*/} suffix=
  if [[ $os == windows ]]; then suffix=.exe; fi
  echo "building for $platform" >&2
  compile . "quorate-$os-$arch$suffix"
  if [[ $os == linux ]]; then
    archs+=(-arch "$arch")
    compile ./etcdops/quorate-snapshot "quorate-snapshot-$os-$arch"
    compile ./etcdops/quorate-trim "quorate-trim-$os-$arch"
  fi
done

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
go build -C test/tools -trimpath -o "$tools/" ./release github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod github.com/google/go-licenses/v2
GO_LICENSES=$tools/go-licenses test/tools/licences.sh > "$out/THIRD-PARTY-LICENSES.txt"
for binary in "${binaries[@]}"; do
  read -r sum _ < <(sha256sum "$binary")
  sbom=${binary%.exe}.cdx.json # its serial number is of the binary, and what it says of the tool is the same wherever that was built
  "$tools/cyclonedx-gomod" bin -json -std -licenses -assert-licenses -notimestamp -serial "${sum:0:8}-${sum:8:4}-5${sum:13:3}-8${sum:17:3}-${sum:20:12}" \
    -version "$VERSION" -output "$sbom" "$binary" 2> "$tools/log" || { cat "$tools/log" >&2; exit 1; }
  sed -i '/"tools": \[/,/^    \]/{/"hashes": \[/,/\],/d}' "$sbom"
done
eval "of_image=($OF_IMAGE)" # words as the Makefile quotes them
go run -C test/real/lab . image -o "$out/quorate-image.tar" -ref "ghcr.io/quorate-dev/quorate:$VERSION" -gzip "${archs[@]}" "${of_image[@]}" \
  "$out/quorate-linux-ARCH=/quorate" "$out/quorate-snapshot-linux-ARCH=/quorate-snapshot" "$out/quorate-trim-linux-ARCH=/quorate-trim" \
  "$PWD/LICENSE=/licenses/LICENSE" "$out/THIRD-PARTY-LICENSES.txt=/licenses/THIRD-PARTY-LICENSES.txt" > "$out/quorate-image.digest"
"$tools/release" -source "$PWD" -version "$VERSION" -revision "$REVISION" -created "$SOURCE_DATE_EPOCH" \
  -command "make release VERSION=$VERSION${PLATFORMS:+ PLATFORMS='$PLATFORMS'}" "${binaries[@]}"
(cd "$out" && sha256sum -- * > SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
cat "$out/SHA256SUMS"
