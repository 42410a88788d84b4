package etcdops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestEveryAnswerHasOneSentence(t *testing.T) {
	dialing := `last connection error: connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:2379: connect: %s"`
	tests := []struct {
		err  error
		is   error
		says string
	}{
		{rpctypes.ErrGRPCUnhealthy, ErrUnhealthy, "etcd asks to wait: too few voters have been connected for 5 " +
			"seconds"},
		{rpctypes.ErrUnhealthy, ErrUnhealthy, "etcd asks to wait: too few voters have been connected for 5 seconds"},
		{rpctypes.ErrGRPCMemberNotEnoughStarted, ErrNotEnoughStarted, "etcd asks to wait: too few voters have started"},
		{status.Error(codes.Unknown, rpctypes.ErrMemberNotEnoughStarted.Error()), ErrNotEnoughStarted,
			"etcd asks to wait: too few voters have started"},
		{rpctypes.ErrMemberLearnerNotReady, ErrLearnerNotReady,
			"etcd asks to wait: the learner has not caught up with the leader"},
		{rpctypes.ErrTooManyLearners, ErrTooManyLearners, "there is a learner already"},
		{rpctypes.ErrPeerURLExist, ErrPeerURLExists, "a member has this peer URL already"},
		{rpctypes.ErrMemberExist, ErrPeerURLExists, "a member has this peer URL already"},
		{rpctypes.ErrMemberNotFound, ErrMemberGone, "the member does not exist"},
		{rpctypes.ErrMemberNotLearner, ErrNotLearner, "the member votes already"},
		{rpctypes.ErrNotLeader, ErrNotLeader, "the member that was asked is not the leader"},
		{rpctypes.ErrBadLeaderTransferee, ErrBadTransferee, "the member can't lead: it does not vote, or is not a " +
			"member"},
		{rpctypes.ErrGRPCNotSupportedForLearner, errLearnerRefuses, "a learner does not answer this"},
		{rpctypes.ErrNoLeader, errNoLeader, "the cluster has no leader"},
		{rpctypes.ErrTimeoutDueToConnectionLost, ErrNoAnswer, "no answer in time"},
		{rpctypes.ErrGRPCTimeoutWaitAppliedIndex, ErrNoAnswer, "no answer in time"},
		{context.DeadlineExceeded, ErrNoAnswer, "no answer in time"},
		{status.Error(codes.DeadlineExceeded, "context deadline exceeded"), ErrNoAnswer, "no answer in time"},
		{status.Error(codes.Canceled, "context canceled"), ErrNoAnswer, "no answer in time"},
		{rpctypes.ErrPermissionDenied, errNotPermitted, "etcd's auth does not permit it to the user of our " +
			"certificate"},
		{rpctypes.ErrGRPCUserEmpty, errNoUser, "etcd's auth is on, and it does not accept our certificate"},
		{rpctypes.ErrGRPCAuthNotEnabled, errRefused, "etcd refused: authentication is not enabled"},
		{rpctypes.ErrDowngradeInProcess, errDowngradeUnderWay,
			"a downgrade to another version is under way: cancel that one first"},
		{rpctypes.ErrInvalidDowngradeTargetVersion, ErrDowngradeTarget,
			"etcd goes down by one minor version at a time, and not to this one from the one that it has"},
		{rpctypes.ErrWrongDowngradeVersionFormat, errDowngradeVersion,
			"the version of the downgrade is not one, such as 3.6.0"},
		{rpctypes.ErrClusterVersionUnavailable, errVersionUnknown,
			"etcd asks to wait: the members have not agreed on the version of the cluster yet"},
		{rpctypes.ErrCompacted, errCompacted, "this revision of the keys has been compacted away"},
		{rpctypes.ErrGRPCFutureRev, ErrFutureRevision, "the keys have not come to this revision yet"},
		{rpctypes.ErrGRPCNoSpace, errNoSpace, "etcd takes no more data while there is an alarm NOSPACE: compact, " +
			"defragment the members, then disarm it"},
		{rpctypes.ErrGRPCCorrupt, ErrCorrupt, "etcd serves no keys while there is an alarm CORRUPT: replace the " +
			"member whose data differs, then disarm it"},
		{status.Error(codes.Unavailable, "etcdserver: something new"), errRefused, "etcd refused: something new"},
		{status.Error(codes.Unknown, ""), errRefused, "etcd refused"},
		{status.Error(codes.Unavailable, fmt.Sprintf(dialing, "connection refused")), ErrUnreachable,
			"unreachable: connection refused"},
		{status.Error(codes.Unavailable, fmt.Sprintf(dialing, "no route to host")), ErrUnreachable,
			"unreachable: no route to host"},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), ErrUnreachable, "unreachable: EOF"},
		{errors.New("URL scheme must be http"), errFailed, "the call failed: URL scheme must be http"},
		{fmt.Errorf("%w: x", ErrOtherEtcd), ErrOtherEtcd, "another etcd answers at this address: x"},
	}
	for _, test := range tests {
		err := explain(test.err)
		require.ErrorIs(t, err, test.is, test.err)
		assert.EqualError(t, err, test.says)
	}
	assert.NoError(t, explain(nil))
}

// The ways in which the words of an error reach us.
const (
	asStatus   = iota // as gRPC brings them
	asEtcds           // as etcd's client hands them on, when it knows the words
	asPlain           // from our own side of the connection
	shapeCount        // how many there are
)

// shaped is an error of this code and these words in one of the shapes; nil for the code OK.
func shaped(shape uint8, code codes.Code, said string) error {
	switch shape % shapeCount {
	case asPlain:
		return errors.New(said)
	case asEtcds:
		return rpctypes.Error(status.Error(code, said))
	}
	return status.Error(code, said)
}

// FuzzErrorMapping: whatever etcd, gRPC or the network say, in whatever shape, there is one cause of ours, the same
// words every time, one short printable line, and etcd's own words mean the same in every shape.
func FuzzErrorMapping(f *testing.F) {
	for _, said := range slices.Sorted(maps.Keys(answers)) {
		f.Add(uint32(codes.Unknown), said, uint8(asStatus))
		f.Add(uint32(codes.Unavailable), said, uint8(asEtcds))
	}
	f.Add(uint32(codes.Unavailable),
		`connection error: desc = "transport: dial tcp 10.0.0.1:2379: connect: connection refused"`, uint8(asStatus))
	f.Add(uint32(codes.Unavailable), ": ", uint8(asStatus))
	f.Add(uint32(codes.OK), "fine", uint8(asEtcds))
	f.Add(uint32(codes.DataLoss), "etcdserver: corrupt cluster", uint8(asEtcds))
	f.Add(uint32(codes.PermissionDenied), "etcdserver: permission denied", uint8(asEtcds))
	f.Add(uint32(99), "line\nline\x00\xff\u202e", uint8(asPlain))
	f.Fuzz(func(t *testing.T, code uint32, said string, shape uint8) {
		given := shaped(shape, codes.Code(code), said)
		err := explain(given)
		if given == nil {
			require.NoError(t, err)
			return
		}
		require.Error(t, err)
		causes := 0
		for e := err; e != nil; e = errors.Unwrap(e) {
			if _, is := e.(cause); is { //nolint:errorlint // each link of the chain is looked at
				causes++
			}
		}
		assert.Equal(t, 1, causes, "one cause for %q", said)
		assert.Equal(t, err.Error(), explain(given).Error(), "the same words every time")
		assert.Equal(t, err, explain(err), "explained once is explained")
		assert.LessOrEqual(t, len(err.Error()), 300)
		assert.True(t, utf8.ValidString(err.Error()))
		assert.NotContains(t, err.Error(), "\n")
		if ours, ok := answers[said]; ok {
			assert.Equal(t, ours, err)
		}
	})
}
