//go:build unix

package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
	"github.com/quorate-dev/quorate/test/simulated/membership"
)

// The etcd of the model and of the stories is package membership. Here each of its answers is compared with that of
// real servers: a walk leads a cluster through situations, and in each of them everything is asked that the rules
// refuse, and everything that can be undone. What else they allow is the walk's next move. No expectation is written
// down: it is computed from the facts.

func TestGuardsOfOneAndTwoVoters(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		w := walkFrom(t, version, 1)
		w.compare("one voter, young")
		second := w.addLearner()
		w.compare("and a learner that never started")
		w.join(second)
		w.compare("and a learner in sync")
		w.kill(second)
		w.compare("and a learner that died in sync")
		w.write(100)
		w.compare("and a learner that died, and is behind now")
		w.restart(second)
		w.promote(second)
		w.compare("two voters")
		w.settle()
		w.compare("two voters, settled")
		third := w.addVoter()
		w.compare("two voters, and one that never started")
		w.remove(third)
		w.remove(w.follower())
		w.compare("one voter again")
		w.addVoter()
		w.lostQuorum("a voter that is added to one before it runs: why members join as learners (S4)")
	})
}

func TestGuardsOfTwoVoters(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		w := walkFrom(t, version, 2)
		w.compare("two voters, young")
		w.settle()
		learner := w.addLearner()
		w.join(learner)
		w.compare("two voters and a learner in sync")
		w.kill(learner)
		w.compare("two voters and a learner that died in sync")
		w.promote(learner)
		w.compare("two voters and a dead one, promoted when it was dead (S5)")
		w.moveLeader(w.follower())
		w.compare("the same under another leader, who knows nothing of the dead one's log")
		w.remove(learner)
		w.compare("two voters")
		w.kill(w.follower())
		w.lostQuorum("one of two voters down")
	})
}

func TestGuardsOfThreeVoters(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		w := walkFrom(t, version, 3)
		w.compare("three voters, young")
		w.settle()
		w.compare("three voters")
		learner := w.addLearner()
		w.compare("three voters and a learner that never started")
		w.join(learner)
		w.compare("three voters and a learner in sync")
		down := w.follower()
		w.kill(down)
		w.compare("one of three down, and a learner in sync")
		w.kill(learner)
		w.compare("one of three down, and a learner that died in sync")
		w.kill(w.leader())
		w.restart(down)
		w.compare("one young and one down of three, and a learner that the new leader knows nothing of")
		w.remove(learner)
		w.settle()
		w.compare("one of three down")
		w.remove(w.dead())
		w.compare("two of three left")
	})
}

func TestGuardsOfFourVoters(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		w := walkFrom(t, version, 4)
		w.compare("four voters, young")
		w.settle()
		w.compare("four voters")
		w.kill(w.follower())
		w.compare("one of four down")
		w.remove(w.follower())
		w.compare("one of three down, a living one was removed")
		w.restart(w.dead())
		w.compare("one of three young")
		w.settle()
		fourth := w.addVoter()
		w.compare("three voters, and one that never started")
		w.join(fourth)
		w.compare("four voters, one of them young")
		w.remove(w.leader())
		w.compare("three voters, the leader was removed")
	})
}

// healthInterval is how old connections must be for etcd to count them (HealthInterval in etcdserver/server.go).
const healthInterval = 5 * time.Second

// A walk is one cluster on its way, with what the rules must know of each member that no member list says.
type walk struct {
	t       *testing.T
	c       *etcdproc.Cluster
	rules   membership.Rules
	members map[*etcdproc.Member]*course
	// moved is set while connections come and go.
	moved bool
	// urls are how many new peer URLs were used.
	urls int
	// compared and unclear are how many answers were compared, and how many could not be foretold.
	compared, unclear int
	// patient is set when a transfer to a dead member was waited for: once is enough.
	patient bool
}

// course is what became of a member's process.
type course struct {
	// born is before its process began, ready after all connections to it were up.
	born, ready time.Time
	// joined is whether this process joined the cluster, with an empty directory.
	joined bool
	// killed is whether it was, sent and term are what the leader of that term had sent it by then.
	killed     bool
	sent, term uint64
}

func walkFrom(t *testing.T, version string, voters int) *walk {
	born := time.Now()
	w := &walk{t: t, c: etcdproc.Start(t, version, "demo", voters), rules: membership.Of(version),
		members: map[*etcdproc.Member]*course{}}
	for _, m := range w.c.Members {
		w.members[m] = &course{born: born}
	}
	w.moved = true
	w.write(300) // so that what the walk adds is nowhere near a tenth of the log
	t.Cleanup(func() { t.Logf("%s: %d answers compared, %d not foretold", version, w.compared, w.unclear) })
	return w
}

// ---- facts

// situation is what was seen before an answer.
type situation struct {
	list   *observation.Membership
	health map[string]observation.Health
	at     time.Time
}

// see looks at the members, when all that run have caught up and are connected.
func (w *walk) see() situation {
	w.t.Helper()
	if w.moved {
		w.connect()
	}
	var s situation
	etcdproc.Eventually(w.t, "every member has caught up", func(context.Context) error {
		s.list, s.health = look(w.t, w.c.Endpoints())
		lead := s.health[w.at(s.list, s.list.Leader).Name]
		for i, m := range w.processes(s.list) {
			if m == nil || !m.Running() {
				continue
			}
			if h := s.health[m.Name]; !s.list.Members[i].Started() || h.RaftIndex < lead.RaftIndex ||
				h.Leader != s.list.Leader {
				return fmt.Errorf("%s: %+v, the leader %+v", m.Name, h, lead)
			}
		}
		return nil
	})
	s.at = time.Now()
	return s
}

// connect waits until every member that runs is connected to all that run, and to none that does not.
func (w *walk) connect() {
	w.t.Helper()
	etcdproc.Eventually(w.t, "connections are as they should be", func(ctx context.Context) error {
		list, _ := look(w.t, w.c.Endpoints())
		all := w.processes(list)
		for _, m := range all {
			if m == nil || !m.Running() {
				continue
			}
			active, err := activePeers(ctx, m)
			if err != nil {
				return err
			}
			for j, other := range all {
				id := fmt.Sprintf("%x", list.Members[j].ID)
				runs := other != nil && other.Running()
				if other != m && (runs && active[id] == 0 || !runs && active[id] > 0 && !w.members[m].joined) {
					return fmt.Errorf("%s is connected to %v, and %s runs: %t", m.Name, active, id, runs)
				}
			}
		}
		return nil
	})
	for _, c := range w.members {
		if c.ready.Before(c.born) {
			c.ready = time.Now()
		}
	}
	w.moved = false
}

// activePeers are the members that one says it is connected to, by ID. (A member that has joined may count one of them
// twice, for as long as its process runs.)
func activePeers(ctx context.Context, m *etcdproc.Member) (map[string]int, error) {
	_, text, err := page(ctx, nil, m.ClientURL+"/metrics")
	active := map[string]int{}
	for line := range strings.Lines(text) {
		if rest, is := strings.CutPrefix(line, "etcd_network_active_peers{"); is {
			_, id, _ := strings.Cut(rest, `Remote="`)
			id, value, _ := strings.Cut(id, `"} `)
			if active[id], err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return nil, err
			}
		}
	}
	return active, err
}

// processes are those of the listed members, in the list's order; nil for one that was never made.
func (w *walk) processes(list *observation.Membership) []*etcdproc.Member {
	var all []*etcdproc.Member
	for _, entry := range list.Members {
		all = append(all, w.at(list, entry.ID))
	}
	return all
}

// at is the process of a listed member; nil for one that was never made.
func (w *walk) at(list *observation.Membership, id uint64) *etcdproc.Member {
	i := indexOf(list, id)
	j := slices.IndexFunc(w.c.Members, func(m *etcdproc.Member) bool {
		return i >= 0 && slices.Contains(list.Members[i].PeerURLs, m.PeerURL)
	})
	if j < 0 {
		return nil
	}
	return w.c.Members[j]
}

// facts are what the rules look at, as the member has it that is asked. A number is a place in the
// list. What is only nearly sure, such as the age of a connection, is taken as true when hopeful.
func (w *walk) facts(s situation, asked *etcdproc.Member, hopeful bool) membership.Server {
	f := membership.Server{Rules: w.rules}
	put := func(in *membership.Set, n int, is bool) {
		if is {
			*in = in.With(n)
		}
	}
	for n, entry := range s.list.Members {
		put(&f.Voters, n, !entry.Learner)
		put(&f.Learners, n, entry.Learner)
		put(&f.Started, n, entry.Started())
		if m := w.at(s.list, entry.ID); m != nil {
			runs := m.Running()
			put(&f.Connected, n, runs)
			put(&f.Settled, n, m == asked || runs && w.settled(s, m, hopeful) && w.settled(s, asked, hopeful))
			put(&f.InSync, n, runs || w.sentTo(s, m, hopeful))
		}
	}
	return f
}

func (w *walk) settled(s situation, m *etcdproc.Member, hopeful bool) bool {
	if hopeful { // the answer comes within a second
		return s.at.Add(time.Second).Sub(w.members[m].born) > healthInterval
	}
	return s.at.Sub(w.members[m].ready) > healthInterval
}

// sentTo is whether the leader has sent 90 % of its log to a member that is dead. A leader knows only of what it sent
// itself.
func (w *walk) sentTo(s situation, m *etcdproc.Member, hopeful bool) bool {
	c := w.members[m]
	lead := s.health[w.at(s.list, s.list.Leader).Name]
	if !c.killed || c.term != lead.RaftTerm {
		return false
	}
	sent, log := float64(c.sent), float64(lead.RaftIndex)
	if hopeful {
		return sent+2 >= 0.9*log
	}
	return sent >= 0.9*(log+2)
}

// ---- what is asked

// operation is one thing to ask, and what the rules say to it.
type operation struct {
	name string
	// rules answer from the facts.
	rules func(membership.Server) error
	// ask asks the real server. Only what etcdops does not do goes past it.
	ask func(ctx context.Context, s situation) error
	// undo is what follows when it is allowed; nil when it can't be undone.
	undo func(t *testing.T)
	// without is the member that is not asked, because it is the one to go.
	without *etcdproc.Member
	// slow operations take as long as etcd lets them.
	slow bool
}

// compare asks everything that the rules refuse or that can be undone.
func (w *walk) compare(name string) {
	w.t.Helper()
	chapter(w.t, name, func(t *testing.T) {
		done := map[string]bool{}
		for _, op := range w.operations(w.see()) {
			s := w.see()
			said, sure := w.foretell(op, s)
			switch {
			case !sure:
				w.unclear++
				continue
			case said == nil && op.undo == nil, said != nil && op.slow && w.patient, done[op.name]:
				continue
			}
			done[op.name], w.patient = true, w.patient || op.slow
			w.check(t, op, s, said)
			if said == nil {
				op.undo(t)
			}
		}
	})
}

// foretell is what the rules say. It is not sure when it depends on what is not known exactly.
func (w *walk) foretell(op operation, s situation) (error, bool) { //nolint:revive // the error is what is told, not a failure
	asked := w.asked(op, s)
	said := op.rules(w.facts(s, asked, false))
	return said, errors.Is(said, op.rules(w.facts(s, asked, true)))
}

// asked is the member that etcdops will ask: the leader, or the first other voter that lives when the leader is to go.
func (w *walk) asked(op operation, s situation) *etcdproc.Member {
	lead := w.at(s.list, s.list.Leader)
	if lead != op.without {
		return lead
	}
	for _, m := range w.c.Members {
		i := slices.IndexFunc(s.list.Members, func(e observation.Member) bool { return e.PeerURLs[0] == m.PeerURL })
		if i >= 0 && !s.list.Members[i].Learner && m.Running() && m != op.without {
			return m
		}
	}
	return lead // there is no other
}

// check asks, and compares.
func (w *walk) check(t *testing.T, op operation, s situation, said error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), etcdproc.Patience)
	defer cancel()
	got := op.ask(ctx, s)
	w.compared++
	if errors.Is(got, said) {
		return
	}
	now := w.see()
	require.Fail(t, "the rules and etcd differ",
		"%s: the rules say %q, etcd %q\nfacts: %+v\nleader before %x, after %x, %s later", op.name, text(said),
		text(got), w.facts(s, w.asked(op, s), false), s.list.Leader, now.list.Leader, now.at.Sub(s.at))
}

func text(err error) string {
	if err == nil {
		return "yes"
	}
	return err.Error()
}

// operations are all that can be asked in a situation: of equal members only one.
func (w *walk) operations(s situation) []operation {
	taken := s.list.Members[0].PeerURLs[0]
	all := []operation{w.adding(s, false, ""), w.adding(s, true, ""), w.adding(s, false, taken), w.adding(s, true,
		taken)}
	facts := w.facts(s, w.at(s.list, s.list.Leader), false)
	for i, entry := range s.list.Members {
		what := kindOf(facts, i, entry.ID == s.list.Leader)
		all = append(all, w.promoting(s, entry.ID, what), w.removing(s, entry.ID, what), w.moving(s, entry.ID, what))
	}
	const unlisted, what = 0xdead, "an unlisted member"
	return append(all, w.promoting(s, unlisted, what), w.removing(s, unlisted, what), w.moving(s, unlisted, what))
}

// does is a step as the hooks do it.
func (w *walk) does(step decision.Step) func(context.Context, situation) error {
	return func(ctx context.Context, s situation) error {
		return (&etcdops.Etcd{StepTimeout: 1500 * time.Millisecond}).Do(ctx, step, s.list, w.c.Endpoints())
	}
}

// adding is the addition of a member: at a peer URL that is taken, or at a new one.
func (w *walk) adding(s situation, voter bool, taken string) operation {
	alone := !slices.ContainsFunc(s.list.Members, func(m observation.Member) bool {
		return !m.Learner && m.ID != s.list.Leader
	})
	url, name := taken, "at a peer URL that is taken"
	if taken == "" {
		w.urls++
		url, name = fmt.Sprintf("http://127.0.0.1:%d", w.urls), "at a new peer URL" // nothing listens below port 1024
	}
	op := operation{name: "add a learner " + name, undo: func(t *testing.T) { w.undoAdding(t, url) }}
	n := notListed
	if taken != "" {
		n = 0
	}
	op.rules = func(f membership.Server) error { return refusal(f.AddLearner(n)) }
	op.ask = w.does(decision.AddLearner{Name: "new", PeerURL: url})
	if voter {
		op.name = "add a voter " + name
		op.rules = func(f membership.Server) error { return refusal(f.AddVoter(n)) }
		op.ask = w.past(addVoterAt(url))
		if alone {
			op.undo = nil // it would take two to undo it
		}
	}
	return op
}

// past asks the leader without etcdops: for what that never does (S4), or not without looking itself (S5).
func (w *walk) past(call func(ctx context.Context, client *clientv3.Client) error) func(context.Context,
	situation) error {
	return func(ctx context.Context, s situation) error {
		client := w.at(s.list, s.list.Leader).Client()
		return inOurWords(call(ctx, client))
	}
}

func addVoterAt(url string) func(context.Context, *clientv3.Client) error {
	return func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.MemberAdd(ctx, []string{url})
		return err
	}
}

// inOurWords is an error of etcd's client as etcdops has it.
func inOurWords(err error) error {
	for _, pair := range []struct{ theirs, ours error }{
		{rpctypes.ErrUnhealthy, etcdops.ErrUnhealthy},
		{rpctypes.ErrMemberNotEnoughStarted, etcdops.ErrNotEnoughStarted},
		{rpctypes.ErrPeerURLExist, etcdops.ErrPeerURLExists},
		{rpctypes.ErrMemberExist, etcdops.ErrPeerURLExists},
		{rpctypes.ErrMemberLearnerNotReady, etcdops.ErrLearnerNotReady},
		{rpctypes.ErrMemberNotLearner, etcdops.ErrNotLearner},
		{rpctypes.ErrMemberNotFound, etcdops.ErrMemberGone},
	} {
		if err != nil && rpctypes.ErrorDesc(err) == pair.theirs.Error() {
			return pair.ours
		}
	}
	return err
}

func (w *walk) undoAdding(t *testing.T, url string) {
	s := w.see()
	i := slices.IndexFunc(s.list.Members, func(m observation.Member) bool { return m.PeerURLs[0] == url })
	require.NotEqual(t, -1, i, "it was added")
	w.check(t, w.removing(s, s.list.Members[i].ID, "undo"), s, nil)
}

// notListed is the number of a member that is not listed.
const notListed = 15

// number of a member in the facts.
func number(s situation, id uint64) int {
	if i := indexOf(s.list, id); i >= 0 {
		return i
	}
	return notListed
}

// refusal is what an answer comes to here: the servers themselves make the change.
func refusal(_ membership.Cluster, err error) error { return err }

// kindOf is what is known of a member: of those that are alike, one is asked.
func kindOf(f membership.Server, n int, leads bool) string {
	return fmt.Sprintf("{Learner:%t Started:%t Connected:%t Settled:%t InSync:%t Asked:%t}", f.Learners.Has(n),
		f.Started.Has(n), f.Connected.Has(n), f.Settled.Has(n), f.InSync.Has(n), leads)
}

func (w *walk) promoting(s situation, id uint64, what string) operation {
	return operation{
		name:  "promote " + what,
		rules: func(f membership.Server) error { return refusal(f.Promote(number(s, id))) },
		ask: w.past(func(ctx context.Context, client *clientv3.Client) error {
			_, err := client.MemberPromote(ctx, id)
			return err
		}),
	}
}

func (w *walk) removing(s situation, id uint64, what string) operation {
	op := operation{
		name:    "remove " + what,
		rules:   func(f membership.Server) error { return refusal(f.Remove(number(s, id))) },
		ask:     w.does(decision.Remove{ID: id}),
		without: w.at(s.list, id),
	}
	if id == s.list.Leader && w.asked(op, s) == op.without {
		// etcdops asks no member to remove itself: see what etcd says to it.
		op.ask = w.past(func(ctx context.Context, client *clientv3.Client) error {
			_, err := client.MemberRemove(ctx, id)
			return err
		})
	}
	return op
}

func (w *walk) moving(s situation, id uint64, what string) operation {
	m := w.at(s.list, id)
	op := operation{
		name:  "move the leader to " + what,
		rules: func(f membership.Server) error { return f.MoveLeader(number(s, id)) },
		ask:   w.does(decision.MoveLeader{To: id}),
		slow:  number(s, id) != notListed && (m == nil || !m.Running()),
	}
	if !slices.ContainsFunc(w.processes(s.list), func(m *etcdproc.Member) bool { return m == nil || !m.Running() }) {
		op.undo = func(*testing.T) {
		} // nothing to undo. (A new leader knows nothing of dead members, which may matter next.)
	}
	return op
}

// ---- moves

// move asks for what the rules allow, and is the way into the next situation.
func (w *walk) move(name string, op func(s situation) operation) {
	w.t.Helper()
	chapter(w.t, name, func(t *testing.T) {
		s := w.see()
		o := op(s)
		said, sure := w.foretell(o, s)
		require.NoError(t, said)
		require.True(t, sure)
		w.check(t, o, s, nil)
	})
	w.moved = true
}

func (w *walk) newcomer() *etcdproc.Member {
	m := w.c.NewMember(fmt.Sprintf("demo-%d", len(w.c.Members)))
	w.members[m] = &course{}
	return m
}

func (w *walk) addLearner() *etcdproc.Member {
	w.t.Helper()
	m := w.newcomer()
	w.move("a learner is added", func(s situation) operation {
		op := w.adding(s, false, "")
		op.ask = w.does(add(m))
		return op
	})
	return m
}

func (w *walk) addVoter() *etcdproc.Member {
	w.t.Helper()
	m := w.newcomer()
	w.move("a voter is added", func(s situation) operation {
		op := w.adding(s, true, "")
		op.ask = w.past(addVoterAt(m.PeerURL))
		return op
	})
	return m
}

func (w *walk) promote(m *etcdproc.Member) {
	w.t.Helper()
	w.move(m.Name+" is promoted", func(s situation) operation { return w.promoting(s, idOf(w.t, s.list, m), m.Name) })
}

func (w *walk) remove(m *etcdproc.Member) {
	w.t.Helper()
	ran := m.Running()
	w.move(m.Name+" is removed", func(s situation) operation { return w.removing(s, idOf(w.t, s.list, m), m.Name) })
	if ran {
		m.ExitCode(etcdproc.Patience)
	}
}

func (w *walk) moveLeader(m *etcdproc.Member) {
	w.t.Helper()
	w.move("the leadership goes to "+m.Name, func(s situation) operation {
		return w.moving(s, idOf(w.t, s.list, m), m.Name)
	})
}

// join starts a member that was added.
func (w *walk) join(m *etcdproc.Member) {
	w.t.Helper()
	others := slices.DeleteFunc(w.processes(w.see().list), func(o *etcdproc.Member) bool { return o == m })
	*w.members[m] = course{born: time.Now(), joined: true}
	w.c.Join(m, others...)
	w.c.WaitServing(m)
	w.moved = true
}

// kill ends a process.
func (w *walk) kill(m *etcdproc.Member) {
	w.t.Helper()
	s := w.see()
	h := s.health[m.Name]
	*w.members[m] = course{killed: true, sent: h.RaftIndex, term: h.RaftTerm}
	m.Kill()
	w.moved = true
}

func (w *walk) restart(m *etcdproc.Member) {
	w.t.Helper()
	*w.members[m] = course{born: time.Now()}
	m.Restart()
	w.c.WaitServing(m)
	w.moved = true
}

func (w *walk) write(n int) {
	w.t.Helper()
	w.leader().Put(n)
}

// settle lets connections become old enough for etcd. They age with the clock and with nothing else.
func (w *walk) settle() {
	w.t.Helper()
	s := w.see()
	for _, m := range w.processes(s.list) {
		if m != nil && m.Running() {
			time.Sleep(time.Until(w.members[m].ready.Add(healthInterval + 50*time.Millisecond)))
		}
	}
}

// ---- who

func (w *walk) leader() *etcdproc.Member {
	w.t.Helper()
	s := w.see()
	return w.at(s.list, s.list.Leader)
}

// voter is the first voter that is none of these and runs or not.
func (w *walk) voter(runs bool, not ...*etcdproc.Member) *etcdproc.Member {
	w.t.Helper()
	s := w.see()
	for i, m := range w.processes(s.list) {
		if m != nil && !s.list.Members[i].Learner && m.Running() == runs && !slices.Contains(not, m) {
			return m
		}
	}
	w.t.Fatal("there is no such voter")
	return nil
}

func (w *walk) follower() *etcdproc.Member { return w.voter(true, w.leader()) }
func (w *walk) dead() *etcdproc.Member     { return w.voter(false) }

// lostQuorum: the member that is asked for a step can't even read the member list.
func (w *walk) lostQuorum(why string) {
	w.t.Helper()
	chapter(w.t, "the quorum is lost: "+why, func(t *testing.T) {
		var before *observation.Membership
		etcdproc.Eventually(t, "no member leads any more", func(ctx context.Context) error {
			m, health := new(etcdops.Etcd).Observe(ctx, w.c.Endpoints())
			if m != nil {
				before = m
				return fmt.Errorf("%+v", health)
			}
			return nil
		})
		if before == nil {
			return // it was gone at once
		}
		err := new(etcdops.Etcd).Do(t.Context(), decision.AddLearner{Name: "new", PeerURL: "http://127.0.0.1:1"},
			before, w.c.Endpoints())
		assert.ErrorIs(t, err, etcdops.ErrNoQuorum)
	})
}
