#!/usr/bin/env bash
# Runs every fuzz test of the product's module, one after the other, each for the time given.
set -euo pipefail
cd "$(dirname "$0")/../.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# An input that shows something new is made shorter by a few tries only: by default that takes up to a minute, in which nothing is found.
fuzz() { # package, target, time
  go test -tags nomsgpack "$1" -run '^$' -fuzz "^$2\$" -fuzztime "$3" -fuzzminimizetime 10x </dev/null 2>&1 | tee "$log"
}

# Before Go 1.27, a run may fail at its very end with these words alone, and without a failing input: https://go.dev/issue/75804
ended() {
  grep -qx ' *context deadline exceeded' "$log" && ! grep -qE 'Failing input|failure while testing|panic' "$log"
}

grep -rlE '^func Fuzz' --include='*_test.go' . | xargs --no-run-if-empty -n1 dirname | sort -u | while read -r package; do
  grep -rhoE '^func Fuzz[A-Za-z0-9_]*' "$package"/*_test.go | awk '{print $2}' | while read -r target; do
    echo "=== $package $target"
    fuzz "$package" "$target" "$1" || ended
  done
done
