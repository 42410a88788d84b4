package etcdops

import (
	"context"
	"errors"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/hooks/decision"
)

// maintain makes the one change to etcd of a step that leaves the members as they are.
func maintain(ctx context.Context, client *clientv3.Client, step decision.Step) (err error) {
	switch s := step.(type) {
	case decision.EnableDowngrade:
		err = enableDowngrade(ctx, client, s.Version)
	case decision.CancelDowngrade:
		err = cancelDowngrade(ctx, client)
	case decision.Compact:
		// Physical: what was compacted must be gone from the database before the defragmentation that comes next, as
		// far as the call can wait for it.
		if _, err = client.Compact(ctx, s.Revision, clientv3.WithCompactPhysical()); errors.Is(err,
			rpctypes.ErrCompacted) {
			err = nil // done before, by us or by the member's own compactor
		}
	case decision.Defragment:
		// Not the client's own Defragment: that one opens a second connection.
		_, err = maintenance(client).Defragment(ctx, &pb.DefragmentRequest{})
	case decision.Disarm:
		err = disarm(ctx, client, s)
	default:
		err = fmt.Errorf("%w: %T", errUnknownStep, step)
	}
	return err
}

// enableDowngrade asks first whether it may be: the answer to that costs nothing and changes nothing.
func enableDowngrade(ctx context.Context, client *clientv3.Client, version string) error {
	_, err := client.Downgrade(ctx, clientv3.DowngradeValidate, version)
	if err == nil {
		_, err = client.Downgrade(ctx, clientv3.DowngradeEnable, version)
	}
	if !errors.Is(err, rpctypes.ErrDowngradeInProcess) && !errors.Is(err, rpctypes.ErrInvalidDowngradeTargetVersion) {
		return err
	}
	// It may be this very downgrade. etcd looks at the version first (DowngradeValidate in
	// etcdserver/version/version.go), and that of the cluster goes down as soon as the downgrade is enabled: the
	// second try is for an "invalid target".
	target, unknown := downgradeTarget(ctx, client)
	if unknown == nil && sameMinor(target, version) {
		return nil
	}
	return err
}

// cancelDowngrade looks afterwards: from 3.6 on, etcd answers a cancellation that failed as if it had not
// (downgradeCancel in etcdserver/v3_server.go drops the error).
func cancelDowngrade(ctx context.Context, client *clientv3.Client) error {
	if _, err := client.Downgrade(ctx, clientv3.DowngradeCancel, ""); err != nil {
		if errors.Is(err, rpctypes.ErrNoInflightDowngrade) {
			return nil
		}
		return err
	}
	target, err := downgradeTarget(ctx, client)
	if err == nil && target != "" {
		return ErrNoAnswer
	}
	return err
}

// downgradeTarget is where the member that is asked believes a downgrade goes; empty for none, and before etcd 3.6.
func downgradeTarget(ctx context.Context, client *clientv3.Client) (string, error) {
	status, err := maintenance(client).Status(ctx, &pb.StatusRequest{})
	return targetOf(status), err
}

// targetOf is what a status says of a downgrade: the version is also there when there is none any more.
func targetOf(status *pb.StatusResponse) string {
	if !status.GetDowngradeInfo().GetEnabled() {
		return ""
	}
	return status.GetDowngradeInfo().GetTargetVersion()
}

// sameMinor compares 3.6, 3.6.0 and 3.6.16, which are one version for a cluster.
func sameMinor(a, b string) bool {
	return minor(a) != "" && minor(a) == minor(b)
}

func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + "." + parts[1]
}

// disarm ends one kind of alarm of one member; member 0 is etcd's own word for no particular member.
func disarm(ctx context.Context, client *clientv3.Client, s decision.Disarm) error {
	kind, known := pb.AlarmType_value[s.Kind]
	if !known || pb.AlarmType(kind) == pb.AlarmType_NONE {
		return because(errUnknownStep, "no alarm is called "+s.Kind)
	}
	_, err := maintenance(client).Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: s.ID,
		Alarm: pb.AlarmType(kind)})
	return err
}

func maintenance(client *clientv3.Client) pb.MaintenanceClient {
	return pb.NewMaintenanceClient(client.ActiveConnection())
}
