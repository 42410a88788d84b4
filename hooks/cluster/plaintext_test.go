package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/status"
)

// plainText is a cluster of n voters that serves in plain text.
func plainText(n int) observation.Observation {
	o := fresh(n)
	o.Cluster.Spec.TLS.Mode = v1alpha1.TLSDisabled
	clear(o.Children.Secrets)
	observeRecord(&o, n)
	o.Etcd = &observation.Membership{ClusterID: 0xc1, Leader: 1}
	for i := range n {
		addMember(&o, i, false)
	}
	observe(&o, Decide(o))
	return o
}

// live lets the cluster go on until it has converged: what is decided happens, and stopped members come back and
// serve. It returns what happened to members, in order.
func live(t *testing.T, o *observation.Observation) []string {
	t.Helper()
	var story []string
	for i := range 60 {
		breathe(o, i)
		d := Decide(*o)
		require.NoError(t, verify(*o, d), d.Reason.Message)
		if d.Reason.Rule == "Converged" && len(recipes(d)) == 0 {
			observe(o, d)
			return story
		}
		if d.Step != nil {
			happen(o, d.Step)
			story = append(story, d.Step.String())
			o.Taken = &decision.Outcome{Step: d.Step, Rule: d.Reason.Rule}
			d = Decide(*o)
			o.Taken = nil
		}
		for name := range o.Children.Pods {
			if !slices.ContainsFunc(d.Children.Pods, func(p *corev1.Pod) bool { return p.Name == name }) {
				story = append(story, "restart "+name)
			}
		}
		observe(o, d)
		deaf(t, o)
	}
	t.Fatal("it never converges: " + strings.Join(story, ", "))
	return nil
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
		if state.TLSFlagsOf(pod).Certificates {
			shakeHands(o, m.Name)
		}
	}
}

func happen(o *observation.Observation, step decision.Step) {
	switch s := step.(type) {
	case decision.MoveLeader:
		o.Etcd.Leader = s.To
	case decision.UpdatePeerURL:
		o.Etcd.Members = slices.Clone(o.Etcd.Members)
		for i := range o.Etcd.Members {
			if o.Etcd.Members[i].ID == s.ID {
				o.Etcd.Members[i].PeerURLs = []string{s.PeerURL}
			}
		}
	}
}

// deaf: of two members whose listeners differ from what is listed, neither reaches the other.
func deaf(t *testing.T, o *observation.Observation) {
	t.Helper()
	n := 0
	for _, m := range o.Etcd.Members {
		if pod := o.Children.Pods[m.Name]; pod == nil || state.TLSFlagsOf(pod).Peers != state.ByTLS(m.PeerURLs...) {
			n++
		}
	}
	require.LessOrEqual(t, n, 1, "two members can't hear each other")
}

func TestAClusterLearnsTLSWhileItRuns(t *testing.T) {
	o := plainText(3)
	o.Cluster.Spec.TLS = v1alpha1.TLSSpec{Mode: v1alpha1.TLSAuto, AllowPlaintextClients: true}
	assert.Equal(t, []string{
		"restart demo-1", "restart demo-2", "move leader to demo-1", "restart demo-0",
		"update the peer URL of demo-0", "restart demo-0", "update the peer URL of demo-2", "restart demo-2",
		"update the peer URL of demo-1", "move leader to demo-0", "restart demo-1",
	}, live(t, &o))
	for _, m := range o.Etcd.Members {
		assert.True(t, state.ByTLS(m.PeerURLs...))
		assert.Equal(t, state.TLSFlags{Certificates: true, Peers: true, Clients: true, Plain: true},
			state.TLSFlagsOf(o.Children.Pods[m.Name]))
	}
	assert.Equal(t, "demo-0,demo-1,demo-2",
		o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationHTTPSPeers])
	reason, _, secured := status.Security(newView(o))
	assert.Equal(t, "PlaintextAllowed", reason)
	assert.False(t, secured)

	o.Cluster.Spec.TLS.AllowPlaintextClients = false
	assert.Equal(t, []string{"restart demo-1", "restart demo-2", "move leader to demo-1", "restart demo-0"},
		live(t, &o))
	for _, m := range o.Etcd.Members {
		assert.Equal(t, state.TLSFlags{Certificates: true, Peers: true, Clients: true},
			state.TLSFlagsOf(o.Children.Pods[m.Name]))
	}
	_, _, secured = status.Security(newView(o))
	assert.True(t, secured)
}

// TestAPodIsMadeAsItsPeersDialIt: also when etcd does not answer, and in the middle of the switch.
func TestAPodIsMadeAsItsPeersDialIt(t *testing.T) {
	o := plainText(3)
	o.Cluster.Spec.TLS = v1alpha1.TLSSpec{Mode: v1alpha1.TLSAuto, AllowPlaintextClients: true}
	withCertificates(&o)
	o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationHTTPSPeers] = "demo-1"
	o.Etcd = nil
	clear(o.Children.Pods)
	clear(o.Health)
	d := Decide(o)
	require.NoError(t, verify(o, d))
	require.Len(t, d.Children.Pods, 3)
	for _, pod := range d.Children.Pods {
		assert.Equal(t, pod.Name == "demo-1", state.TLSFlagsOf(pod).Peers, pod.Name)
		assert.True(t, state.TLSFlagsOf(pod).Certificates)
	}
}

func TestTwoVotersLearnTLSThroughNewOnes(t *testing.T) {
	o := plainText(2)
	o.Cluster.Spec.TLS = v1alpha1.TLSSpec{Mode: v1alpha1.TLSAuto, AllowPlaintextClients: true}
	withCertificates(&o)
	breathe(&o, 0)
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, decision.AddLearner{Name: "demo-2", PeerURL: "http://demo-2.demo-peers.default.svc:2380"}, d.Step,
		"which every member can dial")
}
