package kubectl

import (
	"context"
	"flag"
	"fmt"
)

// The commands suspend and resume, which set spec.suspend.

func (a *invocation) suspendFlags(flags *flag.FlagSet) {
	scheduleName.flag(flags, &a.schedule, "schedule", "`name` of an EtcdSnapshotSchedule that is meant, and no EtcdCluster")
}

func (a *invocation) validSuspend() error {
	if a.schedule != "" && a.cluster != "" {
		return misused("%s takes either NAME, of an EtcdCluster, or --schedule", a.name)
	}
	return nil
}

func (a *invocation) suspend(ctx context.Context, to bool) error {
	patch := fmt.Sprintf(`{"spec":{"suspend":%t}}`, to)
	if a.schedule != "" {
		if _, err := a.kube.run(ctx, a.in("patch", schedules, a.schedule, "--type=merge", "-p", patch)...); err != nil {
			return err
		}
		fmt.Fprintf(a.Out, "EtcdSnapshotSchedule %s/%s: spec.suspend is %t\n", a.where(ctx), a.schedule, to)
		return nil
	}
	c, err := a.find(ctx)
	if err != nil {
		return err
	}
	if _, err := a.kube.run(ctx, "patch", clusters, c.Name, "-n", c.Namespace, "--type=merge", "-p", patch); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "EtcdCluster %s/%s: spec.suspend is %t\n", c.Namespace, c.Name, to)
	if to {
		fmt.Fprintf(a.Out, "members run on, and Quorate changes nothing; one that disappears stays away, until `kubectl "+
			"quorate resume -n %s %s`\n", c.Namespace, c.Name)
	}
	return nil
}
