package kubectl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/state"
)

// moveLeader hands the leadership over, as the hooks do: by a step on the member list of this moment.
func (a *ask) moveLeader(ctx context.Context) error {
	c, err := a.find(ctx)
	if err != nil {
		return err
	}
	pods, err := a.podsOf(ctx, c.EtcdCluster)
	if err != nil {
		return err
	}
	config, err := a.certificate(ctx, c.EtcdCluster)
	if err != nil {
		return err
	}
	endpoints := state.Endpoints(observed(c.EtcdCluster, pods))
	ways := a.open(ctx, c.Namespace, endpoints)
	defer ways.close()
	etcd := a.etcd(config, ways.dial)
	l := ways.observe(ctx, etcd, endpoints)
	where := fmt.Sprintf("EtcdCluster %s/%s", c.Namespace, c.Name)
	if l.trouble != "" {
		return fmt.Errorf("etcd of %s can't be reached: %s", where, l.trouble)
	}
	to, leads, err := candidate(l, a.member)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if leads {
		fmt.Fprintf(a.Out, "%s leads already\n", a.member)
		return nil
	}
	step := decision.MoveLeader{To: to.ID, Name: a.member}
	if err := etcd.Do(ctx, step, l.etcd, endpoints); err != nil {
		return fmt.Errorf("%s: %w; `kubectl quorate status` shows who leads", where, err)
	}
	return a.confirm(ctx, etcd, endpoints, to)
}

// candidate is the member that is to lead, and whether it does already. The error says why it may not.
func candidate(l *live, name string) (to observation.Member, leads bool, err error) {
	if l.etcd == nil {
		return to, false, fmt.Errorf("no quorum answers, and without one no member can become leader; `kubectl " +
			"quorate status` shows which are missing")
	}
	var voters []string
	for _, m := range l.etcd.Members {
		if m.Learner {
			return to, false, fmt.Errorf("the learner %s is joining, and until it votes the leader stays; try again "+
				"when `kubectl quorate status` shows no learner", nameOf(m))
		}
		voters = append(voters, nameOf(m))
	}
	slices.Sort(voters)
	i := slices.IndexFunc(l.etcd.Members, func(m observation.Member) bool { return nameOf(m) == name })
	if i < 0 {
		return to, false, fmt.Errorf("%s is not a member; the voters are %s", name, strings.Join(voters, ", "))
	}
	to = l.etcd.Members[i]
	h, asked := l.health[name]
	switch {
	case to.ID == l.etcd.Leader:
		return to, true, nil
	case l.etcd.Leader == 0:
		return to, false, fmt.Errorf("etcd has no leader at the moment, so none can hand over; try again in a few " +
			"seconds")
	case !asked:
		return to, false, fmt.Errorf("%s does not serve: it has no pod with an address; choose another of %s", name,
			strings.Join(voters, ", "))
	case h.Err != "":
		return to, false, fmt.Errorf("%s does not serve: %s; choose another of %s", name, h.Err,
			strings.Join(voters, ", "))
	case !h.Serving() || h.MemberID != to.ID:
		return to, false, fmt.Errorf("%s does not serve: it knows no leader; choose another of %s", name,
			strings.Join(voters, ", "))
	}
	return to, false, nil
}

// confirm looks once more: etcd has said yes, and people want to know who leads.
func (a *ask) confirm(ctx context.Context, etcd hooks.Etcd, endpoints []observation.Endpoint,
	to observation.Member) error {
	after, _ := etcd.Observe(ctx, endpoints)
	if after != nil && after.Leader == to.ID {
		fmt.Fprintf(a.Out, "%s leads now\n", a.member)
		return nil
	}
	return fmt.Errorf("etcd has handed over to %s, and it does not lead: another member was elected, or Quorate has "+
		"moved the leadership on; `kubectl quorate status` shows who leads", a.member)
}
