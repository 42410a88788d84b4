package archive

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/quorate-dev/quorate/etcdops/reach"
	"github.com/quorate-dev/quorate/etcdops/token"
)

// Deadlines of questions to etcd.
const (
	// askTime is for the member list, with which the way to the cluster is found, and for how far it has come.
	askTime = 30 * time.Second
	// statusTime is for the status of one member, which it answers from memory. All are asked at once.
	statusTime = 5 * time.Second
	// loginTime is for the exchange of name and password for a token, before a member's first answer. Without a bound
	// etcd's client waits without end for a member that it can't reach.
	loginTime = 10 * time.Second
	// hashTime is for a hash of all keys, for which a member reads its whole database.
	hashTime = 5 * time.Minute
	// catchUpTime is how long a follower that lags is waited for before the leader is taken, and pollTime how often
	// it is asked.
	catchUpTime, pollTime = 5 * time.Second, 200 * time.Millisecond
	// keepAliveTime and keepAliveTimeout end a stream whose member has gone without a word.
	keepAliveTime, keepAliveTimeout = 10 * time.Second, 20 * time.Second
)

// Cluster is how etcd is reached.
type Cluster struct {
	// Endpoints are client URLs that lead to some of its members, such as that of its Service.
	Endpoints []string
	// OnlyEndpoints asks members at no other URL, though they advertise some: the endpoints of an etcd that Quorate
	// does not run are what an administrator allowed.
	OnlyEndpoints bool
	// Within is where it may be, whatever its endpoints' names lead to and its members advertise; nil for anywhere.
	Within *reach.Within
	// TLS holds what we show to members, and the authorities that must have signed their certificates; nil for plain
	// text.
	TLS *tls.Config
	// Username and Password log in, where auth is on and the certificate names no user with the role root.
	Username, Password string
	// Visitor puts a token on every call, for members that ask clients for no certificate; nil puts none.
	Visitor *token.Visitor
	// DialOptions are more of every connection, behind our own. Tests answer there.
	DialOptions []grpc.DialOption
	// patience is how long a follower that lags is waited for before the leader is taken; 0 for 5 seconds.
	patience time.Duration
}

func (c Cluster) client(endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(c.config(endpoints))
}

func (c Cluster) config(endpoints []string) clientv3.Config {
	options := c.Visitor.Options()
	if c.TLS != nil && c.TLS.ServerName != "" {
		options = append(options, grpc.WithTransportCredentials(
			expecting{credentials.NewTLS(c.TLS), c.TLS.ServerName}))
	}
	if c.Within != nil {
		options = append(options, grpc.WithContextDialer(c.Within.Dial))
	}
	options = append(options, c.DialOptions...)
	return clientv3.Config{
		Endpoints: endpoints, TLS: c.TLS, Username: c.Username, Password: c.Password, Logger: zap.NewNop(),
		DialTimeout: loginTime, DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout,
		DialOptions: options,
	}
}

// expecting are credentials for members whose certificates are for a name of their own. Of its TLS configuration etcd's
// client overwrites the name by the host of each endpoint (client/v3/internal/resolver).
type expecting struct {
	credentials.TransportCredentials
	name string
}

// ClientHandshake implements [credentials.TransportCredentials].
func (e expecting) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo,
	error) {
	return e.TransportCredentials.ClientHandshake(ctx, e.name, conn)
}

// Clone implements [credentials.TransportCredentials].
func (e expecting) Clone() credentials.TransportCredentials {
	return expecting{e.TransportCredentials.Clone(), e.name}
}

// member is a voter that a snapshot may be taken from.
type member struct {
	name   string
	id     uint64
	urls   []string
	status *pb.StatusResponse
	leader bool
	// voters is how many the cluster has, those that do not serve among them.
	voters int
}

// bound is what a snapshot must have: all that was written before it was asked for.
type bound struct {
	cluster uint64
	// revision of the keys, as a linearizable read told it; authRevision that of users and roles.
	revision, authRevision int64
	// applied is the entry of the log that the members had applied then; it has leases, too. 0 before they were asked.
	applied uint64
}

func (b bound) reachedBy(m member) bool {
	return m.status.GetHeader().GetRevision() >= b.revision && m.status.GetRaftAppliedIndex() >= b.applied
}

// choose asks every member how it is. Of the voters that serve, those in from have what a snapshot must have, the one
// to take it from first. That is a follower, since a snapshot is read from the disk and sent beside all else that a
// member does. One that lags is waited for; then it is the leader.
func (c Cluster) choose(ctx context.Context) (from, all []member, asked bound, err error) {
	list, asked, err := c.ask(ctx)
	if err != nil {
		return nil, nil, asked, err
	}
	for until := time.Now().Add(cmp.Or(c.patience, catchUpTime)); ; {
		if all, err = c.states(ctx, list); err != nil {
			return nil, nil, asked, err
		}
		if asked.applied == 0 {
			for _, m := range all {
				asked.applied = max(asked.applied, m.status.GetRaftAppliedIndex())
			}
		}
		from = slices.DeleteFunc(slices.Clone(all), func(m member) bool { return !asked.reachedBy(m) })
		late := !time.Now().Before(until)
		switch {
		case len(from) > 0 && (late || !from[0].leader || all[0].leader): // followers come first
			return from, all, asked, nil
		case late:
			return nil, nil, asked, failure(Unreachable, nil, "no member that answers has reached revision %d, which "+
				"a linearizable read returned; the snapshot is tried again", asked.revision)
		}
		select {
		case <-ctx.Done():
			return nil, nil, asked, failure(Failed, ctx.Err(),
				"stopped while a member to take the snapshot from was waited for")
		case <-time.After(pollTime):
		}
	}
}

// witnesses are the voters that serve; none when that can't be known.
func (c Cluster) witnesses(ctx context.Context) []member {
	list, _, err := c.ask(ctx)
	if err != nil {
		return nil
	}
	all, err := c.states(ctx, list)
	if err != nil {
		return nil
	}
	return all
}

// states asks every member how it is, and orders the voters that serve: followers first, and of these the one that is
// furthest.
func (c Cluster) states(ctx context.Context, list *clientv3.MemberListResponse) ([]member, error) {
	all := c.voters(list)
	count := len(all)
	if c.OnlyEndpoints {
		all = nil
		for _, url := range c.Endpoints {
			all = append(all, member{name: url, urls: []string{url}})
		}
	}
	why := make([]error, len(all))
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { why[i] = c.state(ctx, &all[i], list.Header.GetClusterId()) })
	}
	wg.Wait()
	for i := range all {
		all[i].voters = count
	}
	able, err := serving(all, why)
	if err != nil {
		return nil, err
	}
	able = c.named(able, list)
	slices.SortFunc(able, func(a, b member) int {
		return cmp.Or(
			compareBool(a.leader, b.leader),
			-cmp.Compare(a.status.GetHeader().GetRevision(), b.status.GetHeader().GetRevision()),
			-cmp.Compare(a.status.GetRaftAppliedIndex(), b.status.GetRaftAppliedIndex()),
			strings.Compare(a.name, b.name),
		)
	})
	return able, nil
}

// voters are those that have a client URL, at the URLs at which they are asked.
func (c Cluster) voters(list *clientv3.MemberListResponse) []member {
	all := make([]member, 0, len(list.Members))
	for _, m := range list.Members {
		if !m.GetIsLearner() && len(m.GetClientURLs()) > 0 {
			all = append(all, member{name: nameOf(m), id: m.GetID(), urls: c.known(m.GetClientURLs())})
		}
	}
	return all
}

// named are the members by their names, each once, though two endpoints lead to it.
func (c Cluster) named(able []member, list *clientv3.MemberListResponse) []member {
	once := able[:0]
	for _, m := range able {
		for _, listed := range list.Members {
			if listed.GetID() == m.id {
				m.name = nameOf(listed)
			}
		}
		if !slices.ContainsFunc(once, func(o member) bool { return o.id == m.id }) {
			once = append(once, m)
		}
	}
	return once
}

func nameOf(m *pb.Member) string { return cmp.Or(m.GetName(), fmt.Sprintf("%x", m.GetID())) }

// known are those of a member's URLs that are among our endpoints, if there are any: the others lead to the same member
// from elsewhere, as through a load balancer.
func (c Cluster) known(urls []string) []string {
	for _, url := range urls {
		if slices.Contains(c.Endpoints, url) {
			return []string{url}
		}
	}
	return urls
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// ask reads the member list, and how far the cluster has come. All of it goes through the log: it is no member's own
// view, that may lag.
func (c Cluster) ask(ctx context.Context) (*clientv3.MemberListResponse, bound, error) {
	at := strings.Join(c.Endpoints, ", ")
	client, err := c.client(c.Endpoints...)
	if err != nil {
		return nil, bound{}, failure(Unreachable, byEtcd(err), "no client for the cluster at %s", at)
	}
	defer client.Close()
	ctx, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	list, err := client.MemberList(ctx)
	if err != nil {
		return nil, bound{}, failure(Unreachable, byEtcd(err),
			"the cluster at %s did not list its members: it can't be reached, has no quorum, or rejects our "+
				"certificate; without the list there is no snapshot", at)
	}
	users, err := c.Users(ctx, client)
	if err != nil {
		return nil, bound{}, failure(Unreachable, byEtcd(err),
			"the cluster at %s does not tell the revision of its users and roles: the certificate must be that of a "+
				"user with the role root", at)
	}
	keys, err := client.Get(ctx, "\x00", clientv3.WithCountOnly())
	if err != nil {
		return nil, bound{}, failure(Unreachable, byEtcd(err),
			"the cluster at %s did not answer a linearizable read; without it there is no snapshot", at)
	}
	asked := bound{cluster: list.Header.GetClusterId(), revision: keys.Header.GetRevision(), authRevision: users}
	return list, asked, nil
}

// Users is the revision of users and roles. The question goes through the log: it is answered after all that came
// before, and not without a quorum.
func (c Cluster) Users(ctx context.Context, client *clientv3.Client) (int64, error) {
	answer, err := client.AuthStatus(ctx)
	if err != nil {
		return 0, err
	}
	c.Visitor.Knows(answer.AuthRevision)
	return int64(answer.AuthRevision), nil
}

// state reads a member's status. The error says why it can't be used.
func (c Cluster) state(ctx context.Context, m *member, cluster uint64) error {
	client, err := c.client(m.urls...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, stop := context.WithTimeout(ctx, statusTime)
	defer stop()
	// Not the client's own Status: that one opens a second connection.
	status, err := pb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return err
	}
	if m.id == 0 { // an endpoint, of which it was not known to which member it leads
		m.id = status.GetHeader().GetMemberId()
	}
	m.status = status
	m.leader = status.GetLeader() == m.id
	switch header := status.GetHeader(); {
	case header.GetMemberId() != m.id || header.GetClusterId() != cluster:
		return fmt.Errorf("member %x of cluster %x answers in its place", header.GetMemberId(), header.GetClusterId())
	case status.GetLeader() == 0:
		return errors.New("it follows no leader")
	case status.GetIsLearner():
		return errors.New("it is a learner")
	}
	return nil
}

// serving are the members without a reason against them. Alarms of damage count, whichever member tells of them: every
// member knows all alarms. One in the name of no member means that etcd does not know whose data is wrong.
func serving(all []member, why []error) ([]member, error) {
	Damaged := map[uint64]bool{}
	for _, m := range all {
		for _, text := range m.status.GetErrors() {
			var alarm pb.AlarmMember
			if prototext.Unmarshal([]byte(text), &alarm) == nil && alarm.GetAlarm() == pb.AlarmType_CORRUPT {
				Damaged[alarm.GetMemberID()] = true
			}
		}
	}
	if Damaged[0] {
		return nil, failure(Failed, nil, "the members' data differs (alarm CORRUPT): no snapshot is taken; see the "+
			"cluster's conditions")
	}
	var able []member
	var reasons []string
	for i, m := range all {
		switch {
		case why[i] != nil:
			reasons = append(reasons, m.name+": "+oneLine(why[i]))
		case Damaged[m.id]:
			reasons = append(reasons, m.name+": its data is damaged (alarm CORRUPT)")
		default:
			able = append(able, m)
		}
	}
	if len(able) == 0 {
		return nil, failure(Unreachable, nil, "no voter can give a snapshot (%s): see the cluster's conditions",
			strings.Join(reasons, "; "))
	}
	return able, nil
}
