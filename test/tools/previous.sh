#!/usr/bin/env bash
# Puts the tree of the release before this one into a folder, or with PATHs these parts of it. Which commit that is stands in
# test/real/e2e/testdata/previous-release.
# usage: previous.sh FOLDER [PATH...]
# Exit codes: 3 this is no git clone, 1 the clone does not have the commit, and its origin does not give it.
set -euo pipefail
folder=$(realpath "$1")
shift
cd "$(dirname "$0")/../.."

commit=$(grep -xE '[0-9a-f]{40}' test/real/e2e/testdata/previous-release) ||
  { echo "test/real/e2e/testdata/previous-release has no line with a full commit hash" >&2; exit 1; }
if ! git rev-parse --git-dir > /dev/null; then
  echo "this is no git clone, so the previous release, commit $commit, can't be had: clone the repository" >&2
  exit 3
fi
if ! git cat-file -e "$commit^{commit}" 2> /dev/null && ! git fetch --quiet --depth=1 origin "$commit"; then
  echo "the previous release, commit $commit (test/real/e2e/testdata/previous-release), is not in this clone, and its origin does not give it." >&2
  echo "A shallow clone becomes a whole one by: git fetch --unshallow" >&2
  exit 1
fi
git archive "$commit" -- "$@" | tar -x -C "$folder"
