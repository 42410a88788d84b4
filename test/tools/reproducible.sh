#!/usr/bin/env bash
# Builds the release of HEAD twice, in folders with other names, at other times and with another umask, and fails if a byte differs.
# FRESH=1 also gives each build a compiler's cache of its own: many CPU minutes. PLATFORMS as in release.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
commit=$(git rev-parse HEAD) # once: HEAD may move meanwhile
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for build in a "somewhere else"; do
  folder=$work/$build/tree
  (
    if [[ $build != a ]]; then umask 077; fi
    mkdir -p "$folder"
    git archive "$commit" | tar -x --touch -C "$folder" # the files' times are those of now
    if [[ -n ${FRESH:-} ]]; then export GOCACHE=$work/$build/cache; fi
    "$folder/test/tools/release.sh" "$work/$build/release" > "$work/$build/sums"
  )
done
diff -r "$work/a/release" "$work/somewhere else/release"
diff "$work/a/sums" "$work/somewhere else/sums"
cat "$work/a/sums"
echo "two builds of $commit, the same bytes" >&2
