package kubectl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

const aStore = `{"claim":{"name":"backups"}}`

// aSnapshot is an EtcdSnapshot of orders, as kubectl prints it.
func aSnapshot(name, completed string, more ...string) string {
	s := `{"metadata":{"name":"` + name + `"},"spec":{"clusterRef":{"name":"orders"},"store":` + aStore + `},"status":{
		"phase":"Succeeded","uri":"file:///backups/shop/orders/` + name + `.db.zst","revision":4711,
		"clusterID":"cdf818194e3a8c32","completionTime":"` + completed + `"}}`
	for i := 0; i < len(more); i += 2 {
		s = strings.Replace(s, more[i], more[i+1], 1)
	}
	return s
}

// backedUp has a schedule, two snapshots and one that failed.
func (k *kube) backedUp() {
	k.says["get "+schedules] = `{"items":[
		{"metadata":{"name":"nightly"},"spec":{"schedule":"0 3 * * *","template":{"spec":{"clusterRef":{"name":"orders"},
			"store":` + aStore + `,"brandNew":true}}}},
		{"metadata":{"name":"of-others"},"spec":{"schedule":"0 3 * * *","stream":{},"template":{"spec":{"clusterRef":
			{"name":"others"},"store":` + aStore + `}}}}]}`
	k.has(aSnapshot("nightly-1", "2026-03-01T09:00:00Z"), aSnapshot("nightly-2", "2026-03-01T11:00:00Z"),
		aSnapshot("nightly-3", "2026-03-01T11:10:00Z", "Succeeded", "Failed"))
}

// has these EtcdSnapshots.
func (k *kube) has(all ...string) {
	k.says["get "+snapshots+" -n shop -l etcd.quorate.dev/cluster=orders"] = `{"items":[` + strings.Join(all, ",") + `]}`
}

// streamed: the schedule stores what changes, too.
func (k *kube) streamed() {
	k.backedUp()
	k.says["get "+schedules] = strings.Replace(k.says["get "+schedules], `"0 3 * * *",`, `"0 3 * * *","stream":{},`, 1)
}

// TestRestoreUntil: it finds the newest snapshot from before the moment, and the stream that stores what came after it,
// and says which and why before anything is created.
func TestRestoreUntil(t *testing.T) {
	for _, c := range []struct {
		what, until string
		edit        func(k *kube)
		snapshot    string
		says        []string
	}{
		{"a moment, and a stream", "-5m", (*kube).streamed,
			`{"snapshotRef":{"name":"nightly-2"},"until":{"time":"2026-03-01T11:55:00Z"}}`,
			[]string{"EtcdSnapshot nightly-2: the newest of EtcdCluster shop/orders that was stored before " +
				"2026-03-01T11:55:00Z, revision 4711, 60m ago (2026-03-01 11:00 UTC)\n",
				"and what EtcdSnapshotSchedule nightly has stored after it, until 2026-03-01T11:55:00Z\n"}},
		{"between two", "2026-03-01T11:30:00+01:00", (*kube).streamed,
			`{"snapshotRef":{"name":"nightly-1"},"until":{"time":"2026-03-01T10:30:00Z"}}`, nil},
		{"the latest", "latest", (*kube).streamed, `{"snapshotRef":{"name":"nightly-2"},"until":{"latest":true}}`,
			[]string{"that was stored, revision 4711", "after it, up to the latest\n"}},
		{"a stream that stands still", "-5m", func(k *kube) {
			k.streamed()
			k.says["get "+schedules] = strings.Replace(k.says["get "+schedules], `{"metadata":{"name":"nightly"},`,
				`{"metadata":{"name":"nightly"},"status":{"conditions":[{"type":"Streaming","status":"False",
				"message":"no room"}]},`, 1)
		}, `{"snapshotRef":{"name":"nightly-2"},"until":{"time":"2026-03-01T11:55:00Z"}}`,
			[]string{"it stores nothing at present: no room\n"}},
		{"no stream", "-5m", (*kube).backedUp, `{"snapshotRef":{"name":"nightly-2"}}`,
			[]string{"what was written after it is not restored: no EtcdSnapshotSchedule with spec.stream"}},
		{"a stream in another store", "-5m", func(k *kube) {
			k.streamed()
			k.has(aSnapshot("mine", "2026-03-01T11:00:00Z", `"backups"`, `"elsewhere"`))
		}, `{"snapshotRef":{"name":"mine"}}`, []string{"what was written after it is not restored: "}},
		{"an earlier etcd", "-5m", func(k *kube) {
			k.backedUp()
			k.has(aSnapshot("old", "2026-03-01T11:00:00Z", "cdf818194e3a8c32", "abc"))
		}, `{"snapshotRef":{"name":"old"}}`,
			[]string{"it is of an earlier etcd, from before a restore or a recovery: abc"}},
		{"encrypted", "latest", func(k *kube) {
			k.backedUp()
			within(k.cluster, "spec")["recovery"] = map[string]any{"identitySecretRef": map[string]any{"name": "age"}}
			k.has(aSnapshot("sealed", "2026-03-01T11:00:00Z", `"store":`, `"encryption":{"recipients":["age1x"]},"store":`))
		}, `{"snapshotRef":{"name":"sealed"},"identitySecretRef":{"name":"age"}}`, nil},
		{"unverified, and a person allows it", "latest", func(k *kube) {
			k.backedUp()
			k.has(aSnapshot("u", "2026-03-01T11:00:00Z", "Succeeded", "Unverified", `"store":`, `"verify":false,"store":`))
		}, `{"snapshotRef":{"name":"u"}}`, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			k := steady(t)
			c.edit(k)
			code, out, errs := k.runs(healthy(), "restore", "orders", "--until", c.until)
			require.Zero(t, code, errs)
			require.Len(t, k.applied, 1)
			assert.Contains(t, k.applied[0], `"restore":{"snapshot":`+c.snapshot+`}`)
			chosen, _, created := strings.Cut(out, "EtcdOperation shop/orders-restore-20260301-120000 created\n")
			require.True(t, created, out)
			for _, words := range c.says {
				assert.Contains(t, chosen, words)
			}

			k.applied = nil
			code, out, _ = k.runs(healthy(), "restore", "orders", "--dry-run", "--until", c.until)
			require.Zero(t, code)
			assert.Empty(t, k.applied)
			assert.Contains(t, out, "# EtcdSnapshot ")
			var op v1beta1.EtcdOperation
			require.NoError(t, yaml.UnmarshalStrict([]byte(out), &op), "what is printed can be created")
			assert.Equal(t, v1beta1.OperationRestore, op.Spec.Type)
		})
	}
}

func TestRestoreUntilFindsNothing(t *testing.T) {
	for says, edit := range map[string]func(k *kube){
		"before 2026-03-01T11:55:00Z can be restored: it has none, with the label etcd.": func(k *kube) { k.has() },
		"EtcdSnapshot late was stored 2026-03-01T11:57:00Z": func(k *kube) {
			k.has(aSnapshot("late", "2026-03-01T11:57:00Z"))
		},
		"EtcdSnapshot f is Failed, not Succeeded": func(k *kube) {
			k.has(aSnapshot("f", "2026-03-01T11:00:00Z", "Succeeded", "Failed"))
		},
		"EtcdSnapshot u is Unverified; to restore it anyway: kubectl patch": func(k *kube) {
			k.has(aSnapshot("u", "2026-03-01T11:00:00Z", "Succeeded", "Unverified"))
		},
		"it has none": func(k *kube) {
			k.has(aSnapshot("o", "2026-03-01T11:00:00Z", `"orders"`, `"others"`))
		},
		"is encrypted: name the Secret with an age identity in spec.recovery.identitySecretRef": func(k *kube) {
			k.has(aSnapshot("s", "2026-03-01T11:00:00Z", `"store":`, `"encryption":{"recipients":["age1x"]},"store":`))
		},
		"the EtcdSnapshots of EtcdCluster shop/orders can't be read": func(k *kube) { k.fails["get "+snapshots] = "no" },
		"the EtcdSnapshotSchedules of namespace shop can't be read":  func(k *kube) { k.fails["get "+schedules] = "no" },
	} {
		k := steady(t)
		k.backedUp()
		edit(k)
		code, _, errs := k.runs(healthy(), "restore", "--until=-5m")
		assert.Equal(t, exitTrouble, code, says)
		assert.Contains(t, errs, says)
		assert.Empty(t, k.applied)
	}
}

// TestSnapshot: it is stored as the schedule's are, can be restored in place, and no retention deletes it.
func TestSnapshot(t *testing.T) {
	const created = "EtcdSnapshot shop/orders-snapshot-20260301-120000 created\n"
	k := steady(t)
	k.backedUp()
	within(k.cluster, "metadata")["labels"] = map[string]any{"quorate": "blue", "app.kubernetes.io/instance": "shop"}
	code, out, errs := k.runs(healthy(), "snapshot")
	require.Zero(t, code, errs)
	assert.Equal(t, "stored as EtcdSnapshotSchedule nightly says\n"+created+"`kubectl get -n shop qsnap "+
		"orders-snapshot-20260301-120000 -o wide` shows how it goes\n", out)
	assert.JSONEq(t, `{"apiVersion":"etcd.quorate.dev/v1beta1","kind":"EtcdSnapshot","metadata":{"namespace":"shop",
		"name":"orders-snapshot-20260301-120000","labels":{"quorate":"blue","etcd.quorate.dev/cluster":"orders"}},
		"spec":{"clusterRef":{"name":"orders"},"store":`+aStore+`,"brandNew":true}}`, k.applied[0])

	for status, says := range map[string]string{
		`{"phase":"Succeeded"}`: "", `{"phase":"Failed","message":"no room"}`: "has failed: no room",
		`{"phase":"Unverified","message":"no disk"}`: "is stored, and was not verified: no disk",
	} {
		k.says["get "+snapshots+" orders-snapshot-"] = `{"status":` + status + `}`
		code, _, errs = k.runs(healthy(), "snapshot", "--from-schedule=nightly", "--wait")
		assert.Equal(t, says != "", code == exitTrouble, errs)
		assert.Contains(t, errs, says)
	}

	code, _, errs = k.runs(healthy(), "snapshot", "--from-schedule=weekly")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "EtcdCluster shop/orders has no EtcdSnapshotSchedule weekly: it has nightly")
	k.says["get "+schedules] = strings.ReplaceAll(k.says["get "+schedules], "others\"", "orders\"")
	k.calls, k.applied = nil, nil
	code, _, errs = k.runs(healthy(), "snapshot")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "has 2 EtcdSnapshotSchedules: nightly, of-orders; say which one with --from-schedule")
	k.says["get "+schedules] = `{"items":[]}`
	code, _, errs = k.runs(healthy(), "snapshot")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "no EtcdSnapshotSchedule of EtcdCluster shop/orders says where it is stored")
	assert.Empty(t, k.applied)
}

func TestSuspend(t *testing.T) {
	k := steady(t)
	code, out, errs := k.runs(healthy(), "suspend")
	require.Zero(t, code, errs)
	assert.Contains(t, k.calls, "patch "+clusters+` orders -n shop --type=merge -p {"spec":{"suspend":true}}`)
	assert.Contains(t, out, "EtcdCluster shop/orders: spec.suspend is true\n")
	assert.Contains(t, out, "until `kubectl quorate resume -n shop orders`")
	code, out, _ = k.runs(healthy(), "resume", "orders")
	require.Zero(t, code)
	assert.Contains(t, k.calls, "patch "+clusters+` orders -n shop --type=merge -p {"spec":{"suspend":false}}`)
	assert.Equal(t, "EtcdCluster shop/orders: spec.suspend is false\n", out)
	code, out, _ = k.runs(healthy(), "suspend", "--schedule=nightly", "-n", "shop")
	require.Zero(t, code)
	assert.Contains(t, k.calls, "patch "+schedules+` nightly --type=merge -p {"spec":{"suspend":true}} -n shop`)
	assert.Equal(t, "EtcdSnapshotSchedule shop/nightly: spec.suspend is true\n", out)
}
