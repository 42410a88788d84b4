#!/usr/bin/env bash
# Everything that is tested besides `make test` and `make check`, in parts of ten minutes at most on two cores.
#   parts.sh              lists the parts, and which commit played each last on this machine
#   parts.sh play PART    plays one
#   parts.sh due          names the one that was played longest ago; among those that were never played the commit chooses
#   parts.sh all          plays every part, and writes docs/evidence/stories.md
# A run adds a line to the file `played` in the lab's folder: part, commit, time, result (with the tests that failed), seconds.
# Continuous integration plays core and the part that is due. test/real/parts_test.go asks that each story is in one part.
set -euo pipefail
cd "$(dirname "$0")/../.."

played=${QUORATE_LAB:-$HOME/.cache/quorate-lab}/played
page=docs/evidence/stories.md
commit=$(git rev-parse --short=12 HEAD)
seed=$((16#${commit:0:6} + 1)) # the same commit plays the same again

# what PART: what is in it; of stories their names.
what() {
  case $1 in
    core) echo TestMembers TestOneMember TestUsersAndRoles TestSnapshots TestQuorateHasNoCredentials TestTokenIsNowhere TestNoKeyInAnAnnotation TestABootstrapThatStallsSaysSo TestAVersionIsCorrectedBeforeTheClusterBegins ;;
    data) echo TestEpochs TestStream TestSchedule TestMirror TestMirrorOfStored TestANamespaceComesBackFromABackup ;;
    volumes) echo TestUpkeep TestVolumes TestVolumeSnapshots TestClaims ;;
    moves) echo TestJoinPlainAndBack TestJoinByTLSAndStay TestJoinWithTheirAuthority TestJoinBitnami TestMoveOut TestOnTheHostsNetwork TestMembersOnNodes ;;
    changes) echo TestUpgradesAndDowngrades TestMemory TestCertificatesRenewThemselvesUnderLoad TestPlainTextLearnsTLSUnderLoad TestRevokedClients TestCertificatesOfOnesOwn TestCertManager TestComesBackWithoutTheOperatorsCertificate TestDisruptions TestWhatKubernetesRefusesIsSaid TestTenantsAskForTooMuch TestCheck ;;
    pages) echo TestDocuments TestSamples ;;
    versions) echo TestEveryMinorVersion TestJoinEveryMinorVersion TestJoinAStatefulSet TestAPIServer TestCoreDNS ;;
    big) echo TestLargeDatabase TestPage TestWhoLeads ;;
    nodes) echo TestNodesComeAndGo TestTwoOfThreeNodesAreLost TestTwoOfThreeNodesStayDead ;;
    chaos) echo TestChaos ;;
    upgrade) echo TestUpgradeOfQuorate ;;
    selfhosted-*) echo "TestSelfHosted, without $(skipped "$1" | sed "s/|/, /g")" ;;
    ipv6) echo "TestIPFamilies and two of moves, with IPv6 alone and with both" ;;
    install) echo test/real/install ;;
    releases) echo "test/real/conformance: every release of etcd, and stores" ;;
    model) echo "test/simulated/model: some of the deep searches" ;;
    walks) echo "random walks of the model and of stories" ;;
    fuzz) echo "every fuzz test" ;;
  esac
}
# Stories that have a target of their own: they measure, or want checkouts of other projects.
# shellcheck disable=SC2034 # read by test/real/parts_test.go
elsewhere="TestFleet TestKamaji TestKarmada TestMembersBesideOthers TestPatroni TestRollBesideByHand"
parts=(core data volumes moves changes pages versions big nodes chaos upgrade selfhosted-1 selfhosted-2 selfhosted-3 ipv6 install releases model walks fuzz)

tags=$(sed -n 's/^TAGS := //p' Makefile)

# gotest FLAGS AND PACKAGES: with Go alone.
gotest() {
  make --no-print-directory bin/gotestsum && QUORATE_VERIFY=1 test/tools/gotest.sh -count=1 -timeout 60m -vet=off "$@"
}

# in_lab COMMAND: in the network of the lab that is up, with its kubectl.
in_lab() {
  eval "$(bin/lab env)" && "$@"
}

# e2e NAMES [FLAGS]: these stories on the lab that is up.
e2e() {
  FORMAT=testname in_lab gotest -parallel 1000 -tags "$tags,e2e" -run "^(${1// /|})\$" ./test/real/e2e/ "${@:2}"
}

# stories NAMES [FLAGS]: the same, on the lab that they need.
stories() {
  export NODES=${NODES:-3} ETCD_RELEASES=1 CERT_MANAGER=1 EXPANDABLE=1
  make --no-print-directory s3 install && e2e "$1" "${@:2}"
}

# fresh: another lab takes the place of the one that is up.
fresh() {
  make --no-print-directory image lab-down lab-up && bin/lab load "$PWD/bin/quorate.tar"
}

# upgrade: this Quorate takes over under running clusters from the commit in testdata/previous-release, and back.
upgrade() {
  export NODES=3
  make --no-print-directory s3 && fresh && bin/lab metacontroller && e2e TestUpgradeOfQuorate
}

# skipped PART: the stages of the self-hosted story that the other parts tell.
skipped() {
  local stages=('LeaderKilled|ADiskIsLost|FiveMembersAndBack|AnUpgrade|ADatabaseFillsUp'
    'ARollingChange|AnAuthorityIsSucceeded|QuorateIsReplaced|ANodeIsDrained|ANodeIsPoweredOff' 'MembersNeedNothing|AllNodesAreOff')
  unset "stages[${1#selfhosted-} - 1]"
  (IFS='|'; echo "${stages[*]}")
}

# selfhosted PART: a Kubernetes moves its own data into an EtcdCluster that it runs, and lives with that.
selfhosted() {
  export QUORATE_LAB_ETCD=3.5.35 NODES=5
  make --no-print-directory etcd-binaries && fresh && bin/lab etcd && in_lab test/tools/install.sh &&
    e2e TestSelfHosted -skip "^TestSelfHosted\$/^($(skipped "$1"))\$"
  ended $?
}

# ipv6 FAMILIES NAMES: stories where Kubernetes has IPv6 addresses alone (v6), or of both families (dual).
ipv6() {
  export QUORATE_LAB_IP=$1 NODES=3
  make --no-print-directory s3 && fresh && in_lab test/tools/install.sh && e2e "$2"
  ended $?
}

# install: helm installs, upgrades and uninstalls; for one namespace; two Quorates side by side.
install() {
  export NODES=1
  make --no-print-directory bin/helm && fresh && bin/lab metacontroller &&
    FORMAT=testname in_lab gotest -tags "$tags,e2e" ./test/real/install/
  ended $?
}

# ended RESULT: the next part wants an ordinary lab.
ended() {
  bin/lab down
  return "$1"
}

play() {
  case $1 in
    core | data | volumes | moves | changes | pages) stories "$(what "$1")" ;;
    versions | big) stories "$(what "$1")" -long ;;
    nodes) # whole, half an hour: make lab-down story NODES=5 RUN=TestNodesComeAndGo
      make --no-print-directory lab-down && NODES=5 stories "$(what nodes)" -long -nodes.for 8m
      ended $?
      ;;
    chaos) stories TestChaos -chaos.for 5m -chaos.seed $seed ;;
    upgrade) upgrade ;;
    selfhosted-*) selfhosted "$1" ;;
    ipv6) ipv6 v6 'TestIPFamilies TestOnTheHostsNetwork TestJoinByTLSAndStay' && ipv6 dual TestIPFamilies ;;
    install) install ;;
    releases) make conformance ;;
    model) gotest ./test/simulated/model -deep -run 'Takeovers|External|Rotation|Mutants' -skip 'ExternalMembers/.*(two_of|more_trouble)' ;;
    walks)
      gotest ./test/simulated/model -run Walks -seed $seed -steps 200000 &&
        gotest ./test/simulated/scenario -run Wander -wanderings 120
      ;;
    fuzz) make fuzz FUZZTIME=15s ;;
    *) echo "there is no part called $1; there are ${parts[*]}" >&2 && return 2 ;;
  esac
}

# record PART RESULT SECONDS
record() {
  mkdir -p "$(dirname "$played")"
  printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$commit" "$(date -u +%FT%TZ)" "$2" "$3" >> "$played"
}

# last PART: commit, time, result and seconds of the last run.
last() {
  if [[ -e $played ]]; then awk -F '\t' -v part="$1" '$1 == part { line = $2 "\t" $3 "\t" $4 "\t" $5 } END { print line }' "$played"; fi
}

# failed FOLDER: the tests that failed; of those with others in them the inner ones.
failed() {
  find "$1" -name '*.json' -exec cat {} + | sed -n 's/.*"Action":"fail".*"Test":"\([^"]*\)".*/\1/p' | sort -ru |
    awk 'index(last, $0 "/") != 1 { print last = $0 }' | sort | xargs
}

recorded() {
  local began=$SECONDS result=ok results
  results=$(mktemp -d)
  (export RESULTS=$results; play "$1") || result="FAIL $(failed "$results")"
  record "$1" "${result% }" $((SECONDS - began))
  if [[ -n ${RESULTS:-} ]]; then find "$results" -name '*.json' -exec cp {} "$RESULTS" \; ; fi # of continuous integration
  rm -rf "$results"
  [[ $result == ok ]]
}

# since PART COMMIT: the stories of the part that were not in it at that commit; empty for none.
since() {
  local then
  then=$(git show "$2:test/real/parts.sh" 2> /dev/null) || return 0
  for story in $(what "$1"); do
    if [[ $story == Test* ]] && ! grep -qw "$story" <<< "$then"; then printf ' %s' "$story"; fi
  done
}

# table: the parts as a page of Markdown, with their last runs.
table() {
  printf '%s\n' '# All stories' '' 'Written by `make all-stories`: the last run of each part on one machine, each at its own commit.' '' \
    'FAIL: a test of the part failed in that run, and is named behind it (not in rows before 2026-11-30),' \
    'or the lab did not start. It stays until the part is played again. [Flakes](../../test/flakes.md)' \
    'has the causes that were mended, [weak points](README.md#known-weak-points) the open bugs of' \
    'Quorate. A FAIL in neither is not explained yet.' '' '<!-- generated: begin stories -->' \
    '| Part | What is in it | Commit | When | Result | Seconds |' '| --- | --- | --- | --- | --- | --- |'
  for part in "${parts[@]}"; do
    IFS=$'\t' read -r of when result seconds <<< "$(last "$part")" || true
    local added=''
    if [[ -n $of ]]; then added=$(since "$part" "$of"); fi
    result+=${added:+, without$added}
    printf '| %s | %s | %s | %s | %s | %s |\n' "$part" "$(what "$part")" "${of:-never}" "${when%T*}" "$result" "$seconds"
  done
  echo '<!-- generated: end -->'
}

case ${1:-} in
  play) recorded "${2:?which part? There are ${parts[*]}}" ;;
  due)
    # Turned by the commit, so that on a new machine each commit begins with another one.
    others=("${parts[@]:1}")
    for ((n = seed % ${#others[@]}; n > 0; n--)); do others=("${others[@]:1}" "${others[0]}"); done
    for part in "${others[@]}"; do printf '%s\t%s\n' "$(last "$part" | cut -f 2)" "$part"; done | sort -s -k 1,1 -t $'\t' | head -n 1 | cut -f 2
    ;;
  all)
    failed=0
    for part in "${parts[@]}"; do recorded "$part" || failed=1; done
    table > "$page"
    exit $failed
    ;;
  '') table ;;
  *) sed -n '2,/^set/{/^#/p}' "$0" >&2; exit 2 ;;
esac
