package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/endpoints"
	"github.com/quorate-dev/quorate/hooks/foreign"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
)

const firstForeign = 100 // IDs of foreign members begin there

// besideThree is a cluster of n voters of ours, of three that are wanted, beside old-0 to old-2 in plain text; old-0
// leads.
func besideThree(n int) observation.Observation {
	o := fresh(3)
	o.Cluster.Spec.TLS.Mode = v1alpha1.TLSDisabled
	o.Children.Secrets = map[string]*observation.Secret{}
	o.Cluster.Spec.Bootstrap = &v1alpha1.Bootstrap{Existing: &v1alpha1.ExistingCluster{
		Endpoints: []string{"http://old-0:2379"}}}
	o.Settings.AllowedEndpoints = &endpoints.AllowedEndpoints{Hosts: []string{"old-0", "old-1", "other"}}
	record := foreign.JoiningRecord(o.Cluster)
	record.UID = "uid-record"
	record.Annotations[objects.AnnotationClusterID], record.Annotations[objects.AnnotationNextMember] = "c1",
		objects.MemberName("", n)[1:]
	o.Children.ConfigMaps[record.Name] = record
	o.Etcd = &observation.Membership{ClusterID: 0xc1, Leader: firstForeign}
	var noted []string
	for i := range 3 {
		name := objects.MemberName("old", i)
		m := observation.Member{ID: uint64(firstForeign + i), Name: name,
			PeerURLs: []string{"http://" + name + ":2380"}, ClientURLs: []string{"http://" + name + ":2379"}}
		o.Etcd.Members = append(o.Etcd.Members, m)
		noted = append(noted, wording.Hex(m.ID)+" "+m.ClientURLs[0])
		o.Health[m.ClientURLs[0]] = observation.Health{ClusterID: 0xc1, MemberID: m.ID, Leader: firstForeign,
			Version: "3.6.10", RaftTerm: 2, RaftIndex: 1000, DBSize: 20480}
		o.Cluster.Status.Members = append(o.Cluster.Status.Members,
			v1alpha1.MemberStatus{Name: name, ID: wording.Hex(m.ID), Foreign: true,
				JoinTime: metav1.NewTime(now.Add(-time.Hour))})
	}
	record.Annotations[objects.AnnotationForeign],
		record.Annotations[objects.AnnotationForeignSince] = strings.Join(noted, ","),
		now.Add(-time.Hour).Format(time.RFC3339)
	for i := range n {
		addMember(&o, i, false)
		h := o.Health[objects.MemberName("demo", i)]
		h.Leader = firstForeign
		o.Health[objects.MemberName("demo", i)] = h
	}
	return o
}

func retiring(o observation.Observation) observation.Observation {
	o.Cluster.Spec.Bootstrap.Existing.RetireForeign = true
	return o
}

// change changes what a foreign member has answered.
func change(o *observation.Observation, name string, how func(h *observation.Health)) {
	h := o.Health["http://"+name+":2379"]
	how(&h)
	o.Health["http://"+name+":2379"] = h
}

func TestBesideForeignMembers(t *testing.T) {
	unrecorded := func(o observation.Observation) observation.Observation {
		for _, key := range []string{objects.AnnotationClusterID, objects.AnnotationForeign,
			objects.AnnotationForeignSince} {
			delete(o.Children.ConfigMaps["demo-epoch-1"].Annotations, key)
		}
		return o
	}
	with := func(o observation.Observation, do func(o *observation.Observation)) func() observation.Observation {
		return func() observation.Observation { do(&o); return o }
	}
	add := decision.AddLearner{Name: "demo-2", PeerURL: "http://demo-2.demo-peers.default.svc:2380"}
	for _, c := range []struct {
		name  string
		given func() observation.Observation
		rule  string
		step  decision.Step
		words string
	}{
		{"no member answers", with(unrecorded(besideThree(0)), func(o *observation.Observation) {
			o.Etcd, o.Health = nil, map[string]observation.Health{"http://old-0:2379": {Err: "connection refused"}}
		}), "Join", nil, "connection refused"},
		{"it answers for the first time", with(unrecorded(besideThree(0)), func(*observation.Observation) {}), "Join",
			nil,
			"recording the etcd cluster to join: c1, with"},
		{"endpoints of two clusters", with(unrecorded(besideThree(0)), func(o *observation.Observation) {
			o.Cluster.Spec.Bootstrap.Existing.Endpoints = []string{"http://old-0:2379", "http://other:2379"}
			o.Health["http://other:2379"] = observation.Health{Err: "another etcd", ClusterID: 0xbad, MemberID: 1}
		}), "Join", nil, "has two clusters"},
		{"another minor version", with(unrecorded(besideThree(0)), func(o *observation.Observation) {
			change(o, "old-1", func(h *observation.Health) { h.Version = "3.5.35" })
		}), "Join", nil, "old-1 runs etcd 3.5.35"},
		{"a release that loses members", with(unrecorded(besideThree(0)), func(o *observation.Observation) {
			change(o, "old-1", func(h *observation.Health) { h.Version = "3.6.2" })
		}), "Join", nil, "upgrade it to 3.5.26 or later, or 3.6.4 or later"},
		{"peers by TLS", with(unrecorded(besideThree(0)),
			func(o *observation.Observation) { o.Etcd.Members[2].PeerURLs[0] = "https://old-2:2380" }), "Join", nil,
			"by TLS"},
		{"too large a database", with(besideThree(2), func(o *observation.Observation) {
			change(o, "old-2", func(h *observation.Health) { h.DBSize = 700 << 20 })
		}), "Grow", nil, "raise spec.storage.size"},
		{"it lists none of ours, which have run", with(unrecorded(besideThree(1)), func(o *observation.Observation) {
			o.Etcd.Members = slices.DeleteFunc(o.Etcd.Members,
				func(m observation.Member) bool { return m.Name == "demo-0" })
		}), "WrongCluster", nil, "does not list demo-0"},
		{"another cluster answers later", with(besideThree(2),
			func(o *observation.Observation) { o.Etcd.ClusterID = 0xbad }),
			"WrongCluster", nil, ""},

		{"one is missing", func() observation.Observation { return besideThree(2) }, "Grow", add,
			"growing from 2 to 3 voters"},
		{"a foreign one is silent", with(besideThree(2), func(o *observation.Observation) {
			change(o, "old-1", func(h *observation.Health) { *h = observation.Health{Err: "connection refused"} })
		}), "Grow", nil, "waiting for old-1 to serve"},
		{"a foreign one was not asked",
			with(besideThree(2), func(o *observation.Observation) { delete(o.Health, "http://old-1:2379") }), "Grow",
			nil,
			"waiting for old-1 to serve"},
		{"all vote", func() observation.Observation { return besideThree(3) }, "ForeignMembers", nil, "retireForeign"},
		{"changes wait", with(besideThree(3), func(o *observation.Observation) {
			o.Cluster.Spec.PriorityClassName, o.Cluster.Spec.Version = "high", "3.7.3"
			askDefragment(o, "now")
		}), "ForeignMembers", nil, ""},
		{"their alarm is not ours to clear", with(besideThree(3), func(o *observation.Observation) {
			o.Etcd.Alarms = []observation.Alarm{{MemberID: firstForeign, Kind: observation.AlarmNoSpace}}
		}), "ForeignMembers", nil, ""},
		{"no claim is marked", with(besideThree(3), func(o *observation.Observation) {
			o.Etcd.Alarms = []observation.Alarm{{MemberID: firstForeign + 1, Kind: observation.AlarmCorrupt}}
		}), "Corrupt", nil, "you decide"},
		{"their downgrade is not ours to cancel", with(besideThree(3), func(o *observation.Observation) {
			change(o, "old-0", func(h *observation.Health) { h.Downgrade = "3.5.0" })
		}), "ForeignMembers", nil, ""},
		{"a dead foreign one is not given up", with(besideThree(3), func(o *observation.Observation) {
			change(o, "old-1", func(h *observation.Health) { *h = observation.Health{Err: "connection refused"} })
			o.Cluster.Status.Members[1].LastTransitionTime = metav1.NewTime(now.Add(-time.Hour))
			o.Cluster.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Available, Status: metav1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
			watch(o, 24*time.Hour)
		}), "ForeignMembers", nil, "waiting for old-1 to serve again"},

		{"nothing is restored", with(besideThree(3), func(o *observation.Observation) {
			askRestore(o, "back", v1alpha1.RestoreOperation{Epoch: new(int64(7))})
		}), "ForeignMembers", nil, ""},
		{"a lost quorum is not recovered by itself", with(besideThree(3), func(o *observation.Observation) {
			o.Etcd, o.Cluster.Spec.Recovery.QuorumLoss = nil, v1alpha1.RecoverFromSurvivor
			for i := range 2 {
				lose(o, objects.MemberName("demo", i))
				o.Cluster.Status.Members = append(o.Cluster.Status.Members,
					v1alpha1.MemberStatus{Name: objects.MemberName("demo", i), Role: v1alpha1.Voter})
			}
			o.Cluster.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Available, Status: metav1.ConditionFalse,
				LastTransitionTime: metav1.NewTime(now.Add(-24 * time.Hour))}}
			watch(o, 24*time.Hour)
		}), "Blind", nil, ""},

		{"a follower is retired first", func() observation.Observation { return retiring(besideThree(3)) },
			"RetireForeign",
			decision.Remove{ID: firstForeign + 1, Name: "old-1"}, ""},
		{"who does not serve is retired before that", with(retiring(besideThree(3)), func(o *observation.Observation) {
			change(o, "old-2", func(h *observation.Health) { *h = observation.Health{Err: "connection refused"} })
		}), "RetireForeign", decision.Remove{ID: firstForeign + 2, Name: "old-2"}, ""},
		{"not right after another one", with(retiring(besideThree(3)), func(o *observation.Observation) {
			o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationForeignSince] = now.Add(
				-foreign.RetirePause +
					time.Second).Format(time.RFC3339)
		}), "RetireForeign", nil, "old-1 is next, after a pause"},
		{"not while one of ours is silent",
			with(retiring(besideThree(3)), func(o *observation.Observation) { silence(o, "demo-1") }), "RetireForeign",
			nil,
			"waiting for demo-1"},
		{"not before all of ours vote", func() observation.Observation { return retiring(besideThree(2)) }, "Grow", add,
			""},
		{"the leader hands over to one of ours", with(retiring(besideThree(3)), func(o *observation.Observation) {
			o.Etcd.Members = append(o.Etcd.Members[:1], o.Etcd.Members[3:]...)
			o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationForeignSince] = now.Add(
				-time.Hour).Format(time.RFC3339)
		}), "RetireForeign", decision.MoveLeader{To: 1, Name: "demo-0"}, ""},
		{"all are ours", with(retiring(besideThree(3)),
			func(o *observation.Observation) { o.Etcd.Members, o.Etcd.Leader = o.Etcd.Members[3:], 1 }), "Converged",
			nil, ""},

		{"replicas 0 is no pause",
			with(besideThree(3), func(o *observation.Observation) { o.Cluster.Spec.Replicas = new(int32(0)) }),
			"Shrink",
			decision.Remove{ID: 3, Name: "demo-2"}, ""},
		{"nor while blind", with(besideThree(3), func(o *observation.Observation) {
			o.Cluster.Spec.Replicas, o.Etcd = new(int32(0)),
				nil
		}), "Blind", nil, ""},
		{"a deletion lets ours leave",
			with(besideThree(3), func(o *observation.Observation) {
				o.Cluster.DeletionTimestamp = &metav1.Time{Time: now}
			}),
			"Shrink", decision.Remove{ID: 3, Name: "demo-2"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := onceChosen(t, c.given())
			d := Decide(o)
			assert.Equal(t, c.rule, d.Reason.Rule, d.Reason.Message)
			assert.Equal(t, c.step, d.Step)
			assert.Contains(t, d.Reason.Message, c.words)
			require.NoError(t, verify(o, d))
			for name := range o.Children.Pods {
				assert.NotNil(t, podIn(d, name), "the pod %s", name)
			}
		})
	}
}

// TestVerifyBesideForeignMembers: the oracle sees what the rules never do.
func TestVerifyBesideForeignMembers(t *testing.T) {
	for name, c := range map[string]struct {
		given  func() observation.Observation
		spoils func(o *observation.Observation, d *decision.Decision)
		broken string
	}{
		"a foreign one is removed that should stay": {func() observation.Observation { return besideThree(3) },
			func(_ *observation.Observation, d *decision.Decision) {
				d.Step = decision.Remove{ID: firstForeign + 1, Name: "old-1"}
			}, "S6"},
		"before ours vote": {func() observation.Observation { return retiring(besideThree(2)) },
			func(_ *observation.Observation, d *decision.Decision) {
				d.Step = decision.Remove{ID: firstForeign + 1, Name: "old-1"}
			}, "S6"},
		"the leader": {func() observation.Observation { return retiring(besideThree(3)) },
			func(_ *observation.Observation, d *decision.Decision) {
				d.Step = decision.Remove{ID: firstForeign, Name: "old-0"}
			}, "S6"},
		"one of ours that is wanted": {func() observation.Observation { return besideThree(3) },
			func(_ *observation.Observation, d *decision.Decision) {
				d.Step = decision.Remove{ID: 2, Name: "demo-1"}
			}, "S6"},
		"a database of theirs is defragmented": {func() observation.Observation { return besideThree(3) },
			func(_ *observation.Observation, d *decision.Decision) {
				d.Step = decision.Defragment{ID: firstForeign, Name: "old-0"}
			}, "S6"},
		"a member joins another minor version": {func() observation.Observation {
			o := besideThree(2)
			change(&o, "old-1", func(h *observation.Health) { h.Version = "3.5.35" })
			return o
		}, func(_ *observation.Observation, d *decision.Decision) {
			d.Step = decision.AddLearner{Name: "demo-2", PeerURL: "http://demo-2.demo-peers.default.svc:2380"}
		}, "S18"},
		"a pause takes our pods": {func() observation.Observation {
			o := besideThree(3)
			o.Cluster.Spec.Replicas = new(int32(0))
			return o
		}, func(_ *observation.Observation, d *decision.Decision) { d.Step, d.Children.Pods = nil, nil }, "S2"},
		"the record forgets them": {func() observation.Observation { return besideThree(3) },
			func(_ *observation.Observation, d *decision.Decision) {
				delete(d.Children.ConfigMaps[0].Annotations, objects.AnnotationForeign)
			}, "S8"},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.given()
			d := Decide(o)
			c.spoils(&o, &d)
			require.ErrorContains(t, verify(o, d), c.broken+":")
		})
	}
}

// TestForeignEndpoints: they are asked at the URLs of the spec, and at those that they advertise, as long as there
// are any.
func TestForeignEndpoints(t *testing.T) {
	urls := func(o observation.Observation) []string {
		var all []string
		for _, e := range state.Endpoints(o) {
			if e.Foreign {
				all = append(all, e.ClientURL)
			}
		}
		return all
	}
	o := besideThree(3)
	assert.Equal(t, []string{"http://old-0:2379", "http://old-1:2379", "http://old-2:2379"}, urls(o))
	record := o.Children.ConfigMaps["demo-epoch-1"]
	record.Annotations[objects.AnnotationForeign] = "64 http://127.0.0.1:2379 http://localhost:2379,65 " +
		"http://0.0.0.0:2379,66 http://127.0.0.2:2379 http://[::]:2379 http://[0:0:0:0:0:0:0:1]:2379 " +
		"http://[::ffff:127.0.0.1]:2379"
	assert.Equal(t, []string{"http://old-0:2379"}, urls(o), "no address that is one's own is asked")
	delete(record.Annotations, objects.AnnotationForeign)
	assert.Empty(t, urls(o), "they are gone")

	secure := besideThree(3)
	secure.Cluster.Spec.Bootstrap.Existing = &v1alpha1.ExistingCluster{Endpoints: []string{"https://old-0:2379"},
		TLS: &v1alpha1.ExistingTLS{SecretRef: v1alpha1.SecretRef{Name: "former"}, ServerName: "etcd.example"}}
	secure.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationForeign] = "64 http://old-0:2379,65 " +
		"https://old-1:2379"
	assert.Equal(t, []string{"https://old-0:2379", "https://old-1:2379"}, urls(secure),
		"no password goes out in plain text")
	for _, e := range state.ForeignEndpoints(secure) {
		assert.Equal(t, "etcd.example", e.ServerName)
	}

	located := state.Located(state.Endpoints(o), o.Etcd, o.Health)
	for _, e := range located {
		assert.NotEmpty(t, e.PeerURL, e.Name)
	}
}

// TestAMemberOfTheirsMayBeCalledLikeOneOfOurs: another name is found for it, also in what a new member is told.
func TestAMemberOfTheirsMayBeCalledLikeOneOfOurs(t *testing.T) {
	o := besideThree(2)
	o.Etcd.Members[1].Name = "demo-1"
	v := newView(o)
	assert.Equal(t, "65", v.ByID(firstForeign+1).DisplayName())
	names := map[string]bool{}
	for pair := range strings.SplitSeq(children.JoinCluster(v, v.Find("demo-0")), ",") {
		name, _, _ := strings.Cut(pair, "=")
		assert.False(t, names[name], "%s is there twice", name)
		names[name] = true
	}
}

// TestOursTrustTheForeignAuthority: in the mode Auto it is put beside our own before a pod is made, and taken out
// when the spec no longer names it.
func TestOursTrustTheForeignAuthority(t *testing.T) {
	o := fresh(3)
	spec := &v1alpha1.ExistingCluster{Endpoints: []string{"https://old-0:2379"},
		TLS: &v1alpha1.ExistingTLS{SecretRef: v1alpha1.SecretRef{Name: "former"}}}
	o.Cluster.Spec.Bootstrap = &v1alpha1.Bootstrap{Existing: spec}
	withCertificates(&o)
	o.Settings.AllowedEndpoints = &endpoints.AllowedEndpoints{Hosts: []string{"old-0"}}
	o.Children.ConfigMaps["demo-epoch-1"] = foreign.JoiningRecord(o.Cluster)

	d := Decide(o)
	assert.Equal(t, "WaitForCertificates", d.Reason.Rule)
	assert.Contains(t, d.Reason.Message, "Secret former: it does not exist")
	theirs := observation.Certificate{ID: "theirs", CommonName: "former", Subject: "theirs", Key: "theirs",
		Issuer: "theirs", NotAfter: now.AddDate(1, 0, 0), Authority: true}
	o.Related.Secrets = map[string]*observation.Secret{"former": {ObjectMeta: metav1.ObjectMeta{Name: "former"},
		Keys: []string{objects.KeyTrust}, Trust: []observation.Certificate{theirs}}}
	d = Decide(o)
	assert.Equal(t, "WaitForCertificates", d.Reason.Rule, "no member trusts it yet")
	own := o.Children.Secrets["demo-ca"].Certificate.ID
	assert.Equal(t, decision.Adopt{Keep: []string{own}, From: "former"}, recipeOf(d, "demo-ca"))

	ca := o.Children.Secrets["demo-ca"]
	ca.Trust = append(ca.Trust, theirs)
	d = Decide(o)
	assert.Nil(t, recipeOf(d, "demo-ca"))
	assert.Equal(t, decision.Bundle{Signer: "demo-ca"}, recipeOf(d, "demo-peer-tls"))

	o.Cluster.Spec.Bootstrap = nil
	assert.Equal(t, decision.Adopt{Keep: []string{own}}, recipeOf(Decide(o), "demo-ca"))
}

func recipeOf(d decision.Decision, secret string) decision.Recipe {
	for _, s := range d.Children.Secrets {
		if s.Name == secret {
			return s.Make
		}
	}
	return nil
}

// TestPlainTextBesideIsSaid: while foreign members are asked without TLS, the condition Secured is False and says so,
// whatever our own members speak.
func TestPlainTextBesideIsSaid(t *testing.T) {
	secured := func(o observation.Observation) *metav1.Condition {
		return meta.FindStatusCondition(Decide(o).Status.Conditions, v1alpha1.Secured)
	}
	const words = "in plain text, so anything on the network can answer"
	o := besideThree(3)
	assert.Equal(t, "Disabled", secured(o).Reason)
	assert.Contains(t, secured(o).Message, words)
	o = besideThree(0)
	o.Cluster.Spec.TLS.Mode = v1alpha1.TLSAuto
	withCertificates(&o)
	assert.Equal(t, "ForeignPlaintext", secured(o).Reason)
	assert.Contains(t, secured(o).Message, words)
	o.Cluster.Spec.Bootstrap.Existing.TLS = &v1alpha1.ExistingTLS{SecretRef: v1alpha1.SecretRef{Name: "former"}}
	assert.NotContains(t, secured(o).Message, words)
	o.Cluster.Spec.Bootstrap = nil
	assert.NotContains(t, secured(o).Message, words)
}

// TestThePeersDoor: it is open to all names beside foreign members, and a member that was started so is restarted
// when they are gone.
func TestThePeersDoor(t *testing.T) {
	o := serve(3)
	assert.False(t, state.TLSFlagsOf(o.Children.Pods["demo-1"]).AnyPeer)
	for _, pod := range o.Children.Pods {
		foreign.AllowAnyPeer(pod)
		assert.True(t, state.TLSFlagsOf(pod).AnyPeer)
	}
	d := Decide(o)
	assert.Equal(t, "RollingUpdate", d.Reason.Rule)
	assert.Contains(t, d.Reason.Message, "demo-1")
	require.NoError(t, verify(o, d))
}
