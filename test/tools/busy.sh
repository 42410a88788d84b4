#!/usr/bin/env bash
# Runs a command while every core of the machine is taken and its disk is written to, as a machine for continuous integration is by its other
# jobs. What keeps it busy ends with this script, however that ends.
set -euo pipefail
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null || true; rm -rf "$dir"' EXIT

lives() { kill -0 $$ 2> /dev/null; } # $$ is this script in subshells, too
burn() { while lives; do for ((n = 0; n < 100000; n++)); do :; done; done; }
fill() { while lives; do dd if=/dev/zero of="$dir/file" bs=1M count=256 conv=fsync status=none || return; done; }

for ((core = 0; core < $(nproc); core++)); do burn & done
fill &
"$@"
