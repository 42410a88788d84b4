#!/usr/bin/env bash
# What it costs to fill a member's data directory, against etcdutl alone, and etcdutl on a copy of the same snapshot, since a store's must be fetched first:
# make build etcd-binaries, then this. 1 GB and RUNS=5 unless told otherwise. Both write to one folder of TMPDIR, by turns, so that the machine's mood is the same for both.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${VERSION:-3.6.16} runs=${RUNS:-5} megabytes=${MEGABYTES:-1000}
bin=${QUORATE_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/quorate-lab}/bin/etcd-$version
dir=$(mktemp -d) etcd=
trap '[ -z "$etcd" ] || kill -9 "$etcd" 2>/dev/null || :; rm -rf "$dir"' EXIT

"$bin/etcd" --name a --data-dir "$dir/old" --listen-client-urls "unix://$dir/c" --advertise-client-urls http://127.0.0.1:1 --listen-peer-urls "unix://$dir/p" \
  --initial-advertise-peer-urls http://127.0.0.1:2 --initial-cluster a=http://127.0.0.1:2 --unsafe-no-fsync --quota-backend-bytes=-1 --snapshot-count=100000 --log-level error &
etcd=$!
go run ./test/bench/fill "unix://$dir/c" "$megabytes"
mkdir "$dir/store"
"$bin/etcdctl" --endpoints "unix://$dir/c" snapshot save "$dir/store/snapshot.db" >/dev/null
kill -9 "$etcd"
etcd=

timed() { # NAME COMMAND...: seconds and the most memory that the whole of it, and its largest process, took
  local name=$1
  shift
  rm -rf "$dir/new"
  sync
  /usr/bin/time -f "$name: %e s, of them %U and %S on a processor; %M KiB mapped by the largest process" "$@" >/dev/null 2>"$dir/said" || { cat "$dir/said"; exit 1; }
  tail -1 "$dir/said"
}
new=(--data-dir "$dir/new" --name b)
etcdutl=("${new[@]}" --initial-cluster b=http://127.0.0.1:3 --initial-advertise-peer-urls http://127.0.0.1:3)
quorate=(env ETCD_INITIAL_CLUSTER=b=http://127.0.0.1:3 ETCD_INITIAL_CLUSTER_TOKEN=t bin/quorate-snapshot restore "${new[@]}" --marker "$dir/none" --peer-url http://127.0.0.1:3 --etcd-version "$version" --etcd "$bin/etcd" --etcdutl "$bin/etcdutl")
for _ in $(seq "$runs"); do
  timed "etcdutl" "$bin/etcdutl" snapshot restore "$dir/store/snapshot.db" "${etcdutl[@]}"
  timed "cp and etcdutl" sh -c 'cp "$1" "$2" && shift && exec "$0" snapshot restore "$@"' "$bin/etcdutl" "$dir/store/snapshot.db" "$dir/copy.db" "${etcdutl[@]}"
  timed "from a snapshot" "${quorate[@]}" --url "file://$dir/store/snapshot.db"
  timed "from a survivor" "${quorate[@]}" --from-data "$dir/old"
done
