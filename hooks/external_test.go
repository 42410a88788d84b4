package hooks

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
)

const firstExternal = 100 // IDs of external members begin there

// besideThree is a cluster of n voters of ours, of three that are wanted, beside old-0 to old-2 in plain text; old-0
// leads.
func besideThree(n int) observation.Observation {
	o := fresh(3)
	o.Cluster.Spec.TLS.Mode = v1beta1.TLSDisabled
	o.Children.Secrets = map[string]*observation.Secret{}
	o.Cluster.Spec.Bootstrap = &v1beta1.Bootstrap{External: &v1beta1.ExternalCluster{
		ExternalEtcd: v1beta1.ExternalEtcd{Endpoints: []string{"http://old-0:2379"}}}}
	o.Settings.AllowedEndpoints = &objects.AllowedEndpoints{Hosts: []string{"old-0", "old-1", "other"}}
	r := answer.JoiningRecord(o.Cluster)
	r.ClusterID = 0xc1
	r.NextOrdinal = n
	r.External = map[string][]string{}
	r.ExternalSince = now.Add(-time.Hour)
	o.Etcd = &observation.Membership{ClusterID: 0xc1, Leader: firstExternal}
	for i := range 3 {
		name := objects.MemberName("old", i)
		m := observation.Member{ID: uint64(firstExternal + i), Name: name,
			PeerURLs: []string{"http://" + name + ":2380"}, ClientURLs: []string{"http://" + name + ":2379"}}
		o.Etcd.Members = append(o.Etcd.Members, m)
		r.External[objects.Hex(m.ID)] = m.ClientURLs
		o.Health[m.ClientURLs[0]] = observation.Health{ClusterID: 0xc1, MemberID: m.ID, Leader: firstExternal,
			Version: "3.6.10", RaftTerm: 2, RaftIndex: 1000, DBSize: 20480}
		o.Cluster.Status.Members = append(o.Cluster.Status.Members,
			v1beta1.MemberStatus{Name: name, ID: objects.Hex(m.ID), External: true,
				JoinTime: metav1.NewTime(now.Add(-time.Hour))})
	}
	cm := record.New(o.Cluster, 1, r)
	cm.UID = "uid-record"
	o.Children.ConfigMaps[cm.Name] = cm
	for i := range n {
		addMember(&o, i, false)
		h := o.Health[objects.MemberName("demo", i)]
		h.Leader = firstExternal
		o.Health[objects.MemberName("demo", i)] = h
	}
	return o
}

func retiring(o observation.Observation) observation.Observation {
	o.Cluster.Spec.RemoveExternalMembers = true
	return o
}

// TestBesideExternalMembers: the stories external_*.txt have what happens on the way; here is what stops it.
func TestBesideExternalMembers(t *testing.T) {
	unrecorded := noted(func(r *record.Record) {
		r.ClusterID = 0
		r.External = nil
		r.ExternalSince = time.Time{}
	})
	unanswered := func(o *observation.Observation) {
		o.Etcd, o.Health = nil, map[string]observation.Health{"http://old-0:2379": {Err: "connection refused"}}
	}
	twoClusters := func(o *observation.Observation) {
		o.Cluster.Spec.Bootstrap.External.Endpoints = []string{"http://old-0:2379", "http://other:2379"}
		o.Health["http://other:2379"] = observation.Health{Err: "another etcd", ClusterID: 0xbad, MemberID: 1}
	}
	alarm := func(member uint64, kind string) fact {
		return func(o *observation.Observation) {
			o.Etcd.Alarms = []observation.Alarm{{MemberID: member, Kind: kind}}
		}
	}
	dead := func(h *observation.Health) { *h = observation.Health{Err: "connection refused"} }
	quorumLost := func(o *observation.Observation) {
		o.Etcd, o.Cluster.Spec.Recovery.QuorumLoss = nil, v1beta1.RecoverFromSurvivor
		for i := range 2 {
			lose(o, objects.MemberName("demo", i))
			o.Cluster.Status.Members = append(o.Cluster.Status.Members,
				v1beta1.MemberStatus{Name: objects.MemberName("demo", i), Role: v1beta1.Voter})
		}
		o.Cluster.Status.Conditions = []metav1.Condition{{Type: v1beta1.Available, Status: metav1.ConditionFalse,
			LastTransitionTime: metav1.NewTime(now.Add(-24 * time.Hour))}}
		watch(o, 24*time.Hour)
	}
	onlyTheLeader := func(o *observation.Observation) { o.Etcd.Members = slices.Delete(o.Etcd.Members, 1, 3) }
	for _, c := range []struct {
		name  string
		o     observation.Observation
		rule  string
		step  decision.Step
		words string
	}{
		{"no member answers", with(besideThree(0), unrecorded, unanswered), "Join", nil, "connection refused"},
		{"endpoints of two clusters", with(besideThree(0), unrecorded, twoClusters), "Join", nil, "has two clusters"},
		{"a release that loses members", with(besideThree(0), unrecorded,
			externally("old-1", func(h *observation.Health) { h.Version = "3.6.2" })), "Join", nil,
			"upgrade it to 3.5.26 or later, or 3.6.4 or later"},
		{"peers by TLS", with(besideThree(0), unrecorded,
			func(o *observation.Observation) { o.Etcd.Members[2].PeerURLs[0] = "https://old-2:2380" }), "Join", nil,
			"by TLS"},
		{"too large a database", with(besideThree(2),
			externally("old-2", func(h *observation.Health) { h.DBSize = 700 << 20 })), "Grow", nil,
			"raise spec.storage.size"},
		{"it lists none of ours, which have run", with(besideThree(1), unrecorded, func(o *observation.Observation) {
			o.Etcd.Members = o.Etcd.Members[:3]
		}), "WrongCluster", nil, "does not list demo-0"},
		{"another cluster answers later", with(besideThree(2),
			func(o *observation.Observation) { o.Etcd.ClusterID = 0xbad }), "WrongCluster", nil, ""},
		{"an external one was not asked", with(besideThree(2),
			func(o *observation.Observation) { delete(o.Health, "http://old-1:2379") }), "Grow", nil,
			"waiting for old-1 to serve"},
		{"changes wait", with(besideThree(3), high, version("3.7.3"),
			func(o *observation.Observation) { askDefragment(o, "now") }), "ExternalMembers", nil, "removeExternalMembers"},
		{"their alarm is not ours to clear", with(besideThree(3), alarm(firstExternal, observation.AlarmNoSpace)),
			"ExternalMembers", nil, ""},
		{"no claim is marked", with(besideThree(3), alarm(firstExternal+1, observation.AlarmCorrupt)), "Corrupt", nil,
			"you decide"},
		{"their downgrade is not ours to cancel", with(besideThree(3),
			externally("old-0", func(h *observation.Health) { h.Downgrade = "3.5.0" })), "ExternalMembers", nil, ""},
		{"nothing is restored", with(besideThree(3), func(o *observation.Observation) {
			askRestore(o, "back", v1beta1.RestoreOperation{Epoch: new(int64(7))})
		}), "ExternalMembers", nil, ""},
		{"a lost quorum is not recovered by itself", with(besideThree(3), quorumLost), "Blind", nil, ""},
		{"who does not serve is retired before others", with(retiring(besideThree(3)), externally("old-2", dead)),
			"RemoveExternal", decision.Remove{ID: firstExternal + 2, Name: "old-2"}, ""},
		{"the leader hands over to one of ours", with(retiring(besideThree(3)), onlyTheLeader), "RemoveExternal",
			decision.MoveLeader{To: 1, Name: "demo-0"}, ""},
		{"replicas 0 is no pause, nor while blind", with(besideThree(3), replicas(0),
			func(o *observation.Observation) { o.Etcd = nil }), "Blind", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := onceChosen(t, c.o)
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

// TestVerifyBesideExternalMembers: the oracle sees what the rules never do.
func TestVerifyBesideExternalMembers(t *testing.T) {
	step := func(s decision.Step) func(d *decision.Decision) {
		return func(d *decision.Decision) { d.Step = s }
	}
	leader := decision.Remove{ID: firstExternal, Name: "old-0"}
	follower := decision.Remove{ID: firstExternal + 1, Name: "old-1"}
	join := decision.AddLearner{Name: "demo-2", PeerURL: "http://demo-2.demo-peers.default.svc:2380"}
	for name, c := range map[string]struct {
		o      observation.Observation
		spoils func(d *decision.Decision)
		broken string
	}{
		"an external one is removed that should stay": {besideThree(3), step(follower), "S6"},
		"before ours vote":                            {retiring(besideThree(2)), step(follower), "S6"},
		"the leader":                                  {retiring(besideThree(3)), step(leader), "S6"},
		"one of ours that is wanted":                  {besideThree(3), step(decision.Remove{ID: 2, Name: "demo-1"}), "S6"},
		"a database of theirs is defragmented": {besideThree(3),
			step(decision.Defragment{ID: firstExternal, Name: "old-0"}), "S6"},
		"a member joins another minor version": {with(besideThree(2),
			externally("old-1", func(h *observation.Health) { h.Version = "3.5.35" })), step(join), "S18"},
		"a pause takes our pods": {with(besideThree(3), replicas(0)),
			func(d *decision.Decision) { d.Step, d.Children.Pods = nil, nil }, "S2"},
		"the record forgets them": {besideThree(3), func(d *decision.Decision) {
			recordtest.Edit(d.Children.ConfigMaps[0], func(r *record.Record) { r.External = nil })
		}, "S8"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(c.o)
			c.spoils(&d)
			require.ErrorContains(t, verify(c.o, d), c.broken+":")
		})
	}
}

// TestExternalEndpoints: they are asked at the URLs of the spec, and at those that they advertise, as long as there
// are any.
func TestExternalEndpoints(t *testing.T) {
	urls := func(o observation.Observation) []string {
		var all []string
		for _, e := range facts.Endpoints(o) {
			if e.External {
				all = append(all, e.ClientURL)
			}
		}
		return all
	}
	o := besideThree(3)
	assert.Equal(t, []string{"http://old-0:2379", "http://old-1:2379", "http://old-2:2379"}, urls(o))
	noted(func(r *record.Record) {
		r.External = map[string][]string{"64": {"http://127.0.0.1:2379", "http://localhost:2379"},
			"65": {"http://0.0.0.0:2379"}, "66": {"http://127.0.0.2:2379", "http://[::]:2379",
				"http://[0:0:0:0:0:0:0:1]:2379", "http://[::ffff:127.0.0.1]:2379"}}
	})(&o)
	assert.Equal(t, []string{"http://old-0:2379"}, urls(o), "no address that is one's own is asked")
	noted(func(r *record.Record) { r.External = nil })(&o)
	assert.Empty(t, urls(o), "they are gone")

	secure := besideThree(3)
	secure.Cluster.Spec.Bootstrap.External = &v1beta1.ExternalCluster{ExternalEtcd: v1beta1.ExternalEtcd{
		Endpoints: []string{"https://old-0:2379"}, CASecretRef: v1beta1.SecretRef{Name: "former"},
		ServerName: "etcd.example"}}
	noted(func(r *record.Record) {
		r.External = map[string][]string{"64": {"http://old-0:2379"}, "65": {"https://old-1:2379"}}
	})(&secure)
	assert.Equal(t, []string{"https://old-0:2379", "https://old-1:2379"}, urls(secure),
		"no password goes out in plain text")
	for _, e := range facts.Endpoints(secure) {
		assert.Equal(t, e.External, e.ServerName == "etcd.example")
	}

	located := facts.Located(facts.Endpoints(o), o.Etcd, o.Health)
	for _, e := range located {
		assert.NotEmpty(t, e.PeerURL, e.Name)
	}
}

// TestAMemberOfTheirsMayBeCalledLikeOneOfOurs: another name is found for it, also in what a new member is told.
func TestAMemberOfTheirsMayBeCalledLikeOneOfOurs(t *testing.T) {
	o := besideThree(2)
	o.Etcd.Members[1].Name = "demo-1"
	f := facts.New(o)
	assert.Equal(t, "65", f.ByID(firstExternal+1).DisplayName())
	names := map[string]bool{}
	for pair := range strings.SplitSeq(f.JoinCluster(f.Find("demo-0")), ",") {
		name, _, _ := strings.Cut(pair, "=")
		assert.False(t, names[name], "%s is there twice", name)
		names[name] = true
	}
}

// TestOursTrustTheExternalAuthority: in the mode Auto it is put beside our own before a pod is made, and taken out
// when the spec no longer names it.
func TestOursTrustTheExternalAuthority(t *testing.T) {
	o := fresh(3)
	spec := &v1beta1.ExternalCluster{ExternalEtcd: v1beta1.ExternalEtcd{
		Endpoints: []string{"https://old-0:2379"}, CASecretRef: v1beta1.SecretRef{Name: "former"},
		ClientSecretRef: v1beta1.SecretRef{Name: "former"}}}
	o.Cluster.Spec.Bootstrap = &v1beta1.Bootstrap{External: spec}
	withCertificates(&o)
	o.Settings.AllowedEndpoints = &objects.AllowedEndpoints{Hosts: []string{"old-0"}}
	o.Children.ConfigMaps["demo-epoch-1"] = record.New(o.Cluster, 1, answer.JoiningRecord(o.Cluster))

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

// TestPlainTextBesideIsSaid: while external members are asked without TLS, the condition Secured is False and says so,
// whatever our own members speak.
func TestPlainTextBesideIsSaid(t *testing.T) {
	secured := func(o observation.Observation) *metav1.Condition {
		return meta.FindStatusCondition(Decide(o).Status.Conditions, v1beta1.Secured)
	}
	const words = "in plain text, so anything on the network can pose as it"
	o := besideThree(3)
	assert.Equal(t, "Disabled", secured(o).Reason)
	assert.Contains(t, secured(o).Message, words)
	o = besideThree(0)
	o.Cluster.Spec.TLS.Mode = v1beta1.TLSAuto
	withCertificates(&o)
	assert.Equal(t, "ExternalPlaintext", secured(o).Reason)
	assert.Contains(t, secured(o).Message, words)
	o.Cluster.Spec.Bootstrap.External.CASecretRef = v1beta1.SecretRef{Name: "former"}
	assert.NotContains(t, secured(o).Message, words)
	o.Cluster.Spec.Bootstrap = nil
	assert.NotContains(t, secured(o).Message, words)
}

// TestThePeersDoor: it is open to all names beside external members, and a member that was started so is restarted
// when they are gone.
func TestThePeersDoor(t *testing.T) {
	o := serve(3)
	assert.False(t, facts.TLSFlagsOf(o.Children.Pods["demo-1"]).AnyPeer)
	for _, pod := range o.Children.Pods {
		answer.AllowAnyPeer(pod)
		assert.True(t, facts.TLSFlagsOf(pod).AnyPeer)
	}
	d := Decide(o)
	assert.Equal(t, "RollingUpdate", d.Reason.Rule)
	assert.Contains(t, d.Reason.Message, "demo-1")
	require.NoError(t, verify(o, d))
}

// externally changes what an external member has answered.
func externally(name string, how func(h *observation.Health)) fact {
	return answering("http://"+name+":2379", how)
}

// TestNoEtcdIsJoinedThatIsNotAllowed: before the members have joined the cluster can't be run, and nothing is asked
// at those URLs; once they have, a shorter list takes no pod away.
func TestNoEtcdIsJoinedThatIsNotAllowed(t *testing.T) {
	o := fresh(3)
	o.Cluster.Spec.Bootstrap = &v1beta1.Bootstrap{External: &v1beta1.ExternalCluster{
		ExternalEtcd: v1beta1.ExternalEtcd{Endpoints: []string{"http://10.1.2.3:2379", "http://10.9.9.9:2379"}}}}
	o.Children.ConfigMaps = nil
	d := Decide(o)
	assert.Equal(t, "Unsupported", d.Reason.Rule)
	assert.Contains(t, d.Reason.Message, "spec.bootstrap.external.endpoints[0] is not asked: this installation of "+
		"Quorate allows no endpoints (quorate install --allowed-etcd-endpoints)")
	o.Settings.AllowedEndpoints, _ = objects.ParseAllowedEndpoints("10.1.0.0/16")
	assert.Contains(t, Decide(o).Reason.Message, "endpoints[1] is not asked: this installation of Quorate allows only 10.1.0.0/16")
	o.Settings.AllowedEndpoints, _ = objects.ParseAllowedEndpoints("10.0.0.0/8")
	assert.Equal(t, "RecordEpoch", Decide(o).Reason.Rule)

	for _, e := range facts.Endpoints(besideThree(1)) {
		assert.Equal(t, e.External, e.Allowed != nil && e.Namespace == "default", "%+v", e)
	}
	joined := besideThree(3)
	joined.Settings.AllowedEndpoints = nil
	assert.Equal(t, "ExternalMembers", Decide(joined).Reason.Rule)
}

// TestWhatAnExternalMemberCallsItself: what has not the form of a name or URL reaches neither a person nor the record.
func TestWhatAnExternalMemberCallsItself(t *testing.T) {
	o := with(besideThree(0), neverQuorate, noted(func(r *record.Record) { r.External = nil }))
	o.Etcd.Members[1].Name = "run `kubectl delete ns shop`"
	o.Etcd.Members[1].ClientURLs = []string{"http://a:2379,99 http://b:2379", "http://old-1:2379"}
	d := Decide(o)
	assert.Contains(t, d.Reason.Message, "with the members 65, old-0, old-2")
	assert.Equal(t, map[string][]string{"64": {"http://old-0:2379"}, "65": {"http://old-1:2379"},
		"66": {"http://old-2:2379"}}, recordOf(d).External)
}

// plainText is a cluster of n voters that serves in plain text.
func plainText(n int) observation.Observation {
	o := fresh(n)
	o.Cluster.Spec.TLS.Mode = v1beta1.TLSDisabled
	clear(o.Children.Secrets)
	observeRecord(&o, n)
	o.Etcd = &observation.Membership{ClusterID: 0xc1, Leader: 1}
	for i := range n {
		addMember(&o, i, false)
	}
	observe(&o, Decide(o))
	return o
}

// breathe lets every pod run and its member serve, and tell what it would in a handshake.
func breathe(o *observation.Observation, turn int) {
	for i, m := range o.Etcd.Members {
		pod := o.Children.Pods[m.Name]
		if pod == nil {
			delete(o.Health, m.Name)
			continue
		}
		if pod.UID == "" {
			pod.UID = types.UID(fmt.Sprintf("uid-%s-%d", m.Name, turn))
		}
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.0.%d", i+1),
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: objects.ContainerEtcd, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			}}
		o.Health[m.Name] = observation.Health{ClusterID: 0xc1, MemberID: m.ID, Leader: o.Etcd.Leader, Version: "3.6.16",
			RaftTerm: 2, RaftIndex: 1000}
		if facts.TLSFlagsOf(pod).Certificates {
			shakeHands(o, m.Name)
		}
	}
}
