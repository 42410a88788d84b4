package model

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the stories of the mutants")

type mutant struct {
	why    string
	model  model
	breaks string
}

// mutants are rules that are wrong on purpose. The search must find every one of them, by what
// happens alone: what hooks.Verify has to say is left out.
var mutants = map[string]mutant{
	"voter_first_growth": {
		"A member that is added as a voter counts for the quorum before it runs.",
		model{Replicas: 1, Ready: true, Edits: 1, Sizes: []int{3}, AddsVoters: true},
		"S1: add learner demo-1 took the quorum away",
	},
	"promotion_without_a_probe": {
		"A learner that had caught up and then died is promoted by etcd without a word.",
		model{Replicas: 1, Ready: true, Edits: 1, Faults: 1, Sizes: []int{3}, Decide: promotesUnasked, Unproved: true},
		"S1: promote demo-1 took the quorum away",
	},
	"promotion_without_a_proof": {
		"A learner that answers us and is cut off from its leader is promoted, and its vote is missing.",
		model{Replicas: 1, Ready: true, Edits: 1, Faults: 1, Sizes: []int{3}, Unproved: true},
		"S1: promote demo-1 took the quorum away",
	},
	"freeze_when_blind": {
		"Who does nothing without a quorum's answer never brings back the pods that are the quorum.",
		model{Replicas: 1, Ready: true, Faults: 1, Decide: freezesBlind},
		"liveness:",
	},
	"claim_deleted_on_a_stale_view": {
		"A claim without a pod is taken for a leftover.",
		model{Replicas: 3, Ready: true, Faults: 1, Decide: tidiesClaims},
		"S7: the claim",
	},
	"name_reuse": {
		"The lowest free number is given to the next member.",
		model{Replicas: 3, Ready: true, Faults: 1, Decide: reusesNames},
		"S9: the name",
	},
	"removal_in_haste": {
		"A member is removed at once, while a call from before its addition is still on its way.",
		model{Replicas: 1, Ready: true, Edits: 2, Hitches: 1, Sizes: []int{1, 3}, Decide: neverWaits},
		"S9: the name demo-1 is used again",
	},
	"second_bootstrap": {
		"A lost status is taken for a cluster that never was.",
		model{Replicas: 1, Ready: true, Faults: 2, Decide: trustsStatus},
		"S10: demo-0 begins with an empty directory, and has had data",
	},
	"roll_unrecorded": {
		"The restarted member is not recorded: with an old view of the pods, another leader means another choice.",
		model{Replicas: 3, Ready: true, Edits: 1, Faults: 1, Hitches: 1, Templates: []uint8{1},
			Just: []deed{leaderMoves}, Decide: rollsUnrecorded},
		"S2: ",
	},
	"roll_before_the_start": {
		"A pod with another image serves on for a moment, and is taken for one that has started from it.",
		model{Replicas: 3, Ready: true, Edits: 1, Versions: []uint8{patchRelease}, Decide: seesNoExchange},
		"S2: ",
	},
	"hop_before_all_have_arrived": {
		"The next minor version is gone to while members still run the one before the last.",
		model{Replicas: 3, Ready: true, Edits: 1, From: minorBefore, Versions: []uint8{nextMinor}, Decide: hopsEarly},
		"S18: ",
	},
	"removal_of_the_majority": {
		"A shrink removes members that serve while others don't, with strict-reconfig-check off.",
		model{Replicas: 3, Ready: true, Edits: 1, Faults: 1, Sizes: []int{1}, Just: []deed{podKilled},
			Decide: shrinksAnyway, Lax: true},
		"S1: remove demo-",
	},
	"eviction_of_those_not_ready": {
		"The budget lets members go that are not ready, and no one is while there is no leader.",
		model{Medium: v1beta1.Memory, Replicas: 3, Ready: true, Evictions: 2, Decide: letsTheUnreadyGo},
		"S1: the eviction of demo-",
	},
	"promotion_that_the_budget_does_not_know": {
		"A learner is promoted while the budget is still that of fewer voters.",
		model{Medium: v1beta1.Memory, Replicas: 3, Ready: true, Evictions: 2, Edits: 1, Versions: noEdits,
			Templates: []uint8{1}, Sizes: noSizes, Decide: seesNoBudget},
		"S1: the eviction of demo-",
	},
	"self_hosted_is_paused": {
		"The etcd of the API server itself is stopped with replicas 0.",
		model{Replicas: 3, Ready: true, Edits: 1, Sizes: []int{0}, SelfHosted: true, Decide: knowsNoAPIServer},
		"S1: stopping members takes the quorum away",
	},
	"self_hosted_is_suspended": {
		"In the middle of a change nothing goes on, and the next lost member takes the API server along.",
		model{Replicas: 3, Ready: true, Edits: 2, Templates: []uint8{1}, SelfHosted: true, Decide: suspendsAtOnce},
		"liveness:",
	},
}

// TestVerifyKnowsSelfHosted: what the rules must not decide, hooks.Verify withholds.
func TestVerifyKnowsSelfHosted(t *testing.T) {
	m := mutants["self_hosted_is_paused"].model
	m.Medium = v1beta1.Persistent
	r := m.search()
	require.NotNil(t, r.Broken)
	assert.Contains(t, r.Broken.String(), "S1: 0 of 3 members stay, and the API server has its data here")
}

func TestMutantsAreFound(t *testing.T) {
	for name, mutant := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := mutant.model
			m.Unverified, m.Workers = true, 1
			if m.Medium == "" {
				m.Medium = v1beta1.Persistent
			}
			r := m.search()
			require.NotNil(t, r.Broken, "the search has missed it: %s", r)
			assert.True(t, slices.ContainsFunc(r.Broken.Rules,
				func(s string) bool { return strings.HasPrefix(s, mutant.breaks) }), "it breaks %q", r.Broken.Rules)
			golden(t, name, m.story(mutant.why, r.Broken.Path)+"# "+strings.Join(r.Broken.Rules, "\n# ")+"\n")

			right := model{
				Medium: m.Medium, Replicas: m.Replicas, Ready: m.Ready, Edits: m.Edits, Faults: m.Faults,
				Hitches: m.Hitches, Evictions: m.Evictions, Sizes: m.Sizes,
				Versions: m.Versions, Templates: m.Templates, From: m.From, Just: m.Just,
				SelfHosted: m.SelfHosted,
			}
			if r := right.search(); r.Broken != nil {
				t.Errorf("the shipped rules break it too: %s\n%s", r.Broken, right.story(mutant.why, r.Broken.Path))
			}
		})
	}
}

// golden compares with the shortest story of the mutant, as it is kept.
func golden(t *testing.T, name, story string) {
	t.Helper()
	path := filepath.Join("testdata", "mutants", name+".txt")
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(story), 0o600))
	}
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(kept), story, "go test ./test/simulated/model -run Mutants -rewrite writes it again")
}
