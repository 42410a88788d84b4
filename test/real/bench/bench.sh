#!/usr/bin/env bash
# Measures everything that Quorate promises about its cost and prints one table. Run by `make bench`, in the lab.
set -euo pipefail
cd "$(dirname "$0")/../../.."

go=$(mktemp) lab=$(mktemp)
trap 'rm -f "$go" "$lab"' EXIT

# median BENCHMARK UNIT FACTOR: the median over the runs of a Go benchmark's figure in this unit
median() {
  awk -v bench="$1" -v unit="$2" -v factor="$3" '
    index($1, bench) == 1 { for (i = 2; i < NF; i++) if ($(i + 1) == unit) print $i * factor }' "$go" |
    sort -n | awk '{ all[NR] = $1 } END { printf "%.3g", all[int((NR + 1) / 2)] }'
}

echo "decisions, calls, memory ..." >&2
go test ./hooks -run '^$' -bench Decide -count 5 >>"$go"
go test ./test/real/bench -run '^$' -bench Sync/verify=false -count 5 >>"$go"
go test ./test/real/bench -run '^$' -bench ResidentMemory -benchtime 1x >>"$go"

echo "clusters in the lab ..." >&2
QUORATE_BENCH=1 go test -v -count=1 -timeout 120m -tags e2e -run 'TestRollBesideByHand|TestMembersBesideOthers|TestMembers/SteadyState' ./test/real/e2e/... >"$lab" || { cat "$lab"; exit 1; }

cat <<TABLE

| what | measured | bound |
| --- | --- | --- |
| one decision, 3 members | $(median BenchmarkDecide/members=3 ns/op 0.001) µs | 50 µs |
| one decision, 9 members | $(median BenchmarkDecide/members=9 ns/op 0.001) µs | 150 µs |
| a whole /sync over HTTP, 3 members, full-size objects | $(median BenchmarkSync ns/op 0.000001) ms | 1 ms |
| resident memory a minute after the start | $(median BenchmarkResidentMemory MiB-idle 1) MiB | 32 MiB |
| resident memory under the calls of 100 clusters | $(median BenchmarkResidentMemory MiB-resident 1) MiB (peak $(median BenchmarkResidentMemory MiB-peak 1)) | 64 MiB |
| resident memory a minute after these calls | $(median BenchmarkResidentMemory MiB-rest 1) MiB | 32 MiB |
| writes to the API server in 2 minutes at rest | $(grep -q -- '--- PASS: TestMembers/SteadyStateWritesNothing' "$lab" && echo 0) | 0 |

$(grep '^|' "$lab")
TABLE
