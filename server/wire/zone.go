package wire

import (
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// Zone is the time zone of a name; nil when there is none. The zone of this very process, which Go calls Local, is
// none: it would be another one elsewhere. Main embeds all zones, since the image has no files.
func Zone(name string) *time.Location {
	z, err := time.LoadLocation(name)
	if err != nil || z == time.Local {
		return nil
	}
	return z
}

// zones are those that the maintenance windows of a cluster name; nil for none.
func zones(m *v1beta1.Maintenance) map[string]*time.Location {
	var all map[string]*time.Location
	for i := range m.Windows {
		name := m.Windows[i].TimeZone
		if z := Zone(name); name != "" && z != nil {
			if all == nil {
				all = map[string]*time.Location{}
			}
			all[name] = z
		}
	}
	return all
}
