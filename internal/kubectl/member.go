package kubectl

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// row is one member in the table.
type row struct {
	name, role, version string
	since               time.Time // ready is as it is; zero where that is not known
	leads, ready        bool
	size, used          int64
	lag                 string // empty: it has not answered now
	alarms              []string
	message             string
}

func (r row) cells(now time.Time) []string {
	cells := []string{r.name, strings.ToLower(r.role), yes(r.leads), yes(r.ready), "", r.version, "", "", r.lag,
		strings.Join(r.alarms, " ")}
	if !r.since.IsZero() {
		cells[4] = lasting(now.Sub(r.since))
	}
	if r.size > 0 {
		cells[6] = size(r.size)
	}
	if r.used > 0 {
		cells[7] = size(r.used)
	}
	return cells
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// rowsOf are the members: what etcd says now as far as it answers, and else what the status knows.
func rowsOf(c *v1beta1.EtcdCluster, l *live, now time.Time) []row {
	var rows []row
	if l.etcd == nil {
		for _, m := range c.Status.Members {
			rows = append(rows, known(&m).heard(l, now))
		}
		return rows
	}
	for _, m := range l.etcd.Members {
		rows = append(rows, listed(c, l, m, now))
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(len(a.name), len(b.name)), cmp.Compare(a.name, b.name)) // demo-9 comes before demo-10
	})
	return rows
}

// known is a member as the status has it.
func known(m *v1beta1.MemberStatus) row {
	r := row{name: m.Name, role: string(m.Role), version: m.Version, leads: m.Leader, ready: m.Ready, alarms: m.Alarms,
		message: m.Message, since: m.LastTransitionTime.Time}
	if m.DBSize != nil {
		r.size = m.DBSize.Value()
	}
	if m.DBSizeInUse != nil {
		r.used = m.DBSizeInUse.Value()
	}
	return r
}

// listed is a member that etcd's list has.
func listed(c *v1beta1.EtcdCluster, l *live, m observation.Member, now time.Time) row {
	name := nameOf(m)
	id := fmt.Sprintf("%x", m.ID)
	r := row{}
	if i := slices.IndexFunc(c.Status.Members, func(s v1beta1.MemberStatus) bool { return s.ID == id }); i >= 0 {
		r = known(&c.Status.Members[i])
		r.message = ""
	}
	r.name = name
	was := r.role
	r.role = string(v1beta1.Voter)
	r.leads = m.ID == l.etcd.Leader
	if m.Learner {
		r.role = string(v1beta1.Learner)
		if was == string(v1beta1.Spare) {
			r.role = was
		}
	}
	h, asked := l.health[name]
	if !asked {
		r.message = "it has no pod with an address"
	}
	if (!asked || h.Err != "") && r.ready { // the status says so, and is older
		r.ready = false
		r.since = time.Time{}
	}
	return r.heard(l, now)
}

// heard is the row with what the member itself has answered just now.
func (r row) heard(l *live, now time.Time) row {
	h, asked := l.health[r.name]
	if h.Err != "" {
		r.message = h.Err
	}
	if !asked || h.Err != "" {
		return r
	}
	if r.ready != h.Serving() {
		r.since = now
	}
	r.ready = h.Serving()
	r.version = h.Version
	r.size = h.DBSize
	r.used = h.DBSizeInUse
	r.alarms = h.Alarms
	r.lag = l.lag(h)
	r.message = ""
	if h.Leader == 0 {
		r.message = "it knows no leader"
	}
	return r
}

// lag is how many entries a member is behind the leader, of which it has heard that they are committed.
func (l *live) lag(h observation.Health) string {
	for _, leader := range l.health {
		if leader.Err != "" || leader.MemberID == 0 || leader.MemberID != h.Leader {
			continue
		}
		if leader.RaftIndex <= h.RaftIndex { // they were asked one after the other
			return "0"
		}
		return fmt.Sprint(leader.RaftIndex - h.RaftIndex)
	}
	return "?"
}

// nameOf is the member's name: also before it has published itself, by its peer URL, which has it as the user on the
// hosts' network. A member that is not ours may have an IP address there.
func nameOf(m observation.Member) string {
	if m.Name != "" {
		return m.Name
	}
	for _, raw := range m.PeerURLs {
		u, err := url.Parse(raw)
		if err != nil || u.Hostname() == "" {
			continue
		}
		host := cmp.Or(u.User.Username(), u.Hostname())
		if _, err := netip.ParseAddr(host); err == nil {
			return host
		}
		name, _, _ := strings.Cut(host, ".")
		return name
	}
	return fmt.Sprintf("%x", m.ID)
}
