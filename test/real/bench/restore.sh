#!/usr/bin/env bash
# What it costs to fill a member's data directory, against `etcdutl snapshot restore` of the same file: make build etcd-binaries, then this.
# MEGABYTES=1000 and RUNS=5 unless told otherwise. All write to one folder of TMPDIR, by turns, so that the machine's mood is the same for all.
# With LIMIT=256M each runs in a control group of that much memory, pages of files among it (as root).
set -euo pipefail
cd "$(dirname "$0")/../../.."
version=${VERSION:-3.6.16} runs=${RUNS:-5} megabytes=${MEGABYTES:-1000} limit=${LIMIT:-}
bin=${QUORATE_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/quorate-lab}/bin/etcd-$version
dir=$(mktemp -d) etcd= group=/sys/fs/cgroup/quorate-bench maximum=memory.max own=anon
[ ! -d /sys/fs/cgroup/memory ] || group=/sys/fs/cgroup/memory/quorate-bench maximum=memory.limit_in_bytes own=total_rss # cgroup v1
trap '[ -z "$etcd" ] || kill -9 "$etcd" 2>/dev/null || :; rm -rf "$dir"; [ ! -d "$group" ] || rmdir "$group"' EXIT

"$bin/etcd" --name a --data-dir "$dir/old" --listen-client-urls "unix://$dir/c" --advertise-client-urls http://127.0.0.1:1 --listen-peer-urls "unix://$dir/p" \
  --initial-advertise-peer-urls http://127.0.0.1:2 --initial-cluster a=http://127.0.0.1:2 --unsafe-no-fsync --quota-backend-bytes=-1 --snapshot-count=100000 --log-level error &
etcd=$!
go run ./test/real/bench/fill "unix://$dir/c" "$megabytes"
mkdir "$dir/store"
"$bin/etcdctl" --endpoints "unix://$dir/c" snapshot save "$dir/store/snapshot.db" >/dev/null 2>&1
kill -9 "$etcd"
wait "$etcd" 2>/dev/null || :
etcd=

timed() { # NAME COMMAND...: seconds, and in a control group the most memory that it took without the pages of files
  local name=$1 ran=("${@:2}") most=
  rm -rf "$dir/new" "$dir/new.restored"
  sync
  if [ -n "$limit" ]; then
    mkdir -p "$group"
    echo "$limit" >"$group/$maximum"
    # shellcheck disable=SC2016 # for the shell that it starts
    ran=(sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "${@:2}")
    (
      while [ -d "$group" ]; do
        awk -v own="$own" '$1 == own { print int($2 / 1048576) }' "$group/memory.stat" 2>/dev/null >>"$dir/anon"
        sleep 0.05
      done
    ) &
    local watch=$!
  fi
  /usr/bin/time -f "%e s, of them %U and %S on a processor" "${ran[@]}" >/dev/null 2>"$dir/said" || { cat "$dir/said"; exit 1; }
  if [ -n "$limit" ]; then
    kill "$watch"
    wait "$watch" 2>/dev/null || :
    most="; at most $(sort -n "$dir/anon" | tail -1) MiB beside the pages of files"
    rm -f "$dir/anon"
    rmdir "$group"
  fi
  echo "$name: $(tail -1 "$dir/said")$most"
}
new=(--data-dir "$dir/new" --name b)
etcdutl=("${new[@]}" --initial-cluster b=http://127.0.0.1:3 --initial-advertise-peer-urls http://127.0.0.1:3)
quorate=(env ETCD_INITIAL_CLUSTER=b=http://127.0.0.1:3 ETCD_INITIAL_CLUSTER_TOKEN=t bin/quorate-snapshot restore "${new[@]}" --marker "$dir/none"
  --peer-url http://127.0.0.1:3 --etcd-version "$version" --etcd "$bin/etcd" --etcdutl "$bin/etcdutl")
for _ in $(seq "$runs"); do
  timed "etcdutl, raised" "$bin/etcdutl" snapshot restore "$dir/store/snapshot.db" "${etcdutl[@]}" --bump-revision 1000000000 --mark-compacted
  timed "from a snapshot, raised" "${quorate[@]}" --url "file://$dir/store/snapshot.db" --begin-after 0
  timed "etcdutl" "$bin/etcdutl" snapshot restore "$dir/store/snapshot.db" "${etcdutl[@]}"
  timed "from a snapshot" "${quorate[@]}" --url "file://$dir/store/snapshot.db"
  timed "from a survivor" "${quorate[@]}" --from-data "$dir/old"
done
