#!/usr/bin/env bash
# How long make's targets take, as a table of Markdown: timings.sh TARGET... (by default all that people wait for, which takes hours).
# Cold: a new clone of HEAD, empty caches of Go and no lab. Warm: once more, with every test run again. Seconds by the clock, and in brackets
# those on a processor. A target that fails is told so, in its place. What it said is in the folder that is printed first.
set -euo pipefail
cd "$(dirname "$0")/../../.."

targets=("$@")
if ((!$#)); then
  targets=(build image unit scenario model conformance lint test check alerts try demo e2e-install e2e-selfhosted e2e-upgrade e2e)
fi
work=$(mktemp -d)
lab=(QUORATE_LAB_NAME=quorate-timings QUORATE_LAB_API_PORT=7543)
clean() {
  env "${lab[@]}" "QUORATE_LAB=$work/lab" make -s lab-down > /dev/null 2>&1 || true
  chmod -R u+w "$work"/{modules,tree} 2> /dev/null || true # Go's modules can't be written
  rm -rf "$work"/{modules,cache,lab,tree}
}
trap clean EXIT
echo "what they say: $work" >&2

# timed TARGET NAME [FLAGS]: prints the seconds.
timed() {
  local failed=
  TIMEFORMAT='%0R (%0U %0S)'
  { time env "${lab[@]}" "QUORATE_LAB=$work/lab" "GOCACHE=$work/cache" "GOMODCACHE=$work/modules" "GOFLAGS=${3:-}" \
      make -C "$work/tree" "$1" > "$work/$1-$2.log" 2>&1; } 2> "$work/time" || failed=', failed'
  tr -d '()' < "$work/time" | awk -v failed="$failed" '{ printf "%d (%d)%s", $1, $2 + $3, failed }'
}

echo '| Command | Cold, s | Warm, s |'
echo '| --- | --- | --- |'
for target in "${targets[@]}"; do
  clean
  git clone -q . "$work/tree"
  cold=$(timed "$target" cold)
  echo "| \`make $target\` | $cold | $(timed "$target" warm -count=1) |"
done
