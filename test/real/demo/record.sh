#!/usr/bin/env bash
# Plays a story in the lab and writes down what a person would have seen: docs/evidence/recording.txt, and a part of it into README.md. Run by
# `make recording`, after `make install`.
#
# What is written is what was printed, under these rules and no others:
#   - Before a command, and before a line that came while one waited, there are the seconds since the beginning.
#   - "kubectl get" is asked several times a second. A line is written when it differs from the one before in anything but AGE.
#   - Trailing blanks are cut off. Lines are not.
# The part in README.md is the section whose heading begins with "The leader".
set -euo pipefail
cd "$(dirname "$0")/../../.."

recording=docs/evidence/recording.txt
dir=$(mktemp -d -p /var/tmp)
began=$(date +%s%N)
: >"$dir/recording"

finish() {
  rm -f "$dir/writing"
  wait || :
  # The snapshot first: what it has stored is deleted by a Job, and in a namespace that ends none can be made.
  kubectl delete etcdsnapshot --all --timeout=60s >/dev/null || :
  kubectl delete namespace recording --ignore-not-found --wait=false >/dev/null
  rm -rf "$dir"
}

# A kubeconfig whose namespace is the story's, so that the commands read as a user's do; and the plugin, and the lab's program.
cp "$KUBECONFIG" "$dir/kubeconfig"
export KUBECONFIG=$dir/kubeconfig PATH=$dir:$PATH
kubectl config set-context --current --namespace=recording >/dev/null
ln -s "$PWD/bin/quorate" "$dir/kubectl-quorate"
trap finish EXIT

since() { local now; now=$(date +%s%N); printf '%6d.%d' $(((now - began) / 1000000000)) $(((now - began) / 100000000 % 10)); }
note() { sed 's/[[:space:]]*$//' | tee -a "$dir/recording"; }
section() { printf '\n\n## %s\n' "$1" | note; }
say() { printf '\n%s # %s\n' "$(since)" "$1" | note; }

# run COMMAND...: the command as it could be typed again, and all that it prints.
run() {
  local shown="" word
  for word in "$@"; do
    if [[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]]; then shown+=" $word"; else shown+=" '$word'"; fi
  done
  printf '\n%s $%s\n' "$(since)" "$shown" | note
  "$@" 2>&1 | note
}

# follow TEST KIND NAME WORDS: kubectl get until the test prints something, a line for each change, and the heading again when its columns have moved.
follow() {
  local until=$1 kind=$2 name=$3 before="" heading="" shown now
  printf '\n%s $ kubectl get %s %s   # until %s\n' "$(since)" "$kind" "$name" "$4" | note
  local deadline=$((SECONDS + 240)) reached=""
  while ((SECONDS < deadline)); do
    shown=$(kubectl get "$kind" "$name")
    now=$(awk 'NR == 2 { $NF = ""; print }' <<<"$shown")
    if [[ $now != "$before" ]]; then
      if [[ $(head -1 <<<"$shown") != "$heading" ]]; then
        heading=$(head -1 <<<"$shown")
        printf '         %s\n' "$heading" | note
      fi
      printf '%s %s\n' "$(since)" "$(sed -n 2p <<<"$shown")" | note
    fi
    before=$now
    if [[ -n $reached ]]; then return 0; fi # and what was printed came after that
    reached=$(eval "$until") || :
    sleep 0.2
  done
  echo "$kind $name is not so after four minutes: $4" >&2
  return 1
}

# rests VERSION: until nothing is left to do for the newest spec.
at_rest='kubectl get etcdcluster demo -o jsonpath="{.metadata.generation}/{.status.observedGeneration} {.status.rule} {.status.readyReplicas}/{.spec.replicas} {.status.version}" | awk "{ split(\$1, g, \"/\") } g[1] == g[2] && \$2 == \"Converged\" && \$3 == \"3/3\" && \$4 == \"VERSION\""'
rests() { follow "${at_rest/VERSION/$1}" etcdcluster demo "it is Converged, with etcd $1"; }

# A client in the lab's network that writes through the Service, one key after the other, and notes what was acknowledged.
writer() {
  local file
  for file in ca.crt tls.crt tls.key; do
    kubectl get secret demo-client-tls -o jsonpath="{.data.${file/./\\.}}" | base64 -d >"$dir/$file"
  done
  touch "$dir/writing"
  cat >"$dir/write.sh" <<SH
n=0
while [ -e $dir/writing ]; do
  if timeout 3 $QUORATE_LAB_BIN/etcd-3.6.16/etcdctl --endpoints=https://demo.recording.svc:2379 --cacert=$dir/ca.crt --cert=$dir/tls.crt --key=$dir/tls.key \\
    put write-\$n \$n >/dev/null 2>&1; then date +%s%N >>$dir/acknowledged; n=\$((n + 1)); fi
done
SH
  : >"$dir/acknowledged"
  bin/lab exec 1 sh "$dir/write.sh" &
  local deadline=$((SECONDS + 30))
  until [[ $(wc -l <"$dir/acknowledged") -ge 5 ]]; do
    ((SECONDS < deadline)) || { echo "the writer writes nothing" >&2; return 1; }
    sleep 0.1
  done
}

# writer_ends: what was acknowledged, how much of it is there, and how long it took at most from one to the next.
writer_ends() {
  rm -f "$dir/writing"
  wait
  local acknowledged present longest
  acknowledged=$(wc -l <"$dir/acknowledged")
  present=$(kubectl exec demo-0 -c etcd -- etcdctl get write- --prefix --keys-only | grep -c '^write-')
  longest=$(awk 'NR > 1 && $1 - before > most { most = $1 - before } { before = $1 } END { printf "%.1f", most / 1e9 }' "$dir/acknowledged")
  say "The client: $acknowledged writes were acknowledged, $present of them are there; at most $longest s passed from one to the next."
  ((present >= acknowledged))
}

kubectl delete namespace recording --ignore-not-found >/dev/null
kubectl create namespace recording >/dev/null
began=$(date +%s%N)

section "A cluster of three members is made"
run grep -v '^#' manifests/samples/etcdcluster.yaml
run kubectl apply -f manifests/samples/etcdcluster.yaml
rests 3.6.16
run kubectl quorate status
run kubectl exec demo-0 -c etcd -- etcdctl put greeting hello

section "The leader is killed while a client writes"
writer
leader=$(kubectl get etcdcluster demo -o jsonpath='{.status.leader}')
run kubectl get etcdcluster demo
run kubectl delete pod "$leader" --grace-period=0 --force --wait=false
follow 'kubectl get etcdcluster demo -o jsonpath="{.status.leader}" | grep -v "^'"$leader"'\$"' etcdcluster demo "another one leads"
rests 3.6.16
writer_ends

section "An upgrade from etcd 3.6 to 3.7 while a client writes"
writer
run kubectl patch etcdcluster demo --type=merge -p '{"spec":{"version":"3.7.3"}}'
rests 3.7.3
writer_ends
run kubectl quorate status

section "A snapshot, a mistake, and the way back"
run kubectl apply -f manifests/samples/snapshot.yaml
follow 'kubectl get etcdsnapshot demo-first -o jsonpath="{.status.phase}" | grep Succeeded' etcdsnapshot demo-first "it is stored, and was restored on trial"
run kubectl exec demo-0 -c etcd -- etcdctl del greeting
run kubectl quorate restore demo --snapshot=demo-first
follow 'kubectl get etcdcluster demo -o jsonpath="{.status.epoch} {.status.rule} {.status.readyReplicas}/{.spec.replicas}" | grep "^2 Converged 3/3$"' etcdcluster demo "the second epoch is Converged"
run kubectl exec "$(kubectl get etcdcluster demo -o jsonpath='{.status.leader}')" -c etcd -- etcdctl get greeting
run kubectl quorate status

{
  echo "A recording: what was printed in the lab (test/real/lab), on $(date -u +%Y-%m-%d), by \`make recording\`. $(grep -c . "$dir/recording") lines."
  echo "The numbers at the left are seconds since the beginning; the rules by which it was written down are in test/real/demo/record.sh."
  cat "$dir/recording"
} >"$recording"

# README.md: one section, as it is.
part=$(awk '/^## / { on = /^## The leader/ } on && !/^## /' "$recording" | sed -e '/./,$!d') awk '
  /<!-- recording: end -->/ { off = 0 }
  !off { print }
  /<!-- recording: begin/ { off = 1; printf "```text\n%s\n```\n", ENVIRON["part"] }
' README.md >"$dir/README.md"
cat "$dir/README.md" >README.md
echo "written: $recording, and its part in README.md"
