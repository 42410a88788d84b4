package manifests

import (
	"strings"
	"testing"
)

// TestOperations: an operation has what its type needs and nothing else, and never changes.
func TestOperations(t *testing.T) {
	k := kindOf(t, "EtcdOperation")
	for _, c := range []struct{ spec, refused string }{
		{`{clusterRef: {name: demo}, type: Defragment}`, ""},
		{`{clusterRef: {name: demo}, type: Fence, fence: {members: [demo-0], duration: 1h}}`, ""},
		{`{clusterRef: {name: demo}, type: MoveLeader, moveLeader: {to: demo-1}}`, ""},
		{`{clusterRef: {name: demo}, type: Recover, recover: {epoch: 1, policy: FromSurvivor}}`, ""},
		{`{clusterRef: {name: demo}, type: Restore, restore: {epoch: 1}}`, ""},
		{`{clusterRef: {name: demo}, type: Restore, restore: {snapshot: {snapshotRef: {name: a}}, stopFirst: true}}`, ""},
		{`{clusterRef: {name: demo}, type: Restore}`, "restore goes with type Restore"},
		{`{clusterRef: {name: demo}, type: Defragment, restore: {epoch: 1}}`, "restore goes with type Restore"},
		{`{clusterRef: {name: demo}, type: Restore, restore: {epoch: 1, snapshot: {snapshotRef: {name: a}}}}`,
			"restore has either snapshot or epoch"},
		{`{clusterRef: {name: demo}, type: Restore, restore: {}}`, "restore has either snapshot or epoch"},
		{`{clusterRef: {name: demo}, type: Fence, fence: {members: [demo-0], duration: 1s}}`, "at least 10s"},
		{`{clusterRef: {name: demo}, type: Fence, fence: {members: []}}`, "at least 1 items"},
		{`{clusterRef: {name: demo}, type: Recover, recover: {epoch: 1, policy: Manual}}`, "Manual recovers nothing"},
		{`{clusterRef: {name: demo}, type: Explode}`, "supported values"},
		{`{type: Defragment}`, "clusterRef: Required value"},
	} {
		said := ""
		if errs := k.admit(object(t, "EtcdOperation", c.spec), nil); len(errs) > 0 {
			said = errs.ToAggregate().Error()
		}
		if (c.refused == "") != (said == "") || !strings.Contains(said, c.refused) {
			t.Errorf("%s: %q, and not %q", c.spec, said, c.refused)
		}
	}
	old := object(t, "EtcdOperation", `{clusterRef: {name: demo}, type: Fence, fence: {members: [demo-0]}}`)
	changed := object(t, "EtcdOperation", `{clusterRef: {name: demo}, type: Fence, fence: {members: [demo-1]}}`)
	if errs := k.admit(changed, old); len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), "can't be changed") {
		t.Errorf("it was changed: %v", errs)
	}
	if errs := k.admit(old, old); len(errs) > 0 {
		t.Errorf("it may stay: %v", errs)
	}
}
