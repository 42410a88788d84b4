package kubectl

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// The command snapshot: one more EtcdSnapshot, stored as a schedule says.

// schedules as kubectl names them.
const schedules = "etcdsnapshotschedules.etcd.quorate.dev"

// scheduled is an EtcdSnapshotSchedule, and the spec of its snapshots as the API server has it.
type scheduled struct {
	v1beta1.EtcdSnapshotSchedule
	template json.RawMessage
}

// schedulesOf are those of the cluster.
func (a *invocation) schedulesOf(ctx context.Context, c *v1beta1.EtcdCluster) ([]scheduled, error) {
	out, err := a.kube.run(ctx, "get", schedules, "-n", c.Namespace, "-o", "json")
	if err != nil {
		return nil, fmt.Errorf("the EtcdSnapshotSchedules of namespace %s can't be read: %w", c.Namespace, err)
	}
	raws, err := items(out)
	if err != nil {
		return nil, err
	}
	var all []scheduled
	for _, raw := range raws {
		var s scheduled
		var as struct {
			Spec struct {
				Template struct{ Spec json.RawMessage }
			}
		}
		if err := objects.Read(raw, &s.EtcdSnapshotSchedule); err != nil {
			return nil, fmt.Errorf("an EtcdSnapshotSchedule can't be read; is this plugin older than the CRD? %w", err)
		}
		if err := objects.Read(raw, &as); err != nil {
			return nil, err
		}
		s.template = as.Spec.Template.Spec
		if s.Spec.Template.Spec.ClusterRef.Name == c.Name {
			all = append(all, s)
		}
	}
	return all, nil
}

// takeSnapshot creates an EtcdSnapshot. It has the label of its cluster, so that it can be restored in place, and not
// that of the schedule, whose retention would delete it.
func (a *invocation) takeSnapshot(ctx context.Context) error {
	c, err := a.find(ctx)
	if err != nil {
		return err
	}
	all, err := a.schedulesOf(ctx, c.EtcdCluster)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	of := objects.Filter(all, func(s scheduled) bool { return a.schedule == "" || s.Name == a.schedule })
	switch {
	case len(all) == 0:
		return fmt.Errorf("no EtcdSnapshotSchedule of EtcdCluster %s/%s says where it is stored: create one, suspended if "+
			"it is for this alone, or an EtcdSnapshot with its own store ("+v1beta1.Docs+"how-to/back-up.md)",
			c.Namespace, c.Name)
	case len(of) == 0:
		return fmt.Errorf("EtcdCluster %s/%s has no EtcdSnapshotSchedule %s: it has %s", c.Namespace, c.Name, a.schedule,
			strings.Join(names, ", "))
	case len(of) > 1:
		return misused("EtcdCluster %s/%s has %d EtcdSnapshotSchedules: %s; say which one with --from-schedule",
			c.Namespace, c.Name, len(of), strings.Join(names, ", "))
	}
	labels := map[string]string{objects.LabelCluster: c.Name}
	maps.Copy(labels, handedDown(c.Labels))
	a.remark("stored as EtcdSnapshotSchedule %s says", of[0].Name)
	return a.request(ctx, request{kind: v1beta1.KindSnapshot, resource: snapshots, short: "qsnap", of: c.EtcdCluster,
		labels: labels, spec: of[0].template})
}
