#!/usr/bin/env bash
# What it costs to fill a member's data directory, beside `etcdutl snapshot restore` of the same data with the same options, as a table: make build
# etcd-binaries, then this, as root. MEGABYTES="1000 4000" VALUE=100000 RUNS=5 RAISED=1 VERSION=3.6.16 unless told otherwise; RAISED= leaves the revision as it is.
# All write to one folder of TMPDIR, by turns, with cold caches, so that the machine's mood is the same for all: compare ratios. Each size is run
# without a limit of memory, and in a control group of a quarter of the size, pages of files among it. It needs three times the largest size on the disk.
set -euo pipefail
cd "$(dirname "$0")/../../.."
version=${VERSION:-3.6.16} runs=${RUNS:-5} value=${VALUE:-100000} raised=${RAISED-1} quorate=${QUORATE:-bin/quorate-snapshot} sources=${SOURCES:-snapshot survivor}
bin=${QUORATE_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/quorate-lab}/bin/etcd-$version
dir=$(mktemp -d) etcd='' group=/sys/fs/cgroup/quorate-bench maximum=memory.max
[ ! -d /sys/fs/cgroup/memory ] || group=/sys/fs/cgroup/memory/quorate-bench maximum=memory.limit_in_bytes # cgroup v1
trap '[ -z "$etcd" ] || kill -9 "$etcd" 2>/dev/null || :; rm -rf "$dir"; [ ! -d "$group" ] || rmdir "$group"' EXIT

filled() { # MEGABYTES: a member's data in old, which has ended as a pod does, and a snapshot of it
  rm -rf "$dir/old" "$dir/store"
  mkdir "$dir/store"
  "$bin/etcd" --name a --data-dir "$dir/old" --listen-client-urls "unix://$dir/c" --advertise-client-urls http://127.0.0.1:1 --listen-peer-urls "unix://$dir/p" \
    --initial-advertise-peer-urls http://127.0.0.1:2 --initial-cluster a=http://127.0.0.1:2 --unsafe-no-fsync --quota-backend-bytes=-1 \
    --max-request-bytes=10000000 --log-level fatal &
  etcd=$!
  go run ./test/real/bench/fill "unix://$dir/c" "$1" "$value"
  "$bin/etcdctl" --endpoints "unix://$dir/c" snapshot save "$dir/store/snapshot.db" >/dev/null 2>&1
  kill "$etcd"
  wait "$etcd" 2>/dev/null || :
  etcd=''
}

timed() { # LIMIT COMMAND...: seconds
  local limit=$1 ran=("${@:2}")
  rm -rf "$dir/new" "$dir/new.restored"
  sync
  echo 3 >/proc/sys/vm/drop_caches
  if [ -n "$limit" ]; then
    mkdir -p "$group"
    echo "$limit" >"$group/$maximum"
    # shellcheck disable=SC2016 # for the shell that it starts
    ran=(sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "${@:2}")
  fi
  /usr/bin/time -f %e "${ran[@]}" >"$dir/told" 2>"$dir/said" || { cat "$dir/told" "$dir/said" >&2; exit 1; }
  [ -z "$limit" ] || rmdir "$group"
  tail -1 "$dir/said"
}

middle() { # SECONDS...: the median, and the least and the most
  printf '%s\n' "$@" | sort -n | awk '{ all[NR] = $1 } END { m = (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2; printf "%.1f (%.1f-%.1f)", m, all[1], all[NR] }'
}

new=(--data-dir "$dir/new" --name b)
etcdutl=("$bin/etcdutl" snapshot restore "$dir/store/snapshot.db" "${new[@]}" --initial-cluster b=http://127.0.0.1:3 --initial-advertise-peer-urls http://127.0.0.1:3)
ours=(env ETCD_INITIAL_CLUSTER=b=http://127.0.0.1:3 ETCD_INITIAL_CLUSTER_TOKEN=t "$quorate" restore "${new[@]}" --marker "$dir/none"
  --peer-url http://127.0.0.1:3 --etcd-version "$version" --etcd "$bin/etcd" --etcdutl "$bin/etcdutl")
[ -z "$raised" ] || etcdutl+=(--bump-revision 1000000000 --mark-compacted) ours+=(--begin-after 0)
declare -A from=([snapshot]="--url file://$dir/store/snapshot.db" [survivor]="--from-data $dir/old")

echo "$(git rev-parse --short HEAD), $(date -u +%F), etcd $version, $(nproc) cores, $(awk '/MemTotal/ { print int($2 / 1048576 + 0.5) }' /proc/meminfo) GiB," \
  "values of $value bytes, ${raised:+revision raised, }n $runs, seconds: median (least-most)"
echo "| Data, memory | etcdutl |$(printf ' From a %s | Ratio |' $sources)"
echo "| --- | --- |$(printf ' --- | --- |%.0s' $sources)"
for megabytes in ${MEGABYTES:-1000 4000}; do
  filled "$megabytes"
  for limit in '' $((megabytes / 4))M; do
    declare -A took=()
    for _ in $(seq "$runs"); do
      took[etcdutl]+=" $(timed "$limit" "${etcdutl[@]}")"
      for source in $sources; do
        # shellcheck disable=SC2086 # a flag and its value
        took[$source]+=" $(timed "$limit" "${ours[@]}" ${from[$source]})"
      done
    done
    # shellcheck disable=SC2086 # seconds
    line="| $megabytes MB, ${limit:-all} | $(middle ${took[etcdutl]}) |"
    for source in $sources; do
      # shellcheck disable=SC2086 # seconds
      line+=" $(middle ${took[$source]}) | $(awk -v a="$(middle ${took[$source]})" -v b="$(middle ${took[etcdutl]})" 'BEGIN { printf "%.2f", a / b }') |"
    done
    echo "$line"
  done
done
