package world

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Net is what is wrong with the network.
type Net struct {
	// Down: the hooks reach no etcd at all. Members and clients don't notice.
	Down bool
	// Unreachable members are those that the hooks alone don't reach.
	Unreachable map[string]bool
	// Isolated members hear no other member; the hooks reach them.
	Isolated map[string]bool
	// OtherEtcds are addresses at which an etcd of another cluster answers.
	OtherEtcds map[string]bool
	// Twins are addresses at which such an etcd lists itself under the member's peer URL, as one does that was
	// restored from a snapshot.
	Twins map[string]bool
}

// strangeID is the ID of another cluster, and of its only member.
const strangeID = 0xbad

// client is the hooks' view of etcd during one call. It stands in for package etcdops, and refuses what that refuses.
type client struct {
	w     *World
	crash Crash
	// operator is the Secret with which Quorate comes to the members; nil without.
	operator *observation.Secret
	// seen are the answers of Observe in this call, for the oracle.
	seen []sight
	// before runs just before a step is carried out; racing leaves out the second look at the member list, as when
	// two calls have looked at the same moment.
	before func()
	racing bool
	// recorded is what the first look of the call saw earlier; nil for a call that looks now.
	recorded *sight
	// dead is set when the process crashed in the middle of the call.
	dead bool
	// spec is that of the call's cluster, lacks what it lacked when etcd was last looked at, and outdated what a
	// change had not reached.
	spec            *v1beta1.EtcdClusterSpec
	lacks, outdated string
}

type sight struct {
	etcd   *observation.Membership
	health map[string]observation.Health
}

var (
	errRefused    = errors.New("connection refused")
	errNotAllowed = errors.New("this installation of Quorate does not allow its address")
)

// Observe implements hooks.Etcd.
func (c *client) Observe(_ context.Context, endpoints []observation.Endpoint) (*observation.Membership,
	map[string]observation.Health) {
	if c.recorded != nil {
		seen := *c.recorded
		c.recorded = nil
		c.seen = append(c.seen, seen)
		return seen.etcd, seen.health
	}
	health := map[string]observation.Health{}
	for _, e := range endpoints {
		health[e.Name] = c.status(e)
	}
	list := c.findList(endpoints, health)
	for _, e := range endpoints {
		if h := health[e.Name]; list != nil && h.Err == "" && !belongs(list, h, e) {
			health[e.Name] = strange(h)
		}
	}
	c.tellHashes(list, health)
	c.seen = append(c.seen, sight{list, health})
	if c.w.Watch && c.spec != nil {
		c.lacks, c.outdated = c.w.lacks(c.spec), c.w.outdated(c.spec)
	}
	return list, health
}

// status is what the server at the endpoint says of itself.
func (c *client) status(e observation.Endpoint) observation.Health {
	ip := hostOf(e.ClientURL)
	pod := c.w.podAt(ip)
	proc, runs := c.w.Procs[pod]
	switch {
	case e.External && e.Allowed.Refuses(e.ClientURL, e.Namespace) != "":
		return observation.Health{Err: errNotAllowed.Error()}
	case c.w.Net.Down:
		return observation.Health{Err: etcdops.ErrNoAnswer.Error()}
	case c.w.Net.OtherEtcds[ip], c.w.Net.Twins[ip]: // with a certificate of the same authority, if any
		return observation.Health{ClusterID: strangeID, MemberID: strangeID, Leader: strangeID, RaftTerm: 1,
			RaftIndex: 1, Version: "3.6.0"}
	case runs && proc.Busy > 0:
		return observation.Health{Err: etcdops.ErrNoAnswer.Error()}
	case !runs, c.w.Net.Unreachable[proc.Pod]:
		return observation.Health{Err: errRefused.Error()}
	}
	h := c.handshake(pod, e)
	if h.Err != "" {
		return h
	}
	d := c.w.Dirs[proc.Dir]
	if d.Blank { // its listener takes connections, and serves none before there is a leader
		return observation.Health{Err: etcdops.ErrNoAnswer.Error(), Certificate: h.Certificate, Trusts: h.Trusts}
	}
	cluster := c.w.Etcd.Clusters[d.Cluster]
	m, _ := cluster.member(d.Member)
	h = observation.Health{ClusterID: d.Cluster, MemberID: d.Member, Learner: m.Learner, RaftTerm: cluster.Term,
		RaftIndex:   d.Index,
		Certificate: h.Certificate, Trusts: h.Trusts, Anonymous: h.Anonymous}
	if e.AsksAuth {
		h.Auth = new(cluster.Auth.Enabled)
	}
	if m.ID != 0 && c.w.follows(cluster, m) {
		h.Leader = cluster.Leader
	}
	c.w.tellVersion(&h, pod, cluster)
	c.w.tellSpace(&h, d)
	c.tellDisk(&h, e)
	return h
}

// findList reads the member list, linearizably, from the first voter that can give it: leaders first.
func (c *client) findList(endpoints []observation.Endpoint,
	health map[string]observation.Health) *observation.Membership {
	able := slices.DeleteFunc(slices.Clone(endpoints), func(e observation.Endpoint) bool {
		h := health[e.Name]
		return h.Err != "" || h.Leader == 0 || h.Learner
	})
	slices.SortStableFunc(able, func(a, b observation.Endpoint) int {
		rank := func(e observation.Endpoint) (n int) {
			h := health[e.Name]
			if e.ClusterID != 0 && h.ClusterID != e.ClusterID {
				n = 2
			}
			if h.Leader != h.MemberID {
				n++
			}
			return n
		}
		return cmp.Compare(rank(a), rank(b))
	})
	for _, e := range able {
		list := c.list(health[e.Name].ClusterID)
		if list.ClusterID == strangeID && c.w.Net.Twins[hostOf(e.ClientURL)] {
			list.Members[0].PeerURLs = []string{e.PeerURL}
		}
		if belongs(list, health[e.Name], e) {
			return list
		}
		health[e.Name] = strange(health[e.Name])
	}
	return nil
}

func (c *client) list(clusterID uint64) *observation.Membership {
	cluster, known := c.w.Etcd.Clusters[clusterID]
	if !known { // the other etcd's
		return &observation.Membership{ClusterID: clusterID, Leader: strangeID,
			Members: []observation.Member{{ID: strangeID, PeerURLs: []string{"http://elsewhere:2380"}}}}
	}
	members := slices.Clone(cluster.Members)
	slices.SortFunc(members, func(a, b observation.Member) int { return cmp.Compare(a.ID, b.ID) })
	return &observation.Membership{ClusterID: cluster.ID, Leader: cluster.Leader, Members: members,
		Alarms: slices.Clone(cluster.Alarms)}
}

// strange is all that is told of another etcd's answer.
func strange(h observation.Health) observation.Health {
	return observation.Health{Err: etcdops.ErrOtherEtcd.Error(), ClusterID: h.ClusterID, MemberID: h.MemberID}
}

// belongs reports whether the answer is from the member that we meant to ask.
func belongs(list *observation.Membership, h observation.Health, e observation.Endpoint) bool {
	return h.ClusterID == list.ClusterID && slices.ContainsFunc(list.Members, func(m observation.Member) bool {
		return m.ID == h.MemberID && (e.External && e.PeerURL == "" || plain(m.PeerURLs[0]) == plain(e.PeerURL))
	})
}

// Do implements hooks.Etcd.
func (c *client) Do(ctx context.Context, step decision.Step, on *observation.Membership,
	endpoints []observation.Endpoint) error {
	if c.before != nil {
		c.before()
	}
	if c.crash.At == BeforeStep {
		c.dead = true
		return etcdops.ErrNoAnswer
	}
	err := c.do(step, on, endpoints)
	if c.crash.At == AfterStep {
		c.dead = true
	}
	if c.w.Etcd.LoseReply {
		c.w.Etcd.LoseReply = false
		return etcdops.ErrNoAnswer
	}
	return err
}

func (c *client) do(step decision.Step, on *observation.Membership, endpoints []observation.Endpoint) error {
	cluster := c.w.Etcd.Clusters[on.ClusterID]
	if !c.executor(step, on, endpoints) {
		return etcdops.ErrNoExecutor
	}
	if !c.racing && !sameMembers(on, c.list(on.ClusterID)) {
		return etcdops.ErrMembershipChanged
	}
	if p, promotes := step.(decision.Promote); promotes && !c.hears(cluster, p.ID) {
		return etcdops.ErrLearnerCutOff
	}
	err := c.carryOut(cluster, step)
	c.w.Oracle.afterStep(c.w, cluster, step)
	c.w.Oracle.afterRemoval(c.w, c.spec, cluster, step)
	c.w.Oracle.afterMaintenance(c.w, cluster, step)
	return err
}

// hears reports whether what the leader writes now arrives at the member, and the hooks see it there. (A learner that
// is not listed is for etcd to refuse.)
func (c *client) hears(cluster Cluster, learner uint64) bool {
	leader, _ := cluster.member(cluster.Leader)
	m, listed := cluster.member(learner)
	pod, _ := c.w.running(cluster.ID, learner)
	reached := !c.w.Net.Unreachable[nameAt(m)] && c.handshake(pod, observation.Endpoint{ServerName: hostOf(m.PeerURLs[0])}).Err == ""
	return !listed || c.w.hears(cluster, leader, m) && reached
}

// executor reports whether there is a member to ask for the step: for some steps only the leader will do, and never the
// member that goes.
func (c *client) executor(step decision.Step, on *observation.Membership, endpoints []observation.Endpoint) bool {
	return slices.ContainsFunc(endpoints, func(e observation.Endpoint) bool {
		h := c.status(e)
		remove, removes := step.(decision.Remove)
		defragment, defragments := step.(decision.Defragment)
		switch {
		case h.Err != "" || h.Leader == 0 || h.Learner || !belongs(on, h, e), removes && remove.ID == h.MemberID,
			defragments && defragment.ID != h.MemberID:
			return false
		}
		switch step.(type) {
		case decision.Promote, decision.MoveLeader:
			return h.MemberID == h.Leader
		}
		return true
	})
}

func sameMembers(a, b *observation.Membership) bool {
	roles := func(m *observation.Membership) map[uint64]bool {
		all := map[uint64]bool{}
		for _, e := range m.Members {
			all[e.ID] = e.Learner
		}
		return all
	}
	return maps.Equal(roles(a), roles(b))
}

func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// podAt is the UID of the pod that has this address now.
func (w *World) podAt(ip string) types.UID {
	for _, pod := range w.Pods() {
		if pod.Status.PodIP == ip {
			return pod.UID
		}
	}
	if w.External[ip] {
		return externalUID(ip)
	}
	return ""
}
