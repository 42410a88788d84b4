package etcdops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// A contact is one endpoint in the course of one Observe: how it is asked, and what its etcd answered.
type contact struct {
	endpoint observation.Endpoint
	// client is nil on a kept connection; conn is that, or the client's.
	client *clientv3.Client
	conn   grpc.ClientConnInterface
	told   *handshake
	// status is nil when there was no answer, or one from another etcd; err then says why.
	status *pb.StatusResponse
	err    error
	// other is the etcd that answered in the member's place, if one did.
	other *pb.ResponseHeader
	// auth and tokenRefused are of [observation.Health].
	auth         *bool
	tokenRefused bool
	// hash is asked for only when there is an alarm that calls for it.
	hash *observation.Hash
	// disk is what its metrics told.
	disk *observation.Disk
}

// Observe implements [hooks.Etcd]. It asks every endpoint for its status, all at once, and then for the member list
// one after the other until one answers. It takes at most three timeouts: one for the statuses, two for the list.
// Only while an alarm says that keys differ between members, it asks for their hashes too, which takes at most one
// timeout of a step.
//
// Another etcd is known by the member list alone: while the membership is nil, a health may be that of another cluster.
func (e *Etcd) Observe(ctx context.Context, endpoints []observation.Endpoint) (*observation.Membership,
	map[string]observation.Health) {
	contacts := e.askAll(ctx, endpoints)
	defer closeAll(contacts)
	membership := e.findMembership(ctx, contacts)
	if membership != nil && slices.ContainsFunc(membership.Alarms, corrupt) {
		e.hashAll(ctx, contacts)
	}
	health := make(map[string]observation.Health, len(contacts))
	for _, c := range contacts {
		health[c.endpoint.Name] = c.health(contacts)
	}
	return membership, health
}

// askAll opens a client for each endpoint and asks for its status, and for its metrics where they are wanted.
func (e *Etcd) askAll(ctx context.Context, endpoints []observation.Endpoint) []*contact {
	contacts := make([]*contact, len(endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range endpoints {
		contacts[i] = &contact{endpoint: endpoint, told: &handshake{}}
		wg.Go(func() { e.ask(ctx, contacts[i]) })
		if e.Disks != nil && endpoint.MetricsURL != "" {
			wg.Go(func() { contacts[i].disk = e.readDisk(ctx, endpoint) })
		}
	}
	wg.Wait()
	return contacts
}

func (e *Etcd) ask(ctx context.Context, c *contact) {
	if c.client, c.err = e.openTelling(ctx, c.endpoint, c.told); c.err != nil {
		return
	}
	c.conn = c.client.ActiveConnection()
	e.askStatus(ctx, c)
	if errors.Is(c.err, errToken) {
		c.tokenRefused = true
		if e.logIn(ctx, c) {
			e.askStatus(ctx, c)
		}
	}
	if c.endpoint.AsksAuth && c.err == nil {
		e.askAuth(ctx, c)
	}
	if c.endpoint.PeerAddress != "" && c.told.anonymous() {
		e.hearPeer(ctx, c.endpoint, c.told)
	}
	c.judge()
}

// judge throws away what can't be the status of an etcd.
func (c *contact) judge() {
	if c.err != nil {
		c.status = nil
	} else if err := boundedStatus(c.status); err != nil {
		c.unmask(c.status.GetHeader(), err)
	}
}

func (e *Etcd) askStatus(ctx context.Context, c *contact) {
	c.err = e.call(ctx, callStatus, e.timeout(), func(ctx context.Context) (err error) {
		// Not the client's own Status: that one opens a second connection.
		c.status, err = pb.NewMaintenanceClient(c.conn).Status(ctx, &pb.StatusRequest{})
		return err
	})
}

func closeAll(contacts []*contact) {
	for _, c := range contacts {
		if c.client != nil {
			_ = c.client.Close() // all calls on it have ended
		}
	}
}

// findMembership reads the member list from the first contact that can give it, and unmasks other etcds by it.
// It is nil when no quorum answered.
func (e *Etcd) findMembership(ctx context.Context, contacts []*contact) *observation.Membership {
	ctx, cancel := context.WithTimeout(ctx, 2*e.timeout())
	defer cancel()
	for _, c := range candidates(contacts) {
		list, err := e.memberList(ctx, c.conn)
		if err == nil {
			err = belongs(list, list.Header, c.endpoint)
		}
		if errors.Is(err, ErrOtherEtcd) {
			c.unmask(c.status.GetHeader(), err)
		}
		if err != nil {
			continue
		}
		for _, other := range contacts {
			if other.status == nil {
				continue
			}
			if err := belongs(list, other.status.GetHeader(), other.endpoint); err != nil {
				other.unmask(other.status.GetHeader(), err)
			}
		}
		membership := toMembership(list)
		membership.Leader = leader(membership, contacts, list.Header.GetRaftTerm())
		membership.Alarms = alarmsOf(c.best(contacts))
		return membership
	}
	return nil
}

// unmask throws away what another etcd said, except who it is.
func (c *contact) unmask(who *pb.ResponseHeader, err error) {
	c.other = who
	c.status = nil
	c.err = err
}

// candidates are the contacts worth asking for the member list: voters that follow a leader (the others would only wait
// for one), those of the cluster that is recorded first, and leaders before others.
func candidates(contacts []*contact) []*contact {
	var able []*contact
	for _, c := range contacts {
		if c.status != nil && c.status.GetLeader() != 0 && !c.status.GetIsLearner() {
			able = append(able, c)
		}
	}
	slices.SortStableFunc(able, func(a, b *contact) int {
		return cmp.Or(
			cmp.Compare(a.external(), b.external()),
			cmp.Compare(a.rank(), b.rank()),
			cmp.Compare(b.status.GetRaftTerm(), a.status.GetRaftTerm()),
			cmp.Compare(a.endpoint.Name, b.endpoint.Name),
		)
	})
	return able
}

// external is 1 for an etcd of another cluster than the recorded one. Such a one may well list itself under the peer
// URL of a member of ours, as one that was restored from a snapshot does.
func (c *contact) external() int {
	if c.endpoint.ClusterID != 0 && c.status.GetHeader().GetClusterId() != c.endpoint.ClusterID {
		return 1
	}
	return 0
}

// rank is 0 for a leader and 1 for a follower.
func (c *contact) rank() int {
	if c.status.GetLeader() == c.status.GetHeader().GetMemberId() {
		return 0
	}
	return 1
}

// memberList reads the member list linearizably: it fails without a quorum (MemberList in etcd's etcdserver/server.go
// waits for a read index first). A learner refuses to be asked.
func (e *Etcd) memberList(ctx context.Context, conn grpc.ClientConnInterface) (list *pb.MemberListResponse, err error) {
	err = e.call(ctx, callMemberList, e.timeout(), func(ctx context.Context) error {
		list, err = pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
		if err != nil {
			return err
		}
		return bounded(list.Members)
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// belongs checks that the etcd that answered at the endpoint is the member that we meant to ask: of the list's
// cluster, in the list, and there under the peer URL that we expect. Pod addresses are reused; member IDs and peer
// URLs are not (S9).
func belongs(list *pb.MemberListResponse, who *pb.ResponseHeader, endpoint observation.Endpoint) error {
	if who.GetClusterId() != list.Header.GetClusterId() {
		return fmt.Errorf("%w: its cluster ID is %x", ErrOtherEtcd, who.GetClusterId())
	}
	i := slices.IndexFunc(list.Members, func(m *pb.Member) bool { return m.GetID() == who.GetMemberId() })
	if i < 0 {
		return fmt.Errorf("%w: member %x is not in the member list", ErrOtherEtcd, who.GetMemberId())
	}
	if endpoint.External && endpoint.PeerURL == "" {
		return nil // which of the members it is, only its answer tells
	}
	if !listed(list.Members[i].GetPeerURLs(), endpoint.PeerURL) {
		return fmt.Errorf("%w: member %x is listed with another peer URL", ErrOtherEtcd, who.GetMemberId())
	}
	return nil
}

// listed reports whether a peer URL is among these, be it with http or https: a member that learns TLS keeps its name
// and port.
func listed(urls []string, peerURL string) bool {
	_, address, _ := strings.Cut(peerURL, "://")
	return slices.ContainsFunc(urls, func(u string) bool {
		_, theirs, _ := strings.Cut(u, "://")
		return theirs == address
	})
}

// toMembership copies the list, sorted by ID (the order of etcd's answer is that of a map). The leader is left out.
func toMembership(list *pb.MemberListResponse) *observation.Membership {
	m := &observation.Membership{ClusterID: list.Header.GetClusterId()}
	for _, entry := range list.Members {
		m.Members = append(m.Members, observation.Member{
			ID:         entry.GetID(),
			Name:       entry.GetName(),
			PeerURLs:   slices.Sorted(slices.Values(entry.GetPeerURLs())),
			ClientURLs: slices.Sorted(slices.Values(entry.GetClientURLs())),
			Learner:    entry.GetIsLearner(),
		})
	}
	slices.SortFunc(m.Members, func(a, b observation.Member) int { return cmp.Compare(a.ID, b.ID) })
	return m
}

// leader is the one that the members at the newest term follow. It is 0 when the list was read at a newer term yet: the
// leader has changed since the statuses were taken. A term has at most one leader (Raft, section 5.2).
func leader(membership *observation.Membership, contacts []*contact, term uint64) uint64 {
	var id uint64
	for _, c := range contacts {
		if c.status != nil && c.status.GetLeader() != 0 && c.status.GetRaftTerm() >= term {
			id = c.status.GetLeader()
			term = c.status.GetRaftTerm()
		}
	}
	if !slices.ContainsFunc(membership.Members, func(m observation.Member) bool { return m.ID == id }) {
		return 0
	}
	return id
}

// health is what the contact's own etcd said, in the words of hooks.
func (c *contact) health(all []*contact) observation.Health {
	certificate, trusts := c.told.told()
	switch {
	case errors.Is(c.err, ErrOtherEtcd): // what it tells of itself is not the member's
		return observation.Health{Err: c.err.Error(), ClusterID: c.other.GetClusterId(),
			MemberID: c.other.GetMemberId()}
	case c.status == nil:
		return observation.Health{Err: c.err.Error(), Certificate: certificate, Trusts: trusts,
			Anonymous: c.told.anonymous(), TokenRefused: c.tokenRefused}
	}
	s := c.status
	return observation.Health{
		Certificate:  certificate,
		Trusts:       trusts,
		Anonymous:    c.told.anonymous(),
		Auth:         c.auth,
		TokenRefused: c.tokenRefused,
		ClusterID:    s.GetHeader().GetClusterId(),
		MemberID:     s.GetHeader().GetMemberId(),
		Leader:       s.GetLeader(),
		Learner:      s.GetIsLearner(),
		Version:      s.GetVersion(),
		RaftTerm:     s.GetRaftTerm(),
		RaftIndex:    s.GetRaftAppliedIndex(),
		DBSize:       s.GetDbSize(),
		DBSizeInUse:  s.GetDbSizeInUse(),
		Alarms:       c.alarms(all),
		Revision:     s.GetHeader().GetRevision(),

		StorageVersion: s.GetStorageVersion(),
		Downgrade:      targetOf(s),
		Hash:           c.hash,
		Disk:           c.disk,
	}
}

// alarms are the kinds of those that this contact's member has raised, sorted.
func (c *contact) alarms(all []*contact) []string {
	var names []string
	for _, alarm := range alarmsOf(c.best(all)) {
		if alarm.MemberID == c.status.GetHeader().GetMemberId() {
			names = append(names, alarm.Kind)
		}
	}
	return names
}

// best is the status in this contact's cluster that knows the alarms best: that of the member that has applied the
// most. Every member keeps all alarms of the cluster and tells them with its status. AlarmList would tell the same,
// but it is a write: it goes through the log of raft (Alarm in etcd's etcdserver/v3_server.go), once per call of the
// hook.
func (c *contact) best(all []*contact) *pb.StatusResponse {
	best := c.status
	for _, other := range all {
		if other.status.GetHeader().GetClusterId() == best.GetHeader().GetClusterId() &&
			other.status.GetRaftAppliedIndex() > best.GetRaftAppliedIndex() {
			best = other.status
		}
	}
	return best
}

// alarmsOf are all alarms that a status tells, sorted, whichever member raised them. CORRUPT is raised in the name of
// member 0 when etcd does not know whose data is wrong: by 3.5 always, and since 3.6 when no majority agrees
// (CompactHashCheck in etcd's etcdserver/corrupt.go).
func alarmsOf(status *pb.StatusResponse) []observation.Alarm {
	var alarms []observation.Alarm
	for _, text := range status.GetErrors() {
		// An AlarmMember in protobuf's text format; other errors, such as "etcdserver: no leader", are not.
		var alarm pb.AlarmMember
		if prototext.Unmarshal([]byte(text), &alarm) == nil && alarm.GetAlarm() != pb.AlarmType_NONE {
			alarms = append(alarms, observation.Alarm{MemberID: alarm.GetMemberID(), Kind: alarm.GetAlarm().String()})
		}
	}
	slices.SortFunc(alarms, func(a, b observation.Alarm) int {
		return cmp.Or(cmp.Compare(a.MemberID, b.MemberID), strings.Compare(a.Kind, b.Kind))
	})
	return alarms
}

func corrupt(a observation.Alarm) bool { return a.Kind == observation.AlarmCorrupt }

// hashAll asks all voters for a hash of their keys at the newest revision that each of them has, all at once. One
// that gives none (a learner would refuse) just has none: nothing follows from that.
func (e *Etcd) hashAll(ctx context.Context, contacts []*contact) {
	able := candidates(contacts)
	if len(able) == 0 {
		return
	}
	behind := slices.MinFunc(able, func(a, b *contact) int {
		return cmp.Compare(a.status.GetHeader().GetRevision(), b.status.GetHeader().GetRevision())
	})
	revision := behind.status.GetHeader().GetRevision()
	var wg sync.WaitGroup
	for _, c := range able {
		wg.Go(func() { c.hash = e.hashOf(ctx, c.client, revision) })
	}
	wg.Wait()
}

// hashOf reads all keys of a member, for which it gets the time of a step. It is asked for a revision and never for
// "now" (0), and the revision is said here: before 3.6, etcd does not tell which one it has hashed.
func (e *Etcd) hashOf(ctx context.Context, client *clientv3.Client, revision int64) *observation.Hash {
	var answer *pb.HashKVResponse
	err := e.call(ctx, callHash, e.stepTimeout(), func(ctx context.Context) (err error) {
		answer, err = maintenance(client).HashKV(ctx, &pb.HashKVRequest{Revision: revision})
		return err
	})
	if err != nil {
		return nil
	}
	return &observation.Hash{Revision: revision, CompactRevision: answer.GetCompactRevision(), Value: answer.GetHash()}
}
