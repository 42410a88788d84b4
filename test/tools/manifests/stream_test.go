package manifests

import (
	"fmt"
	"strings"
	"testing"
)

// TestStreams: what the API server takes of spec.stream, and of where a restore ends.
func TestStreams(t *testing.T) {
	schedule := func(stream, more string) string {
		return fmt.Sprintf(`{schedule: "0 * * * *", stream: %s, template: {spec: {clusterRef: {name: demo}, `+
			`store: {s3: {bucket: b}}%s}}}`, stream, more)
	}
	restore := func(snapshot string) string {
		return fmt.Sprintf(`{clusterRef: {name: demo}, type: Restore, restore: {snapshot: {%s}}}`, snapshot)
	}
	const schedules, operations = "EtcdSnapshotSchedule", "EtcdOperation"
	const one = "until is exactly one of a revision, latest: true and a time"
	for _, c := range []struct{ kind, spec, refused string }{
		{schedules, schedule("{}", ""), ""},
		{schedules, schedule("{flushAfter: 10m, maxSize: 16Mi}", ", verify: true"), ""},
		{schedules, schedule("{flushAfter: 500ms}", ""), "stream.flushAfter must be between 1s and 10m"},
		{schedules, schedule("{flushAfter: 601s}", ""), "stream.flushAfter must be between 1s and 10m"},
		{schedules, schedule("{maxSize: 1023Ki}", ""), "stream.maxSize must be between 1Mi and 16Mi"},
		{schedules, schedule("{maxSize: 17Mi}", ""), "stream.maxSize must be between 1Mi and 16Mi"},
		{schedules, schedule("{}", ", verify: false"), "stream needs template.spec.verify"},
		{operations, restore("snapshotRef: {name: a}, until: {latest: true}"), ""},
		{operations, restore("snapshotRef: {name: a}, until: {revision: 4711}"), ""},
		{operations, restore(`snapshotRef: {name: a}, until: {time: "2026-11-22T13:59:00Z"}`), ""},
		{operations, restore(`snapshotRef: {name: a}, until: {time: "2026-11-22T13:59:00.25+01:00"}`), ""},
		{operations, restore(`snapshotRef: {name: a}, until: {time: "2026-11-22 13:59"}`), "until.time"},
		{operations, restore(`snapshotRef: {name: a}, until: {time: "2026-13-22T13:59:00Z"}`), "until.time"},
		{operations, restore(`snapshotRef: {name: a}, until: {time: "2026-11-22T13:59:00Z", latest: true}`), one},
		{operations, restore("snapshotRef: {name: a}, until: {}"), one},
		{operations, restore("snapshotRef: {name: a}, until: {latest: false}"), one},
		{operations, restore("snapshotRef: {name: a}, until: {latest: true, revision: 1}"), one},
		{operations, restore("snapshotRef: {name: a}, until: {revision: -1}"), "greater than or equal to 1"},
		{operations, restore("artifact: a.db, store: {s3: {bucket: b}}, until: {latest: true}"), "until needs clusterID"},
		{operations, restore("artifact: a.db, store: {s3: {bucket: b}}, until: {latest: true, clusterID: 2c119c3b}"), ""},
		{operations, restore("snapshotRef: {name: a}, until: {latest: true, clusterID: ../x}"), "until.clusterID"},
	} {
		said := ""
		if errs := kindOf(t, c.kind).admit(object(t, c.kind, c.spec), nil); len(errs) > 0 {
			said = errs.ToAggregate().Error()
		}
		if (c.refused == "") != (said == "") || !strings.Contains(said, c.refused) {
			t.Errorf("%s: %q, and not %q", c.spec, said, c.refused)
		}
	}
}
