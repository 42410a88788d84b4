#!/usr/bin/env bash
# Runs every fuzz test of the product's module, one after the other, each for the time given.
set -euo pipefail
cd "$(dirname "$0")/../.."

grep -rlE '^func Fuzz' --include='*_test.go' . | xargs --no-run-if-empty -n1 dirname | sort -u | while read -r package; do
  grep -rhoE '^func Fuzz[A-Za-z0-9_]*' "$package"/*_test.go | awk '{print $2}' | while read -r target; do
    echo "=== $package $target"
    go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$1"
  done
done
