package etcdops

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

func TestMaintenanceIsAskedOfOneMember(t *testing.T) {
	tests := map[string]struct {
		step  decision.Step
		at    int
		calls []string
	}{
		"a downgrade": {decision.EnableDowngrade{Version: "3.5.0"}, 0,
			[]string{"Downgrade VALIDATE 3.5.0", "Downgrade ENABLE 3.5.0"}},
		"the end of a downgrade": {decision.CancelDowngrade{}, 0, []string{"Downgrade CANCEL", "Status"}},
		"a compaction":           {decision.Compact{Revision: 9}, 0, []string{"Compact 9"}},
		"a database":             {decision.Defragment{ID: 3, Name: "demo-2"}, 2, []string{"Defragment"}},
		"the leader's database":  {decision.Defragment{ID: 1, Name: "demo-0"}, 0, []string{"Defragment"}},
		"an alarm": {decision.Disarm{ID: 2, Name: "demo-1", Kind: "NOSPACE"}, 0,
			[]string{"Alarm DEACTIVATE NOSPACE 2"}},
		"an alarm of no member": {decision.Disarm{Kind: "CORRUPT"}, 0, []string{"Alarm DEACTIVATE CORRUPT 0"}},
		"an alarm of a member that went": {decision.Disarm{ID: 9, Kind: "CORRUPT"}, 0,
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
	for _, step := range []decision.Step{
		decision.EnableDowngrade{Version: "3.5.0"}, decision.CancelDowngrade{}, decision.Compact{Revision: 9},
		decision.Defragment{ID: 3, Name: "demo-2"}, decision.Disarm{ID: 2, Name: "demo-1", Kind: "NOSPACE"},
	} {
		all := fakes(t, 3)
		on := observed(t, all)
		on.Members = append(on.Members, observation.Member{ID: 4})
		require.ErrorIs(t, new(Etcd).Do(t.Context(), step, on, endpointsOf(all)), ErrMembershipChanged, step)
	}
}

func TestNoMemberDefragmentsForAnother(t *testing.T) {
	all := fakes(t, 3)
	on := observed(t, all)
	all[2].endpoint.ClientURL = refused(t)
	step := decision.Defragment{ID: 3, Name: "demo-2"}
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
	err := e.Do(t.Context(), decision.Defragment{ID: 3, Name: "demo-2"}, on, endpointsOf(all))
	require.ErrorIs(t, err, ErrNoAnswer)
	assert.EqualError(t, err, "defragment demo-2: no answer in time")
}

func TestWhatIsDoneAlreadyIsDone(t *testing.T) {
	under := func(target string) *pb.DowngradeInfo { return &pb.DowngradeInfo{Enabled: true, TargetVersion: target} }
	tests := map[string]struct {
		step    decision.Step
		refusal error
		info    *pb.DowngradeInfo
		want    error
	}{
		"compacted":                            {decision.Compact{Revision: 9}, rpctypes.ErrGRPCCompacted, nil, nil},
		"not there yet":                        {decision.Compact{Revision: 9}, rpctypes.ErrGRPCFutureRev, nil, ErrFutureRevision},
		"no downgrade":                         {decision.CancelDowngrade{}, rpctypes.ErrGRPCNoInflightDowngrade, nil, nil},
		"a cancellation that etcd only feigns": {decision.CancelDowngrade{}, nil, under("3.5.0"), ErrNoAnswer},
		"enabled, the cluster not down yet": {decision.EnableDowngrade{Version: "3.5.0"},
			rpctypes.ErrGRPCDowngradeInProcess, under("3.5.0"), nil},
		"enabled, the cluster is down": {decision.EnableDowngrade{Version: "3.5.35"},
			rpctypes.ErrGRPCInvalidDowngradeTargetVersion, under("3.5.0"), nil},
		"another is under way": {decision.EnableDowngrade{Version: "3.5.0"},
			rpctypes.ErrGRPCDowngradeInProcess, under("3.6.0"), errDowngradeUnderWay},
		"one is under way, to an unknown version": {decision.EnableDowngrade{Version: "3.4.0"},
			rpctypes.ErrGRPCDowngradeInProcess, nil, errDowngradeUnderWay},
		"too far": {decision.EnableDowngrade{Version: "3.4.0"},
			rpctypes.ErrGRPCInvalidDowngradeTargetVersion, nil, ErrDowngradeTarget},
		"was enabled once, and is not any more": {decision.EnableDowngrade{Version: "3.5.0"},
			rpctypes.ErrGRPCInvalidDowngradeTargetVersion, &pb.DowngradeInfo{TargetVersion: "3.5.0"},
			ErrDowngradeTarget},
		"no version": {decision.EnableDowngrade{Version: "x"},
			rpctypes.ErrGRPCWrongDowngradeVersionFormat, under(""), errDowngradeVersion},
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
	for _, step := range []decision.Disarm{{}, {ID: 2}, {ID: 2, Kind: "NONE"}, {ID: 2, Kind: "x"}} {
		all := fakes(t, 3)
		require.ErrorIs(t, new(Etcd).Do(t.Context(), step, observed(t, all), endpointsOf(all)), errUnknownStep, step)
		assert.Equal(t, []string{"MemberList"}, all[0].calls())
	}
}
