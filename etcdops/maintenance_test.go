package etcdops

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quorate-dev/quorate/hooks"
)

func TestMaintenanceIsAskedOfOneMember(t *testing.T) {
	tests := map[string]struct {
		step  hooks.Step
		at    int
		calls []string
	}{
		"a downgrade": {hooks.EnableDowngrade{Version: "3.5.0"}, 0,
			[]string{"Downgrade VALIDATE 3.5.0", "Downgrade ENABLE 3.5.0"}},
		"the end of a downgrade": {hooks.CancelDowngrade{}, 0, []string{"Downgrade CANCEL", "Status"}},
		"a compaction":           {hooks.Compact{Revision: 9}, 0, []string{"Compact 9"}},
		"a database":             {hooks.Defragment{ID: 3, Name: "demo-2"}, 2, []string{"Defragment"}},
		"the leader's database":  {hooks.Defragment{ID: 1, Name: "demo-0"}, 0, []string{"Defragment"}},
		"an alarm": {hooks.Disarm{ID: 2, Name: "demo-1", Kind: "NOSPACE"}, 0,
			[]string{"Alarm DEACTIVATE NOSPACE 2"}},
		"nobody's alarm": {hooks.Disarm{Kind: "CORRUPT"}, 0, []string{"Alarm DEACTIVATE CORRUPT 0"}},
		"an alarm of a member that went": {hooks.Disarm{ID: 9, Kind: "CORRUPT"}, 0,
			[]string{"Alarm DEACTIVATE CORRUPT 9"}},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			all := fakes(t, 3)
			require.NoError(t, new(Etcd).Do(t.Context(), test.step, observed(t, all), endpointsOf(all)))
			for i, f := range all {
				if i == test.at {
					assert.Equal(t, append([]string{"MemberList"}, test.calls...), f.calls())
				} else {
					assert.Empty(t, f.calls(), f.endpoint.Name)
				}
			}
		})
	}
}

func TestMaintenanceOnAnotherMembershipIsRefused(t *testing.T) {
	for _, step := range []hooks.Step{
		hooks.EnableDowngrade{Version: "3.5.0"}, hooks.CancelDowngrade{}, hooks.Compact{Revision: 9},
		hooks.Defragment{ID: 3, Name: "demo-2"}, hooks.Disarm{ID: 2, Name: "demo-1", Kind: "NOSPACE"},
	} {
		all := fakes(t, 3)
		on := observed(t, all)
		on.Members = append(on.Members, hooks.Member{ID: 4})
		require.ErrorIs(t, new(Etcd).Do(t.Context(), step, on, endpointsOf(all)), ErrMembershipChanged, step)
	}
}

func TestNobodyDefragmentsForAnother(t *testing.T) {
	all := fakes(t, 3)
	on := observed(t, all)
	all[2].endpoint.ClientURL = refused(t)
	step := hooks.Defragment{ID: 3, Name: "demo-2"}
	require.ErrorIs(t, new(Etcd).Do(t.Context(), step, on, endpointsOf(all)), ErrNoQuorum)
	require.ErrorIs(t, new(Etcd).Do(t.Context(), step, on, endpointsOf(all[:2])), ErrNoExecutor)
	assert.Empty(t, all[0].calls())
	assert.Empty(t, all[1].calls())
}

func TestADefragmentationMayOutliveItsCall(t *testing.T) {
	all := fakes(t, 3)
	on := observed(t, all)
	all[2].hang = true
	e := &Etcd{StepTimeout: 100 * time.Millisecond}
	err := e.Do(t.Context(), hooks.Defragment{ID: 3, Name: "demo-2"}, on, endpointsOf(all))
	require.ErrorIs(t, err, ErrNoAnswer)
	assert.EqualError(t, err, "defragment demo-2: no answer in time")
}

func TestWhatIsDoneAlreadyIsDone(t *testing.T) {
	under := func(target string) *pb.DowngradeInfo { return &pb.DowngradeInfo{Enabled: true, TargetVersion: target} }
	tests := map[string]struct {
		step    hooks.Step
		refusal error
		info    *pb.DowngradeInfo
		want    error
	}{
		"compacted": {hooks.Compact{Revision: 9}, rpctypes.ErrGRPCCompacted, nil, nil},
		"not there yet": {hooks.Compact{Revision: 9}, rpctypes.ErrGRPCFutureRev, nil,
			ErrFutureRevision},
		"no downgrade": {hooks.CancelDowngrade{}, rpctypes.ErrGRPCNoInflightDowngrade, nil,
			nil},
		"a cancellation that etcd only feigns": {hooks.CancelDowngrade{}, nil, under("3.5.0"), ErrNoAnswer},
		"enabled, the cluster not down yet": {hooks.EnableDowngrade{Version: "3.5.0"},
			rpctypes.ErrGRPCDowngradeInProcess, under("3.5.0"), nil},
		"enabled, the cluster is down": {hooks.EnableDowngrade{Version: "3.5.35"},
			rpctypes.ErrGRPCInvalidDowngradeTargetVersion, under("3.5.0"), nil},
		"another is under way": {hooks.EnableDowngrade{Version: "3.5.0"},
			rpctypes.ErrGRPCDowngradeInProcess, under("3.6.0"), ErrDowngradeUnderWay},
		"one is under way, nobody knows where": {hooks.EnableDowngrade{Version: "3.4.0"},
			rpctypes.ErrGRPCDowngradeInProcess, nil, ErrDowngradeUnderWay},
		"too far": {hooks.EnableDowngrade{Version: "3.4.0"},
			rpctypes.ErrGRPCInvalidDowngradeTargetVersion, nil, ErrDowngradeTarget},
		"was enabled once, and is not any more": {hooks.EnableDowngrade{Version: "3.5.0"},
			rpctypes.ErrGRPCInvalidDowngradeTargetVersion, &pb.DowngradeInfo{TargetVersion: "3.5.0"},
			ErrDowngradeTarget},
		"no version": {hooks.EnableDowngrade{Version: "x"},
			rpctypes.ErrGRPCWrongDowngradeVersionFormat, under(""), ErrDowngradeVersion},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			all := fakes(t, 3)
			on := observed(t, all)
			all[0].step, all[0].status.DowngradeInfo = test.refusal, test.info
			err := new(Etcd).Do(t.Context(), test.step, on, endpointsOf(all))
			if test.want == nil {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, test.want)
			}
		})
	}
}

func TestOnlyOneAlarmIsDisarmed(t *testing.T) {
	for _, step := range []hooks.Disarm{{}, {ID: 2}, {ID: 2, Kind: "NONE"}, {ID: 2, Kind: "x"}} {
		all := fakes(t, 3)
		require.ErrorIs(t, new(Etcd).Do(t.Context(), step, observed(t, all), endpointsOf(all)), ErrUnknownStep, step)
		assert.Equal(t, []string{"MemberList"}, all[0].calls())
	}
}
