#!/usr/bin/env bash
# How many clusters one core of Quorate serves: the table of docs/evidence/scale.md. Run by `make bench-scale`, as root (for a
# network namespace). The server has core 0, everything else core 1. It ends by itself.
#
#   test/real/bench/scale.sh                 all of the table, 20 minutes
#   test/real/bench/scale.sh -clusters 1000  one line, with these flags
#   test/real/bench/scale.sh -clusters 1000 -silent 100 -for 6m   and clusters whose members answer nothing
#   QUORATE=/tmp/before/quorate ...     another binary
#   test/real/bench/scale.sh profile         where the processor time of a call goes
set -euo pipefail
cd "$(dirname "$0")/../../.."

quorate=${QUORATE:-bin/quorate}
scale=$(mktemp -d)/scale
trap 'rm -rf "$(dirname "$scale")"' EXIT
go build -o "$scale" ./test/real/bench/scale
# In a network of its own, with nothing in it but the loopback interface: nothing else is on etcd's port there.
one() { unshare --net sh -c 'ip link set lo up && exec taskset -c 1 "$@"' sh "$scale" -quorate "$quorate" "$@"; }

case ${1:-} in
profile)
  export SCALE_PROFILE=${SCALE_PROFILE:-/tmp/scale.pprof}
  quorate=$scale
  one -header -clusters 1000 -for 60s "${@:2}"
  go tool pprof -top -cum -nodecount=400 "$scale" "$SCALE_PROFILE" 2>/dev/null |
    grep -E 'Duration|cum%|server\.decode$|server\.encode$|hooks\.Decide$|hooks\.Sync$|askAll\.func|findMembership$|closeAll$|clientHandshake$|serverHandshake$|Verify$|pki\.|runtime\.gcBgMarkWorker$|runtime\.gcAssistAlloc|clientv3\.New$|grpc\.NewClient|syscall\.Syscall6$|slog' || :
  ;;
-*) one -header "$@" ;;
*)
  one -header -clusters 1000
  one -clusters 1000 -workers 5
  one -clusters 1000 -workers 100
  one -clusters 1000 -latency 10ms
  one -clusters 5000 -memory 230MiB
  one -clusters 10000 -memory 460MiB
  one -clusters 10000
  one -clusters 1000 -snapshots 3000
  ;;
esac
