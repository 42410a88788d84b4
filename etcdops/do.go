package etcdops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Do implements [hooks.Etcd]. The error wraps one of this package's and begins with the step. After ErrNoAnswer and
// ErrUnreachable the step may or may not have been carried out; after any other error it was not. A defragmentation
// that takes longer than the step's deadline goes on after ErrNoAnswer: the member hands its database over without
// looking at the call any more (Defragment in etcd's etcdserver/api/v3rpc/maintenance.go), and answers no one until
// it is done.
//
// A step that changes the member list always goes with the list that it was decided on: a second Do of the same
// decision meets ErrMembershipChanged. Two at the same moment are settled by etcd, which applies one change after the
// other: it refuses the second (the peer URL exists, the member is gone, the member votes already), or drops it
// without a word (ErrNoAnswer).
func (e *Etcd) Do(ctx context.Context, step decision.Step, on *observation.Membership,
	endpoints []observation.Endpoint) error {
	if err := e.do(ctx, step, on, endpoints); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}

func (e *Etcd) do(ctx context.Context, step decision.Step, on *observation.Membership,
	endpoints []observation.Endpoint) error {
	if on == nil {
		return errBlind
	}
	executors := executors(step, on, endpoints)
	if len(executors) == 0 {
		return ErrNoExecutor
	}
	var failure error
	for _, endpoint := range executors {
		var asked bool
		if asked, failure = e.doAt(ctx, step, on, endpoint, endpoints); asked {
			return failure
		}
	}
	return failure
}

// executors are the endpoints that may carry out the step, the leader's first. Which one is asked matters: etcd
// judges an addition or a removal by the connections of the very member that serves the request, only the leader
// knows how far a learner has come (another member would pass the promotion on to it), and only the leader can hand
// over its office. A member defragments its own database and no other's. All else of maintenance goes through raft's
// log, so that any voter will do.
func executors(step decision.Step, on *observation.Membership,
	endpoints []observation.Endpoint) []observation.Endpoint {
	var leader, others []observation.Endpoint
	for _, endpoint := range endpoints {
		m := memberAt(on, endpoint.PeerURL)
		switch {
		case m == nil || m.Learner || !serves(step, m.ID):
		case m.ID == on.Leader:
			leader = append(leader, endpoint)
		default:
			others = append(others, endpoint)
		}
	}
	switch step.(type) {
	case decision.Promote, decision.MoveLeader:
		return leader
	}
	return append(leader, others...)
}

// serves reports whether this voter may be asked for the step: any but the one that is removed, and none but the one
// that is defragmented.
func serves(step decision.Step, id uint64) bool {
	switch s := step.(type) {
	case decision.Remove:
		return s.ID != id
	case decision.Defragment:
		return s.ID == id
	}
	return true
}

func memberAt(on *observation.Membership, peerURL string) *observation.Member {
	i := slices.IndexFunc(on.Members, func(m observation.Member) bool { return listed(m.PeerURLs, peerURL) })
	if i < 0 {
		return nil
	}
	return &on.Members[i]
}

// doAt carries out the step at one endpoint. It is not asked for the step when it could not give us the member list:
// the next endpoint may be tried then.
func (e *Etcd) doAt(ctx context.Context, step decision.Step, on *observation.Membership, endpoint observation.Endpoint,
	all []observation.Endpoint) (asked bool, err error) {
	client, err := e.open(ctx, endpoint)
	if err != nil {
		return false, err
	}
	defer func() { _ = client.Close() }()
	list, err := e.memberList(ctx, client.ActiveConnection())
	if err != nil {
		return false, notDone(err)
	}
	if err := belongs(list, list.Header, endpoint); err != nil {
		return false, err
	}
	if authorize, ok := step.(decision.Authorize); ok { // it depends on no membership
		return true, e.authorize(ctx, client, authorize)
	}
	if !same(on, toMembership(list)) {
		return true, ErrMembershipChanged
	}
	if promotion, ok := step.(decision.Promote); ok {
		if err := e.proveConnected(ctx, client, learnerOf(promotion, on, all)); err != nil {
			return true, err
		}
	}
	return true, e.call(ctx, step.Verb(), e.stepTimeout(),
		func(ctx context.Context) error { return carryOut(ctx, client, step) })
}

// learnerOf is where the learner that the step promotes can be asked; nil when it has no address.
func learnerOf(p decision.Promote, on *observation.Membership, all []observation.Endpoint) *observation.Endpoint {
	i := slices.IndexFunc(all, func(e observation.Endpoint) bool {
		m := memberAt(on, e.PeerURL)
		return m != nil && m.ID == p.ID
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}

// proveConnected lets the leader write an entry and sees it arrive at the learner (S5). Nothing else tells that the
// two hear each other now: a learner that is cut off goes on naming its leader, since it never campaigns
// (tickElection in etcd's raft), and the leader's guard remembers how far the learner had come (isLearnerReady in
// etcdserver/server.go). Promoted, it would count for the quorum and not be heard. The entry is the question for the
// list of alarms, which etcd answers through the log.
func (e *Etcd) proveConnected(ctx context.Context, leader *clientv3.Client, learner *observation.Endpoint) error {
	if learner == nil {
		return because(ErrLearnerCutOff, "it has no address")
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout())
	defer cancel()
	if err := e.call(ctx, callAlarmList, e.timeout(), func(ctx context.Context) error {
		_, err := leader.AlarmList(ctx)
		return err
	}); err != nil {
		return notDone(err)
	}
	written, err := e.index(ctx, leader)
	if err != nil {
		return notDone(err)
	}
	client, err := e.open(ctx, *learner)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	for {
		arrived, err := e.index(ctx, client)
		switch {
		case err == nil && arrived >= written:
			return nil
		case err != nil && !errors.Is(err, ErrNoAnswer): // gRPC may know a moment before ctx that the time is over
			return because(ErrLearnerCutOff, err.Error())
		}
		select {
		case <-ctx.Done():
			return because(ErrLearnerCutOff, "an entry that the leader wrote does not arrive")
		case <-time.After(arrival):
		}
	}
}

// arrival is how often a learner is asked whether an entry has arrived: a leader tells what is committed with its next
// heartbeat, after 100 ms at most.
const arrival = 20 * time.Millisecond

// index is the last entry that the member knows to be committed.
func (e *Etcd) index(ctx context.Context, client *clientv3.Client) (index uint64, err error) {
	err = e.call(ctx, callStatus, e.timeout(), func(ctx context.Context) error {
		status, err := maintenance(client).Status(ctx, &pb.StatusRequest{})
		index = status.GetRaftIndex()
		return err
	})
	return index, err
}

// notDone rewords a failure to read the member list: nothing was changed, so that ErrNoAnswer would say too much.
func notDone(err error) error {
	if errors.Is(err, ErrNoAnswer) || errors.Is(err, ErrUnreachable) {
		return because(ErrNoQuorum, err.Error())
	}
	return err
}

// same reports whether two member lists hold the same members in the same roles. Names and client URLs do not count:
// members publish them when they start.
func same(a, b *observation.Membership) bool {
	return a.ClusterID == b.ClusterID && maps.Equal(roles(a), roles(b))
}

func roles(m *observation.Membership) map[uint64]bool {
	learner := make(map[uint64]bool, len(m.Members))
	for _, member := range m.Members {
		learner[member.ID] = member.Learner
	}
	return learner
}

// carryOut makes the one call to etcd. Members are only ever added as learners (S4).
func carryOut(ctx context.Context, client *clientv3.Client, step decision.Step) (err error) {
	switch s := step.(type) {
	case decision.AddLearner:
		if _, err = client.MemberAddAsLearner(ctx, []string{s.PeerURL}); errors.Is(err, rpctypes.ErrMemberNotFound) {
			err = ErrPeerURLUsed
		}
	case decision.Promote:
		_, err = client.MemberPromote(ctx, s.ID)
	case decision.Remove:
		_, err = client.MemberRemove(ctx, s.ID)
	case decision.UpdatePeerURL:
		_, err = client.MemberUpdate(ctx, s.ID, []string{s.PeerURL})
	case decision.MoveLeader:
		_, err = client.MoveLeader(ctx, s.To)
	default:
		err = maintain(ctx, client, step)
	}
	return err
}
