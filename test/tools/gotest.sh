#!/usr/bin/env bash
# `go test` as gotestsum shows it. usage: gotest.sh [-C FOLDER] [go test's flags and packages]
# It prints a line for each package, or with FORMAT=testname for each test, and failures whole at the end. With RESULTS
# set to a folder, all that `go test -json` said is kept in a file there.
set -euo pipefail
tool=$(realpath "$(dirname "$0")/../../bin/gotestsum")
if [[ $1 == -C ]]; then
  cd "$2"
  shift 2
fi
file=()
if [[ -n ${RESULTS:-} ]]; then file=(--jsonfile "$(mktemp "$RESULTS/XXXXXX.json")"); fi
exec "$tool" --format "${FORMAT:-pkgname}" --format-hide-empty-pkg --hide-summary=skipped "${file[@]}" -- "$@"
