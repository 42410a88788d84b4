package model

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	rec "github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
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

// ---- what mutants see and decide otherwise

// decider stands for hooks.Decide; nil is the shipped one.
type decider func(observation.Observation) decision.Decision

// sees is the decision on other objects: copies, each changed.
func sees[T interface{ DeepCopy() T }](all map[string]T, change func(T)) map[string]T {
	others := map[string]T{}
	for name, o := range all {
		others[name] = o.DeepCopy()
		change(others[name])
	}
	return others
}

// asks is a decision in which objects are others: copies, each changed.
func asks[T interface{ DeepCopy() T }](all []T, change func(T)) (others []T) {
	for _, o := range all {
		others = append(others, o.DeepCopy())
		change(others[len(others)-1])
	}
	return others
}

// ofAnother decides for a cluster that says something else.
func ofAnother(o observation.Observation, change func(*v1beta1.EtcdCluster)) decision.Decision {
	o.Cluster = o.Cluster.DeepCopy()
	change(o.Cluster)
	return hooks.Decide(o)
}

// knowsNoAPIServer decides as for any other etcd; what Verify is shown has the field.
func knowsNoAPIServer(o observation.Observation) decision.Decision {
	return ofAnother(o, func(c *v1beta1.EtcdCluster) { c.Spec.SelfHosted = false })
}

// letsTheUnreadyGo has a budget that protects members which are ready alone.
func letsTheUnreadyGo(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	for _, b := range d.Children.Budgets {
		b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	}
	return d
}

// seesNoBudget decides without a look at the budget that there is.
func seesNoBudget(o observation.Observation) decision.Decision {
	o.Children.Budgets = nil
	return hooks.Decide(o)
}

// suspendsAtOnce does not wait for the end of what is under way.
func suspendsAtOnce(o observation.Observation) decision.Decision {
	return ofAnother(o, func(c *v1beta1.EtcdCluster) { c.Status.Rule = "Suspended" })
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

// promotesUnasked believes that every learner serves and has caught up.
func promotesUnasked(o observation.Observation) decision.Decision {
	if o.Etcd != nil {
		o.Health = maps.Clone(o.Health)
		for _, m := range o.Etcd.Members {
			if m.Learner && m.Started() {
				o.Health[m.Name] = observation.Health{ClusterID: o.Etcd.ClusterID, MemberID: m.ID,
					Leader: o.Etcd.Leader, Learner: true, RaftIndex: 100}
			}
		}
	}
	return hooks.Decide(o)
}

// freezesBlind leaves everything as it is while no quorum answers.
func freezesBlind(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	if o.Etcd == nil && d.Reason.Rule == "Blind" {
		d.Children, _ = answer.Finalize(o)
	}
	return d
}

// tidiesClaims deletes the claims that have no pod.
func tidiesClaims(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	d.Children.Claims = slices.DeleteFunc(slices.Clone(d.Children.Claims), func(c *corev1.PersistentVolumeClaim) bool {
		return o.Etcd != nil && o.Children.Claims[c.Name] != nil && o.Children.Pods[c.Name] == nil
	})
	return d
}

// reusesNames gives a new member the lowest number of which nothing is seen.
func reusesNames(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	if _, adds := d.Step.(decision.AddLearner); !adds {
		return d
	}
	taken := func(name string) bool {
		return o.Children.Pods[name] != nil || o.Children.Claims[name] != nil || slices.ContainsFunc(o.Etcd.Members,
			func(m observation.Member) bool {
				return slices.Contains(m.PeerURLs, objects.PeerURL(o.Cluster, name, ""))
			})
	}
	n := 0
	for taken(objects.MemberName(o.Cluster.Name, n)) {
		n++
	}
	name := objects.MemberName(o.Cluster.Name, n)
	d.Step = decision.AddLearner{Name: name, PeerURL: objects.PeerURL(o.Cluster, name, "")}
	return d
}

// neverWaits takes every member for one that has been there for long.
func neverWaits(o observation.Observation) decision.Decision {
	c := o.Cluster.DeepCopy()
	c.Status.Members = nil
	if o.Etcd != nil {
		for _, m := range o.Etcd.Members {
			c.Status.Members = append(c.Status.Members, v1beta1.MemberStatus{Name: m.Name, ID: hexID(int(m.ID) - 1),
				JoinTime: metav1.Unix(1, 0)})
		}
	}
	d := hooks.Decide(observation.Observation{Cluster: c, Children: o.Children, Etcd: o.Etcd, Health: o.Health,
		Taken: o.Taken, Now: o.Now, Settings: o.Settings})
	d.Status.Members = nil
	return d
}

// trustsStatus begins a new cluster when the status knows of none.
func trustsStatus(o observation.Observation) decision.Decision {
	if o.Cluster.Status.ClusterID == "" && o.Etcd == nil {
		o.Children.ConfigMaps = sees(o.Children.ConfigMaps, func(record *corev1.ConfigMap) {
			recordtest.Edit(record, func(r *rec.Record) {
				if r.ClusterID != 0 { // else it has only just begun
					r.StartsOn = nil
					r.ClusterID = 0
				}
			})
		})
	}
	return hooks.Decide(o)
}

// recordOf is the epoch record of an observation or a decision, to be changed.
func recordOf(all map[string]*corev1.ConfigMap) *corev1.ConfigMap {
	return all[objects.EpochName(clusterName, 1)].DeepCopy()
}

// rollsUnrecorded restarts the member that it has just chosen, as if that had been recorded before.
func rollsUnrecorded(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	if d.Reason.Rule != "RollingUpdate" {
		return d
	}
	record := recordOf(o.Children.ConfigMaps)
	recordtest.Edit(record, func(r *rec.Record) { r.Choice = recordtest.Says(d.Children.ConfigMaps[0]).Choice })
	chosen := o
	chosen.Children.ConfigMaps = map[string]*corev1.ConfigMap{record.Name: record}
	if d = hooks.Decide(chosen); len(d.Children.ConfigMaps) > 0 {
		recordtest.Edit(d.Children.ConfigMaps[0], func(r *rec.Record) { r.Choice = rec.Choice{} })
	}
	return d
}

// seesNoExchange takes the image that a pod is given for what runs in it.
func seesNoExchange(o observation.Observation) decision.Decision {
	o.Children.Pods = sees(o.Children.Pods, func(p *corev1.Pod) { delete(p.Annotations, objects.AnnotationExchanged) })
	o.Health = maps.Clone(o.Health)
	for name, h := range o.Health {
		h.Version = tagOf(o.Children.Pods[name].Annotations[objects.AnnotationImage])
		o.Health[name] = h
	}
	return hooks.Decide(o)
}

// hopsEarly records the wanted version while the members are still on their way to the one before it.
func hopsEarly(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	record := recordOf(o.Children.ConfigMaps)
	if d.Reason.Rule == "RollingUpdate" && recordtest.Says(record).Version == releases[usualVersion] {
		recordtest.Edit(d.Children.ConfigMaps[0], func(r *rec.Record) { r.Version = o.Cluster.Spec.Version })
	}
	return d
}

// shrinksAnyway removes a follower that serves whenever there are too many voters.
func shrinksAnyway(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	if o.Etcd == nil || o.Taken != nil || len(o.Etcd.Members) <= int(*o.Cluster.Spec.Replicas) {
		return d
	}
	for _, m := range slices.Backward(o.Etcd.Members) {
		if m.ID != o.Etcd.Leader && o.Health[m.Name].Serving() {
			d.Step = decision.Remove{ID: m.ID, Name: m.Name}
			return d
		}
	}
	return d
}
