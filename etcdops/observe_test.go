package etcdops

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
)

func TestObserveTellsMembershipAndHealth(t *testing.T) {
	all := fakes(t, 3)
	m, health := new(Etcd).Observe(t.Context(), endpointsOf(all))
	require.NotNil(t, m)
	assert.EqualValues(t, testCluster, m.ClusterID)
	assert.EqualValues(t, 1, m.Leader)
	require.Len(t, m.Members, 3)
	assert.Equal(t, observation.Member{ID: 2, Name: "demo-1", PeerURLs: []string{peerURL(1)},
		ClientURLs: []string{"http://demo-1"}}, m.Members[1])
	require.Len(t, health, 3)
	assert.Equal(t, observation.Health{
		ClusterID: testCluster, MemberID: 2, Leader: 1, Version: "3.6.16", RaftTerm: testTerm, RaftIndex: 100,
		DBSize: 20, DBSizeInUse: 10,
	}, health["demo-1"])
}

func TestObserveAsksTheLeaderOnceForTheMemberList(t *testing.T) {
	all := fakes(t, 3)
	for _, f := range all {
		f.status.Leader = 2
	}
	_, _ = new(Etcd).Observe(t.Context(), endpointsOf(all))
	assert.Equal(t, []string{"Status"}, all[0].calls())
	assert.Equal(t, []string{"Status", "MemberList"}, all[1].calls())
	assert.Equal(t, []string{"Status"}, all[2].calls())
}

func TestObserveAsksTheNextVoterWhenTheLeaderHasNoList(t *testing.T) {
	all := fakes(t, 3)
	all[0].listErr = rpctypes.ErrGRPCTimeout
	m, health := new(Etcd).Observe(t.Context(), endpointsOf(all))
	require.NotNil(t, m)
	assert.True(t, health["demo-0"].Serving())
	assert.Equal(t, []string{"Status", "MemberList"}, all[0].calls(), "asked once: no retries")
	assert.Equal(t, []string{"Status", "MemberList"}, all[1].calls())
	assert.Equal(t, []string{"Status"}, all[2].calls())
}

func TestObserveNeverAsksALearnerForTheMemberList(t *testing.T) {
	all := fakes(t, 2)
	all[1].status.IsLearner = true
	all[0].endpoint.ClientURL = refused(t)
	m, health := new(Etcd).Observe(t.Context(), endpointsOf(all))
	assert.Nil(t, m)
	assert.True(t, health["demo-1"].Learner)
	assert.Equal(t, []string{"Status"}, all[1].calls())
}

func TestObserveIsBlindWithoutALeader(t *testing.T) {
	all := fakes(t, 3)
	for _, f := range all {
		f.status.Leader = 0
	}
	m, health := new(Etcd).Observe(t.Context(), endpointsOf(all))
	assert.Nil(t, m)
	assert.Empty(t, health["demo-0"].Err)
	assert.False(t, health["demo-0"].Serving())
}

func TestObserveWithoutEndpoints(t *testing.T) {
	m, health := new(Etcd).Observe(t.Context(), nil)
	assert.Nil(t, m)
	assert.Empty(t, health)
}

func TestARefusedEndpointCostsNoTime(t *testing.T) {
	all := fakes(t, 3)
	all[2].endpoint.ClientURL = refused(t)
	m, health := (&Etcd{Timeout: time.Hour}).Observe(t.Context(), endpointsOf(all)) // it would wait for this
	assert.NotNil(t, m)
	assert.Equal(t, observation.Health{Err: "unreachable: connection refused"}, health["demo-2"])
}

func TestASilentEndpointCostsOneTimeout(t *testing.T) {
	all := fakes(t, 3)
	all[2].endpoint.ClientURL = silent(t)
	e := &Etcd{Timeout: 2 * time.Second} // time enough for those that answer
	var m *observation.Membership
	var health map[string]observation.Health
	d := took(func() { m, health = e.Observe(t.Context(), endpointsOf(all)) })
	assert.GreaterOrEqual(t, d, 2*time.Second)
	t.Logf("it took %s", d)
	assert.NotNil(t, m)
	assert.Equal(t, observation.Health{Err: "no answer in time"}, health["demo-2"])
}

func TestObserveKeepsTheCallersDeadline(t *testing.T) {
	endpoints := []observation.Endpoint{{Name: "demo-0", ClientURL: silent(t), PeerURL: peerURL(0)}}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	(&Etcd{Timeout: time.Hour}).Observe(ctx, endpoints) // it would wait for this
}

func TestAnEndpointWithoutAUsableAddressIsOnlyUnwell(t *testing.T) {
	for _, bad := range []string{"", "http://", "nonsense", "http://demo 0:2379", "https://\x7f"} {
		endpoints := []observation.Endpoint{{Name: "demo-0", ClientURL: bad, PeerURL: peerURL(0)}}
		m, health := (&Etcd{Timeout: 200 * time.Millisecond}).Observe(t.Context(), endpoints)
		assert.Nil(t, m)
		assert.NotEmpty(t, health["demo-0"].Err, bad)
	}
}

func TestOtherEtcdsDoNotCount(t *testing.T) {
	tests := map[string]struct {
		change func(all []*fake)
		err    map[string]string
		blind  bool
	}{
		"another cluster's member at a follower's address": {
			change: func(all []*fake) {
				all[2].header.ClusterId = 0xC2
			},
			err: map[string]string{"demo-2": "another etcd answers at this address: its cluster ID is c2"},
		},
		"another cluster's leader, asked first": {
			change: func(all []*fake) {
				all[2].header.ClusterId, all[2].header.RaftTerm, all[2].status.RaftTerm, all[2].status.Leader = 0xC2,
					99, 99, 3
				all[2].members = []*pb.Member{{ID: 3, PeerURLs: []string{"http://other-0.other-peers:2380"}}}
			},
			err: map[string]string{"demo-2": "another etcd answers at this address: member 3 is listed with another " +
				"peer URL"},
		},
		"another cluster's leader that is not even in its list": {
			change: func(all []*fake) {
				all[2].header.ClusterId, all[2].status.RaftTerm, all[2].status.Leader = 0xC2, 99, 3
				all[2].members = nil
			},
			err: map[string]string{"demo-2": "another etcd answers at this address: member 3 is not in the member " +
				"list"},
		},
		"another member of the same cluster": {
			change: func(all []*fake) { all[1].endpoint.PeerURL, all[2].endpoint.PeerURL = peerURL(2), peerURL(1) },
			err: map[string]string{
				"demo-1": "another etcd answers at this address: member 2 is listed with another peer URL",
				"demo-2": "another etcd answers at this address: member 3 is listed with another peer URL",
			},
		},
		"a removed member that still runs": {
			change: func(all []*fake) {
				all[0].members = all[0].members[:2]
			},
			err: map[string]string{"demo-2": "another etcd answers at this address: member 3 is not in the member " +
				"list"},
		},
		"an etcd restored from a snapshot, which lists itself under the peer URL": {
			change: func(all []*fake) {
				all[2].header.ClusterId, all[2].status.RaftTerm, all[2].status.Leader = 0xC2, 99, 3
				all[2].members = all[2].members[2:]
				for _, f := range all {
					f.endpoint.ClusterID = testCluster
				}
			},
			err: map[string]string{"demo-2": "another etcd answers at this address: its cluster ID is c2"},
		},
		"only other etcds": {
			change: func(all []*fake) {
				for i, f := range all {
					f.endpoint.PeerURL = peerURL(i + 10)
				}
			},
			err: map[string]string{
				"demo-0": "another etcd answers at this address: member 1 is listed with another peer URL",
				"demo-1": "another etcd answers at this address: member 2 is listed with another peer URL",
				"demo-2": "another etcd answers at this address: member 3 is listed with another peer URL",
			},
			blind: true,
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			all := fakes(t, 3)
			test.change(all)
			m, health := new(Etcd).Observe(t.Context(), endpointsOf(all))
			if test.blind {
				assert.Nil(t, m)
			} else {
				require.NotNil(t, m)
				assert.EqualValues(t, testCluster, m.ClusterID)
				assert.EqualValues(t, 1, m.Leader, "another etcd's leader is not ours")
			}
			for name, h := range health {
				assert.Equal(t, test.err[name], h.Err, name)
				if h.Err != "" {
					assert.NotZero(t, h.MemberID, "it is told who answers")
					assert.Equal(t, observation.Health{Err: h.Err, ClusterID: h.ClusterID, MemberID: h.MemberID}, h)
				}
			}
		})
	}
}

func TestTheLeaderIsTheNewestTerms(t *testing.T) {
	all := fakes(t, 3)
	for _, f := range all[1:] {
		f.status.Leader, f.status.RaftTerm, f.header.RaftTerm = 2, testTerm+1, testTerm+1
	}
	m, _ := new(Etcd).Observe(t.Context(), endpointsOf(all))
	require.NotNil(t, m)
	assert.EqualValues(t, 2, m.Leader, "member 1 has not noticed yet that it leads no more")
}

func TestTheLeaderIsUnknownAfterAnElectionDuringTheCall(t *testing.T) {
	all := fakes(t, 3)
	for _, f := range all {
		f.header.RaftTerm = testTerm + 1
	}
	m, _ := new(Etcd).Observe(t.Context(), endpointsOf(all))
	require.NotNil(t, m)
	assert.Zero(t, m.Leader)
}

func TestAlarmsBelongToTheMemberThatRaisedThem(t *testing.T) {
	all := fakes(t, 3)
	all[0].status.Errors = []string{"memberID:2 alarm:NOSPACE ", "memberID:2  alarm:CORRUPT", "etcdserver: no leader",
		"memberID:9 alarm:NOSPACE"}
	all[0].status.RaftAppliedIndex = 101
	all[2].status.Errors = []string{"memberID:3 alarm:NOSPACE "} // has been disarmed; demo-2 is behind
	_, health := new(Etcd).Observe(t.Context(), endpointsOf(all))
	assert.Empty(t, health["demo-0"].Alarms)
	assert.Equal(t, []string{"CORRUPT", "NOSPACE"}, health["demo-1"].Alarms)
	assert.Empty(t, health["demo-2"].Alarms)
}

func TestTheMembershipTellsAllAlarms(t *testing.T) {
	all := fakes(t, 3)
	all[2].status.Errors = []string{"memberID:9 alarm:NOSPACE", "memberID:2 alarm:NOSPACE", "etcdserver: no leader",
		"nonsense", "", "memberID:3", "alarm:CORRUPT "}
	all[2].status.RaftAppliedIndex = 101
	all[0].status.Errors = []string{"memberID:3 alarm:NOSPACE"}
	m, _ := new(Etcd).Observe(t.Context(), endpointsOf(all))
	require.NotNil(t, m)
	assert.Equal(t, []observation.Alarm{{Kind: "CORRUPT"}, {MemberID: 2, Kind: "NOSPACE"}, {MemberID: 9,
		Kind: "NOSPACE"}}, m.Alarms, "also of a member that was removed, and of no member")
}

func TestAlarmsOfAnotherEtcdAreNotOurs(t *testing.T) {
	all := fakes(t, 3)
	all[2].header.ClusterId, all[2].status.RaftAppliedIndex = 0xC2, 999
	all[2].status.Errors = []string{"memberID:1 alarm:CORRUPT"}
	m, health := new(Etcd).Observe(t.Context(), endpointsOf(all))
	require.NotNil(t, m)
	assert.Empty(t, m.Alarms)
	assert.Empty(t, health["demo-0"].Alarms)
	assert.NotContains(t, all[0].calls(), "HashKV 0")
}

func TestAMemberTellsItsRevisionAndVersions(t *testing.T) {
	all := fakes(t, 3)
	all[1].header.Revision = 77
	all[1].status.StorageVersion = "3.6.0"
	all[1].status.DowngradeInfo = &pb.DowngradeInfo{Enabled: true, TargetVersion: "3.5.0"}
	all[2].status.DowngradeInfo = &pb.DowngradeInfo{TargetVersion: "3.5.0"} // was cancelled
	_, health := new(Etcd).Observe(t.Context(), endpointsOf(all))
	assert.EqualValues(t, 77, health["demo-1"].Revision)
	assert.Equal(t, "3.6.0", health["demo-1"].StorageVersion)
	assert.Equal(t, "3.5.0", health["demo-1"].Downgrade)
	assert.Empty(t, health["demo-2"].Downgrade)
}

func TestKeysAreHashedOnlyUnderAnAlarmOfTheirs(t *testing.T) {
	all := fakes(t, 4)
	for i, f := range all {
		f.header.Revision, f.hash = int64(50-i), &pb.HashKVResponse{Hash: uint32(i), CompactRevision: 40}
		f.status.Errors = []string{"memberID:1 alarm:NOSPACE"}
	}
	all[1].hash = nil
	all[3].status.IsLearner = true

	_, health := new(Etcd).Observe(t.Context(), endpointsOf(all))
	assert.Nil(t, health["demo-0"].Hash)
	assert.Equal(t, []string{"Status", "MemberList"}, all[0].calls())

	all[0].asked, all[3].asked = nil, nil
	all[0].status.Errors = []string{"memberID:9 alarm:CORRUPT"}
	all[0].status.RaftAppliedIndex = 101
	_, health = new(Etcd).Observe(t.Context(), endpointsOf(all))
	assert.Equal(t, []string{"Status", "MemberList", "HashKV 48"}, all[0].calls(), "the newest that all voters have")
	assert.Equal(t, &observation.Hash{Revision: 48, CompactRevision: 40, Value: 0}, health["demo-0"].Hash)
	assert.Nil(t, health["demo-1"].Hash)
	assert.True(t, health["demo-1"].Serving())
	assert.Equal(t, &observation.Hash{Revision: 48, CompactRevision: 40, Value: 2}, health["demo-2"].Hash)
	assert.Nil(t, health["demo-3"].Hash)
	assert.Equal(t, []string{"Status"}, all[3].calls(), "a learner refuses")
}

func TestObserveLeavesNothingBehind(t *testing.T) {
	all := fakes(t, 3)
	serving := endpointsOf(all)
	both := append(endpointsOf(all), observation.Endpoint{Name: "refused", ClientURL: refused(t)},
		observation.Endpoint{Name: "silent", ClientURL: silent(t)})
	hasty, patient := &Etcd{Timeout: 100 * time.Millisecond}, new(Etcd) // the silent one takes all the time there is
	hasty.Observe(t.Context(), both)
	before := settled()
	for range 10 {
		hasty.Observe(t.Context(), both)
		m, _ := patient.Observe(t.Context(), serving)
		require.NotNil(t, m)
		require.ErrorIs(t, patient.Do(t.Context(), decision.MoveLeader{To: 2}, &observation.Membership{}, serving),
			ErrNoExecutor)
		require.NoError(t, patient.Do(t.Context(), decision.MoveLeader{To: 2}, m, serving))
	}
	assert.LessOrEqual(t, settled(), before)
}

// settled is the number of goroutines once it has not changed for a while.
func settled() int {
	n := runtime.NumGoroutine()
	for same := 0; same < 10; same++ {
		time.Sleep(5 * time.Millisecond)
		if now := runtime.NumGoroutine(); now != n {
			n, same = now, 0
		}
	}
	return n
}

func TestTheObserverHearsOfEveryCall(t *testing.T) {
	all := fakes(t, 3)
	all[1].endpoint.ClientURL = refused(t)
	all[0].step = rpctypes.ErrGRPCUnhealthy
	var mu sync.Mutex
	heard := map[string][]error{}
	e := &Etcd{Observer: func(call string, took time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		heard[call] = append(heard[call], err)
		assert.Positive(t, took)
	}}
	m, _ := e.Observe(t.Context(), endpointsOf(all))
	err := e.Do(t.Context(), decision.AddLearner{Name: "demo-3", PeerURL: peerURL(3)}, m, endpointsOf(all))
	require.ErrorIs(t, err, ErrUnhealthy)
	assert.Len(t, heard[callStatus], 3)
	assert.Equal(t, []error{nil, nil}, heard[callMemberList])
	assert.Equal(t, []error{ErrUnhealthy}, heard["add-learner"])
}

func TestDialGoesWhereTheTestSays(t *testing.T) {
	all := fakes(t, 1)
	served := all[0].endpoint.ClientURL[len("http://"):]
	all[0].endpoint.ClientURL = "http://10.244.1.7:2379"
	e := &Etcd{Dial: func(ctx context.Context, address string) (net.Conn, error) {
		assert.Equal(t, "10.244.1.7:2379", address)
		var d net.Dialer
		return d.DialContext(ctx, "tcp", served)
	}}
	m, _ := e.Observe(t.Context(), endpointsOf(all))
	assert.NotNil(t, m)
}

// TestAnExternalMemberIsKnownByItsAnswer: which member answers at a URL is not known before.
func TestAnExternalMemberIsKnownByItsAnswer(t *testing.T) {
	all := fakes(t, 3)
	endpoints, served := endpointsOf(all), map[string]string{}
	for i := range endpoints {
		at := fmt.Sprintf("10.1.2.%d:2379", i)
		served[at] = address(endpoints[i])
		endpoints[i] = elsewhere("http://" + at)
	}
	etcd := &Etcd{Dial: func(ctx context.Context, address string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", served[address])
	}}
	membership, health := etcd.Observe(t.Context(), endpoints)
	require.NotNil(t, membership)
	for i, e := range endpoints {
		assert.Equal(t, uint64(i+1), health[e.Name].MemberID)
	}
	step := decision.Remove{ID: 3, Name: "demo-2"}
	require.ErrorIs(t, etcd.Do(t.Context(), step, membership, endpoints), ErrNoExecutor,
		"it is not known who would be asked")
	require.NoError(t, etcd.Do(t.Context(), step, membership, facts.Located(endpoints, membership, health)))
	assert.Contains(t, all[0].calls(), "MemberRemove 3")
}

// TestOnlyExternalMembersAreToldTheExternalUser, and none in plain text.
func TestOnlyExternalMembersAreToldTheExternalUser(t *testing.T) {
	etcd, is := (&Etcd{}).Beside(External{User: "root", Password: "secret"}).(*Etcd)
	require.True(t, is)
	for who, c := range map[string]struct {
		endpoint observation.Endpoint
		user     string
	}{
		"an external one by TLS": {observation.Endpoint{ClientURL: "https://10.0.0.1:2379", ServerName: "10.0.0.1",
			External: true}, "root"},
		"an external one in plain text": {observation.Endpoint{ClientURL: "http://10.0.0.1:2379", External: true}, ""},
		"one of ours":                   {observation.Endpoint{ClientURL: "https://10.0.0.1:2379", ServerName: "demo-0"}, ""},
	} {
		assert.Equal(t, c.user, etcd.config(t.Context(), c.endpoint, &handshake{}).Username, who)
	}
}
