package rules

import (
	"fmt"
	"time"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
)

// leaveSlowDisk hands the leadership on when the leader's disk holds up all clients.
func leaveSlowDisk(f *facts.Facts) *decision.Plan {
	lead := f.Leader()
	if !f.WatchesDisks() || lead == nil || !f.LeaderMayMove() || !f.Slow(lead) {
		return nil
	}
	to := f.FasterLeader(lead)
	if to == nil {
		return nil
	}
	took := func(m *facts.Member) time.Duration { return m.Health.Disk.Mean.Round(time.Millisecond) }
	return change(f, decision.MoveLeader{To: to.ID, Name: to.PodName},
		fmt.Sprintf("handing the leadership from %s to %s: to sync etcd's log took %s on average, and %s, in the last %s",
			lead.DisplayName(), to.PodName, took(lead), took(to), lead.Health.Disk.Over.Round(time.Second)))
}

// preferZone hands the leadership to a voter in a preferred zone.
func preferZone(f *facts.Facts) *decision.Plan {
	lead := f.Leader()
	if len(f.PreferredZones()) == 0 || lead == nil || lead.Zone() == "" {
		return nil
	}
	if f.Preferred(lead) || !f.LeaderMayMove() || f.Windows.Closed() {
		return nil
	}
	to := f.PreferredLeader()
	if to == nil {
		return nil
	}
	return change(f, decision.MoveLeader{To: to.ID, Name: to.PodName},
		fmt.Sprintf("handing the leadership from %s in zone %s to %s in zone %s, which is preferred", lead.DisplayName(),
			lead.Zone(), to.PodName, to.Zone()))
}
