#!/usr/bin/env bash
# Plays what is long and rare, in parts. Without an argument: all of them; with a number, that part; with BRIEF=1, some minutes of each.
# With the word which: prints the part that this commit chooses; with skipped: the self-hosted stages that it leaves out. Seeds are made of the commit, so that the same line plays the same again.
set -euo pipefail
cd "$(dirname "$0")/../.."

commit=$(git rev-parse HEAD)
seed=$((16#${commit:0:6} + 1))
parts=(chaos model walks fuzz versions ipv6 selfhosted gibibyte fleet nodes reproducible)
briefly=6 # the first parts, which take some minutes with BRIEF=1: one of them is chosen

# either VALUE BRIEFLY
either() { if [[ -n ${BRIEF:-} ]]; then echo "$2"; else echo "$1"; fi; }

# Whatever needs the lab brings it up; what is no target of `bin/steps` becomes one, so that it is counted.
play() {
  case $1 in
    chaos) make chaos FOR="$(either 30m 4m)" SEED=$seed ;;
    model) bin/steps "model: go test -json ./test/simulated/model -count=1 -deep -timeout 60m $(either '' "-run 'Takeovers|Foreign|Succession|Mutants' -skip 'ForeignMembers/.*(two_of|more_trouble)'")" ;;
    walks) bin/steps \
      "model: go test -json ./test/simulated/model -count=1 -run Walks -timeout 60m -seed $seed -steps $(either 1000000 200000)" \
      "stories: QUORATE_VERIFY=1 go test -json ./test/simulated/scenario -count=1 -run Wander -timeout 60m -wanderings $(either 2000 120)" ;;
    fuzz) bin/steps "fuzz: make -s fuzz FUZZTIME=$(either 5m 15s)" ;;
    ipv6) make e2e-ipv6 ;;
    selfhosted) make e2e-selfhosted ;;
    gibibyte) make story RUN=TestAGibibyte ;;
    versions) make story RUN="$(either 'Version|UpgradesAndDowngrades|CertificatesRenew|APIServer|CoreDNS' TestEveryMinorVersion)" ;;
    fleet) make bench-fleet ;;
    nodes) make lab-down && NODES=5 make story RUN=TestNodesComeAndGo ;; # a lab that is up keeps its nodes
    reproducible) bin/steps "reproducible: make -s reproducible" ;;
  esac
}

case ${1:-} in
  skipped) # each of these takes as long as the other, four minutes, and no other stage needs it
    stages=('FiveMembersAndBack|AnAuthorityIsSucceeded|ANodeIsDrained' 'ARollingChange|QuorateIsReplaced|MembersNeedNothing')
    unset "stages[16#${commit:4:4} % 2]"
    stages+=(ADatabaseFillsUp) # TestUpkeep tells it in less time
    (IFS='|'; echo "^(${stages[*]})\$") ; exit ;;
  which) echo $((16#${commit:0:4} % briefly + 1)); exit ;;
  '') chosen=$(seq ${#parts[@]}) ;;
  *) chosen=$1 ;;
esac

failed=0
for part in $chosen; do
  name=${parts[part - 1]:?there are ${#parts[@]} parts}
  echo "=== nightly, part $part of ${#parts[@]}: $name, at $commit. Again: make nightly PART=$part${BRIEF:+ BRIEF=1}"
  play "$name" || failed=1
done
exit $failed
