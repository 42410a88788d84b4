package hooks

import (
	"fmt"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/timetable"
)

// Maintenance windows (spec.maintenance.windows). Changes that disturb members that serve, and that could as well be
// made another day, begin only while one is open: restarts and successions (RollingUpdate, Grow), https URLs
// (UpdatePeerURLs), the next minor version (Upgrade) and scheduled defragmentations (Defragment). Each of these rules
// asks here, in one line; WaitForWindow tells what waits.
//
// What has begun for a member is finished: it is chosen in the record, its successor has joined, or it is listed with
// a URL at which it does not listen yet. A downgrade that is open in etcd is gone through with, since etcd lets no
// member join meanwhile. And some restarts can't wait: those that bring authorities in or out, for certificates
// expire, and while etcd takes no more keys (alarm NOSPACE) those that give it room.

const (
	leastWindow = 10 * time.Minute
	mostWindow  = 7 * 24 * time.Hour
)

// windows are those of the spec, at the time of this call.
type windows struct {
	open bool
	// opens is when the next one does; zero for never, and while one is open.
	opens time.Time
	// flaws are what is wrong with those that never open.
	flaws []string
}

// windowsNow are the windows of the spec; nil for none, when nothing waits.
func (o *Observation) windowsNow() *windows {
	all := o.Cluster.Spec.Maintenance.Windows
	if len(all) == 0 {
		return nil
	}
	w := &windows{}
	for i := range all {
		begins, flaw := o.begins(&all[i])
		switch {
		case flaw != "":
			w.flaws = append(w.flaws, fmt.Sprintf("spec.maintenance.windows[%d].%s", i, flaw))
		case !begins.After(o.Now):
			w.open = true
		case w.opens.IsZero() || begins.Before(w.opens):
			w.opens = begins
		}
	}
	if w.open {
		w.opens = time.Time{}
	}
	return w
}

// begins is when the window opened that is open, or else when it opens next; or what is wrong with it.
func (o *Observation) begins(w *v1alpha1.MaintenanceWindow) (time.Time, string) {
	zone := time.UTC
	if w.TimeZone != "" {
		zone = o.Zones[w.TimeZone]
	}
	if zone == nil {
		return time.Time{}, fmt.Sprintf("timeZone: there is no time zone %q", w.TimeZone)
	}
	if d := w.Duration.Duration; d < leastWindow || d > mostWindow {
		return time.Time{}, fmt.Sprintf("duration: %s is not between 10m and 168h", d)
	}
	table, err := timetable.Read(w.Schedule, zone)
	if err != nil {
		return time.Time{}, fmt.Sprintf("schedule can't be read: %s", err)
	}
	begins := table.Next(o.Now.Add(-w.Duration.Duration))
	if begins.IsZero() {
		return begins, "schedule names a time that never comes"
	}
	return begins, ""
}

// closed reports whether nothing may begin that can wait.
func (w *windows) closed() bool { return w != nil && !w.open }

// advice is what is wrong with windows; empty for nothing.
func (w *windows) advice() string {
	if w == nil || len(w.flaws) == 0 {
		return ""
	}
	return strings.Join(w.flaws, "; ") + "; such a window never opens: correct it"
}

// ---- what waits

// waits reports whether the member is to be restarted, or succeeded, and that waits for a window.
func (v *view) waits(m *member) bool {
	if !v.windows.closed() {
		return false
	}
	r := v.updateOf(m)
	return r != nil && m != v.chosen() && (v.restartSuffices(r) || !v.succeeding()) && !v.pressing(m)
}

// succeeding reports whether the successor of a voter has joined.
func (v *view) succeeding() bool {
	l := v.learner()
	return l != nil && l.name != "" || len(v.replicaVoters()) > v.replicas
}

// pressing reports whether the member's restart can't wait.
func (v *view) pressing(m *member) bool {
	_, distrusts := v.distrusts(m)
	_, otherImage := v.imageDiffers(m)
	_, otherQuota := v.quotaDiffers(m)
	_, grown := v.fileSystemWaits(m)
	_, downgrade := v.downgrading()
	unheard := objects.Encrypted(v.Cluster) && m.tls.peers != byTLS(m.PeerURLs...) && m.tls.certificates
	return distrusts || unheard || downgrade && otherImage || len(v.alarms(AlarmNoSpace)) > 0 && (otherQuota || grown)
}

// hopWaits reports whether the next version on the way to the wanted one waits for a window.
func (v *view) hopWaits() bool {
	_, downgrade := v.downgrading()
	hops := v.hops()
	return v.windows.closed() && !downgrade && len(hops) > 0 && !v.refuses(hops)
}

// waiting is everything that waits for a window.
func (v *view) waiting() []string {
	var all []string
	var restarts, successions groupedReasons
	for _, m := range v.voters {
		switch {
		case !v.waits(m):
		case v.restartSuffices(v.updateOf(m)):
			restarts.add(m.name, v.updateOf(m).reason)
		default:
			successions.add(m.name, v.updateOf(m).reason)
		}
	}
	if len(restarts) > 0 {
		all = append(all, "to restart "+restarts.String())
	}
	if len(successions) > 0 {
		all = append(all, "to replace "+successions.String())
	}
	if v.hopWaits() {
		all = append(all, fmt.Sprintf("to go on from etcd %s to %s", v.epoch.version, v.hops()[0]))
	}
	if v.nextReaddressed() != nil {
		all = append(all, "to have members reached by TLS by their peers")
	}
	if v.dueRun() == v1alpha1.TriggerSchedule && v.windows.closed() {
		all = append(all, "to defragment, as the schedule asks")
	}
	return all
}

func waitForWindow(v *view) *verdict {
	if !v.windows.closed() {
		return nil
	}
	what := strings.Join(v.waiting(), "; ")
	switch {
	case what == "":
		return nil
	case v.windows.opens.IsZero():
		return &verdict{message: fmt.Sprintf("serving; no maintenance window ever opens %s; correct "+
			"spec.maintenance.windows (%s)",
			what, strings.Join(v.windows.flaws, "; ")), outlook: Waits}
	}
	return &verdict{message: fmt.Sprintf("serving; waiting for the maintenance window that opens at %s %s",
		v.windows.opens.Format(time.RFC3339), what)}
}
