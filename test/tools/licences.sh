#!/usr/bin/env bash
# Prints the licences and notices of all that is linked, as go-licenses finds them: each text once, behind what it is of. Fails if a licence is none under
# which a module may be linked into a binary that is passed on under Apache-2.0. bin/go-licenses is there: `make licences` and release.sh see to that.
set -euo pipefail
cd "$(dirname "$0")/../.."
GOROOT=$(go env GOROOT) # a go-licenses that was built with -trimpath does not know it
export GOROOT CGO_ENABLED=0 GOFLAGS="-tags=$TAGS" LC_ALL=C
# MPL-2.0 asks that changes of its own files be published: there are none.
allowed=' Apache-2.0 MIT MIT-0 BSD-2-Clause BSD-3-Clause 0BSD ISC MPL-2.0 Unlicense CC0-1.0 Zlib '
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for os in linux darwin windows; do
  GOOS=$os "${GO_LICENSES:-bin/go-licenses}" report . ./etcdops/quorate-snapshot --ignore github.com/quorate-dev/quorate \
    --template test/tools/licences.tpl >> "$work/all" 2>> "$work/log" || { cat "$work/log" >&2; exit 1; }
done
sed '/^$/d' "$work/all" | sort -u > "$work/linked"
if (($(wc -l < "$work/linked") < 50)); then
  echo "go-licenses finds almost no module" >&2
  exit 1
fi

sums=() # of the texts, in the order of the modules
declare -A of file
while read -r module licence path; do
  if [[ $allowed != *" $licence "* ]]; then
    echo "$module: it is not decided whether $licence suits Apache-2.0" >&2
    exit 1
  fi
  while read -r beside; do
    read -r sum _ < <(sha256sum "$beside")
    if [[ -z ${file[$sum]:-} ]]; then sums+=("$sum"); fi
    file[$sum]=$beside
    of[$sum]+="$module ${beside##*/}"$'\n'
  done < <(find "${path%/*}" -maxdepth 1 -type f -iregex '.*/\(licen[cs]e\|copying\|unlicense\|notice\|patents\)\([.-].*\)?' ! -name '*.go' | sort)
done < "$work/linked"

echo "Quorate is made by $(go env GOVERSION), whose licence is BSD-3-Clause, and links the modules below."
cut -d ' ' -f 1,2 "$work/linked"
for sum in "${sums[@]}"; do
  printf '\n%s\n%s\n\n' "----------------------------------------" "$(sort -u <<< "${of[$sum]%$'\n'}")"
  cat "${file[$sum]}"
done
