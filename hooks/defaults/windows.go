package defaults

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/timetable"
)

var errZone = errors.New("write it in UTC, without a time zone")

// Schedule of the spec; nil for none.
func Schedule(c *v1beta1.EtcdCluster) (cron.Schedule, error) {
	d := c.Spec.Maintenance.Defragmentation
	switch {
	case d == nil || d.Schedule == "":
		return nil, nil
	case strings.Contains(d.Schedule, "="):
		return nil, errZone // to look a zone up is to read files
	}
	return timetable.Parse(d.Schedule)
}

// Maintenance windows (spec.maintenance.windows). Changes that disturb members that serve, and that could as well be
// made another day, begin only while one is open: restarts and replacements (RollingUpdate, Grow), https URLs
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

// Windows are those of the spec, at the time of this call.
type Windows struct {
	Open bool
	// Opens is when the next one does; zero for never, and while one is open.
	Opens time.Time
	// Flaws are what is wrong with those that never open.
	Flaws []string
}

// WindowsNow are the windows of the spec; nil for none, when nothing waits.
func WindowsNow(o *observation.Observation) *Windows {
	all := o.Cluster.Spec.Maintenance.Windows
	if len(all) == 0 {
		return nil
	}
	w := &Windows{}
	for i := range all {
		begins, flaw := begins(o, &all[i])
		switch {
		case flaw != "":
			w.Flaws = append(w.Flaws, fmt.Sprintf("spec.maintenance.windows[%d].%s", i, flaw))
		case !begins.After(o.Now):
			w.Open = true
		case w.Opens.IsZero() || begins.Before(w.Opens):
			w.Opens = begins
		}
	}
	if w.Open {
		w.Opens = time.Time{}
	}
	return w
}

// begins is when the window opened that is open, or else when it opens next; or what is wrong with it.
func begins(o *observation.Observation, w *v1beta1.MaintenanceWindow) (time.Time, string) {
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
		return time.Time{}, fmt.Sprintf("schedule can't be parsed: %s", err)
	}
	begins := table.Next(o.Now.Add(-w.Duration.Duration))
	if begins.IsZero() {
		return begins, "schedule never happens"
	}
	return begins, ""
}

// Closed reports whether nothing may begin that can wait.
func (w *Windows) Closed() bool { return w != nil && !w.Open }

// Advice is what is wrong with windows; empty for nothing.
func (w *Windows) Advice() string {
	if w == nil || len(w.Flaws) == 0 {
		return ""
	}
	return strings.Join(w.Flaws, "; ") + "; this window never opens: correct it"
}
