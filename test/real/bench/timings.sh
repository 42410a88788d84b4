#!/usr/bin/env bash
# How long make's targets take for a newcomer, as a table of Markdown: timings.sh TARGET... (by default try, test and
# demo, in the order in which README has them). Cold: a new clone of HEAD, caches that were empty before the first of
# them, and no lab. Warm: all of them once more in another clone. Seconds by the clock, and in brackets those on a
# processor. A target that fails is told so, in its place. What it said is in the folder that is printed first.
set -euo pipefail
cd "$(dirname "$0")/../../.."

targets=("$@")
if ((!$#)); then targets=("try ARGS=--once" test demo); fi
work=$(mktemp -d)
environment=(QUORATE_LAB_NAME=quorate-timings QUORATE_LAB_API_PORT=7543 "QUORATE_LAB=$work/lab"
  "GOCACHE=$work/cache" "GOMODCACHE=$work/modules")
clean() {
  env "${environment[@]}" make -s lab-down > /dev/null 2>&1 || true
  chmod -R u+w "$work/modules" 2> /dev/null || true # Go's modules can't be written
  rm -rf "$work"/{modules,cache,lab,cold,warm}
}
trap clean EXIT
echo "what they say: $work" >&2

# timed TARGET CLONE: prints the seconds.
timed() {
  local failed=
  TIMEFORMAT='%0R (%0U %0S)'
  # shellcheck disable=SC2086 # a target and what it is told
  { time env "${environment[@]}" make -C "$work/$2" $1 > "$work/${1%% *}-$2.log" 2>&1; } 2> "$work/time" || failed=', failed'
  tail -n 1 "$work/time" | tr -d '()' | awk -v failed="$failed" '{ printf "%d (%d)%s", $1, $2 + $3, failed }'
}

declare -A cold warm
for pass in cold warm; do
  git clone -q . "$work/$pass"
  for target in "${targets[@]}"; do
    declare "${pass}[$target]=$(timed "$target" $pass)"
  done
  env "${environment[@]}" make -s -C "$work/$pass" lab-down > /dev/null 2>&1 || true
done
echo '| Command | Cold, s | Warm, s |'
echo '| --- | --- | --- |'
for target in "${targets[@]}"; do
  echo "| \`make $target\` | ${cold[$target]} | ${warm[$target]} |"
done
