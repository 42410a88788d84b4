package etcdops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate-dev/quorate/hooks/decision"
)

// A cause is what can come of a call. Every error of this package wraps exactly one. They reach status and log, so each
// is a clause for people, and the same cause always has the same words: no ports of the moment, no durations.
type cause string

// Error implements error.
func (c cause) Error() string { return string(c) }

// The causes.
const (
	// Refused by us, before etcd was asked to change anything.

	// errBlind: a step needs the member list that it was decided on.
	errBlind = cause("no step is taken without a member list")
	// ErrMembershipChanged: the member list is not the one that the step was decided on. Decide again.
	ErrMembershipChanged = cause("the membership has changed since the decision")
	// ErrNoExecutor: no voter that could carry out the step has an address, or the step is the leader's and it has
	// none.
	ErrNoExecutor = cause("no member that could carry it out can be asked")
	// ErrNoQuorum: no member could give us a linearizable member list.
	ErrNoQuorum = cause("the member list cannot be read")
	// ErrOtherEtcd: the etcd at an endpoint is not the member that we meant.
	ErrOtherEtcd = cause("another etcd answers at this address")
	// ErrLearnerCutOff: the learner that should be promoted does not get what the leader writes now (S5); why follows.
	// Wait.
	ErrLearnerCutOff = cause(decision.LearnerCutOff)
	// errUnknownStep: a step of a kind that this package does not know.
	errUnknownStep = cause("unknown step")

	// errNoCertificate: auth would lock us out.
	errNoCertificate = cause("etcd's auth is not turned on while we have no client certificate to come with")
	// ErrPassword: a password can't be had, or etcd would not take it; why follows.
	ErrPassword = cause("the password cannot be used")
	// ErrAuthUnfinished: users and roles have taken all the time that one call has. The next one goes on.
	ErrAuthUnfinished = cause("not done yet, to be continued")
	// ErrAuthContended: what we made of users and roles was something else again when we looked.
	ErrAuthContended = cause("another client changes users and roles at the same time")

	// Refused by etcd. Nothing was changed.

	// ErrUnhealthy is routine: with strict-reconfig-check, etcd changes members only while the member that is asked
	// has had connections to enough voters for 5 seconds (HealthInterval in etcd's etcdserver/server.go). Wait; never
	// switch the check off.
	ErrUnhealthy = cause("etcd asks to wait: too few voters have been connected for 5 seconds")
	// ErrNotEnoughStarted: too few of the listed voters have ever started for one to be removed or promoted.
	ErrNotEnoughStarted = cause("etcd asks to wait: too few voters have started")
	// ErrLearnerNotReady: the learner has less than 90 % of the leader's log (isLearnerReady in the same file).
	ErrLearnerNotReady = cause("etcd asks to wait: the learner has not caught up with the leader")
	// ErrTooManyLearners: one learner at a time is etcd's default (max-learners).
	ErrTooManyLearners = cause("there is a learner already")
	// ErrPeerURLExists: the addition was made before, or the name was used twice (S9). An added member's ID is a hash
	// of its peer URLs and the time in seconds (computeMemberID in etcd's etcdserver/api/membership/member.go), so
	// that etcd says "member ID already exist" when both additions fall into one second, else "Peer URLs already
	// exists".
	ErrPeerURLExists = cause("a member has this peer URL already")
	// ErrPeerURLUsed: the same hash again, now that of a member which was added and removed within this second. etcd
	// says "member not found" to the addition.
	ErrPeerURLUsed = cause("a member with this peer URL was removed a moment ago")
	// ErrMemberGone: the member was removed, or never existed.
	ErrMemberGone = cause("the member does not exist")
	// ErrNotLearner: the promotion was made before.
	ErrNotLearner = cause("the member votes already")
	// errBadURL: etcd cannot read the peer URL.
	errBadURL = cause("the peer URL is not valid")
	// errLearnerRefuses: a learner answers little besides Status.
	errLearnerRefuses = cause("a learner does not answer this")
	// ErrNotLeader: the leader has changed since the decision.
	ErrNotLeader = cause("the member that was asked is not the leader")
	// ErrBadTransferee: the leadership goes to voters only.
	ErrBadTransferee = cause("the member can't lead: it does not vote, or is not a member")
	// errNoLeader: an election is going on, or there is no quorum.
	errNoLeader = cause("the cluster has no leader")
	// errNoUser: auth is on, and etcd knows no user of ours: we came without a client certificate, or it does not look
	// at them (client-cert-auth).
	errNoUser = cause("etcd's auth is on, and it does not accept our certificate")
	// errToken: it was started with another key than the Secret holds.
	errToken = cause("etcd does not take a token of the key in the Secret for tokens")
	// errTokenRevision: a token is for another revision of users and roles than the member has.
	errTokenRevision = cause("the users and roles are of another revision than the token")
	// errNotPermitted: auth is on, and our certificate's user is not one with the role root.
	errNotPermitted = cause("etcd's auth does not permit it to the user of our certificate")
	// errDowngradeUnderWay: one goes on, to another version than that which is asked for.
	errDowngradeUnderWay = cause("a downgrade to another version is under way: cancel that one first")
	// ErrDowngradeTarget: a cluster goes down by one minor version at a time, from the version that all members have
	// agreed on.
	ErrDowngradeTarget = cause("etcd goes down by one minor version at a time, and not to this one from the one " +
		"that it has")
	// errDowngradeVersion: etcd cannot read the version.
	errDowngradeVersion = cause("the version of the downgrade is not one, such as 3.6.0")
	// errVersionUnknown: the cluster is that young.
	errVersionUnknown = cause("etcd asks to wait: the members have not agreed on the version of the cluster yet")
	// errCompacted: what is asked for is older than the last compaction.
	errCompacted = cause("this revision of the keys has been compacted away")
	// ErrFutureRevision: there is no such revision yet, or the member that was asked has not heard of it.
	ErrFutureRevision = cause("the keys have not come to this revision yet")
	// errNoSpace: the quota of a member is used up, or was when it raised its alarm.
	errNoSpace = cause("etcd takes no more data while there is an alarm NOSPACE: compact, defragment the " +
		"members, then disarm it")
	// ErrCorrupt: etcd serves no keys while it knows that members differ.
	ErrCorrupt = cause("etcd serves no keys while there is an alarm CORRUPT: replace the member whose data " +
		"differs, then disarm it")
	// errRefused: etcd refused for another reason, which follows.
	errRefused = cause("etcd refused")

	// The outcome is not known. A change may or may not have been made.

	// ErrNoAnswer: the deadline passed, on our side or on etcd's.
	ErrNoAnswer = cause("no answer in time")
	// ErrUnreachable: there is no connection, or it broke; the reason follows.
	ErrUnreachable = cause("unreachable")
	// ErrHandshake: the two sides don't accept each other's certificate; the reason follows.
	ErrHandshake = cause("TLS handshake failed")
	// errFailed: the call failed on our side; the reason follows.
	errFailed = cause("the call failed")
)

// answers maps what etcd says (rpctypes in etcd's api module) to our errors. It is keyed by the words: some of etcd's
// errors lose their code on the way (its server sends ErrMemberNotEnoughStarted with code Unknown), and a few are
// missing in rpctypes.Error's own table.
var answers = map[string]error{
	rpctypes.ErrorDesc(rpctypes.ErrGRPCUnhealthy):              ErrUnhealthy,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCMemberNotEnoughStarted): ErrNotEnoughStarted,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCLearnerNotReady):        ErrLearnerNotReady,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCTooManyLearners):        ErrTooManyLearners,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCPeerURLExist):           ErrPeerURLExists,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCMemberExist):            ErrPeerURLExists,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCMemberNotFound):         ErrMemberGone,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCMemberNotLearner):       ErrNotLearner,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCMemberBadURLs):          errBadURL,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner): errLearnerRefuses,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNotLeader):              ErrNotLeader,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCBadLeaderTransferee):    ErrBadTransferee,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader):               errNoLeader,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty):              errNoUser,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCInvalidAuthToken):       errToken,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthOldRevision):        errTokenRevision,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCPermissionDenied):       errNotPermitted,

	rpctypes.ErrorDesc(rpctypes.ErrGRPCDowngradeInProcess):            errDowngradeUnderWay,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCInvalidDowngradeTargetVersion): ErrDowngradeTarget,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCWrongDowngradeVersionFormat):   errDowngradeVersion,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCClusterVersionUnavailable):     errVersionUnknown,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted):                     errCompacted,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCFutureRev):                     ErrFutureRevision,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace):                       errNoSpace,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCCorrupt):                       ErrCorrupt,

	rpctypes.ErrorDesc(rpctypes.ErrGRPCTimeout):                    ErrNoAnswer,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCTimeoutDueToLeaderFail):     ErrNoAnswer,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCTimeoutDueToConnectionLost): ErrNoAnswer,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCTimeoutWaitAppliedIndex):    ErrNoAnswer,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaderChanged):              ErrNoAnswer,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCStopped):                    ErrNoAnswer,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCCanceled):                   ErrNoAnswer,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCDeadlineExceeded):           ErrNoAnswer,
	// ErrTimeoutLeaderTransfer in etcd's etcdserver/errors, which rpctypes lacks.
	"etcdserver: request timed out, leader transfer took too long": ErrNoAnswer,
}

// explain puts an error of etcd's client into this package's words. Nil stays nil.
func explain(err error) error {
	if err == nil || isOurs(err) {
		return err
	}
	said := rpctypes.ErrorDesc(err)
	if ours, ok := answers[said]; ok {
		return ours
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return ErrNoAnswer
	}
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return because(errRefused, said)
	}
	answer, ok := status.FromError(err)
	switch {
	case !ok:
		return because(errFailed, said)
	case noAnswer(said) != "":
		return because(ErrOtherEtcd, noAnswer(said))
	case answer.Code() == codes.DeadlineExceeded, answer.Code() == codes.Canceled:
		return ErrNoAnswer
	case answer.Code() == codes.Unavailable && strings.Contains(said, "tls: "):
		return because(ErrHandshake, tlsClause(said))
	case answer.Code() == codes.Unavailable && !strings.HasPrefix(said, serverPrefix):
		return because(ErrUnreachable, lastClause(said))
	}
	return because(errRefused, said)
}

func isOurs(err error) bool {
	var ours cause
	return errors.As(err, &ours)
}

// serverPrefix begins whatever etcd's server says itself.
const serverPrefix = "etcdserver: "

// because adds a reason to one of our errors.
func because(ours error, reason string) error {
	if reason = clean(strings.TrimPrefix(reason, serverPrefix)); reason == "" {
		return ours
	}
	return fmt.Errorf("%w: %s", ours, reason)
}

// lastClause is the cause at the end of a connection error, such as "connection refused". What is before it names
// addresses and ports that differ from one try to the next.
func lastClause(said string) string {
	if i := strings.LastIndex(said, ": "); i >= 0 {
		said = said[i+len(": "):]
	}
	return strings.Trim(said, `" `)
}

// tlsClause is what crypto/tls complains of, without the time of the moment that it adds to an expired certificate.
func tlsClause(said string) string {
	said = said[strings.LastIndex(said, "tls: ")+len("tls: "):]
	said, _, _ = strings.Cut(said, ": current time")
	return strings.Trim(said, `" `)
}

// maxReason is the most bytes of a text from outside that an error carries.
const maxReason = 200

// clean makes a text from the network fit for a status and a log: one line, printable, short.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "")
	}
	return strings.TrimSpace(text)
}
