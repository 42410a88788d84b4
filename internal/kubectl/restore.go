package kubectl

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// The command restore: to the data of an EtcdSnapshot or an epoch that the line names, or of a moment. For that it
// finds the newest snapshot from before, and whether a stream has stored what changed since.

// restoring is what the command restore is told.
type restoring struct {
	snapshot  string
	epoch     int64
	until     *ending
	stopFirst bool
}

// ending is where a restore ends: a moment, or the zero time for the latest there is.
type ending struct{ at time.Time }

// mostEpochs is far beyond what a cluster has.
const mostEpochs = 1_000_000

func (a *invocation) restoreFlags(flags *flag.FlagSet) {
	r := &a.restoring
	flags.Func("until", "`time` to go back to, such as 2026-11-22T13:59:00Z, or -5m for five minutes ago, or latest for "+
		"all that is stored", a.readUntil)
	snapshotName.flag(flags, &r.snapshot, "snapshot", "`name` of the EtcdSnapshot to restore")
	number(flags, "epoch", &r.epoch, mostEpochs, "`number` of the epoch to go back to, while its volumes are kept")
	flags.BoolVar(&r.stopFirst, "stop-first", false, "stop the members before the new ones are made ready, where there "+
		"is no room for both")
}

func (a *invocation) readUntil(value string) error {
	now := a.now().UTC().Truncate(time.Second)
	e := &ending{}
	if back, err := time.ParseDuration(value); err == nil {
		e.at = now.Add(back)
	} else if value != "latest" {
		if e.at, err = time.Parse(time.RFC3339, value); err != nil {
			return errors.New("it must be a time such as 2026-11-22T13:59:00Z, or -5m, or latest")
		}
	}
	e.at = e.at.UTC()
	if !e.at.Before(now) {
		return errors.New("it must be before now; -5m is five minutes ago")
	}
	a.restoring.until = e
	return nil
}

func (a *invocation) validRestore() error {
	r := &a.restoring
	said := 0
	for _, is := range []bool{r.until != nil, r.snapshot != "", r.epoch != 0} {
		if is {
			said++
		}
	}
	if said != 1 {
		return misused("restore needs one of --until, a time such as -5m, --snapshot, the name of an EtcdSnapshot, and " +
			"--epoch")
	}
	return nil
}

// restore is what the operation says.
func (a *invocation) restore(ctx context.Context, c *v1beta1.EtcdCluster) (*v1beta1.RestoreOperation, error) {
	r := &v1beta1.RestoreOperation{StopFirst: a.restoring.stopFirst}
	switch {
	case a.restoring.epoch > 0:
		r.Epoch = &a.restoring.epoch
		return r, nil
	case a.restoring.until == nil:
		r.Snapshot = &v1beta1.SnapshotSource{SnapshotRef: v1beta1.SnapshotRef{Name: a.restoring.snapshot}}
	default:
		var err error
		if r.Snapshot, err = a.chosen(ctx, c, *a.restoring.until); err != nil {
			return nil, err
		}
	}
	r.Snapshot.IdentitySecretRef = c.Spec.Recovery.IdentitySecretRef
	return r, nil
}

// chosen is the newest snapshot from before a moment, and what changed after it where a stream stores that. It says
// which they are, and why.
func (a *invocation) chosen(
	ctx context.Context, c *v1beta1.EtcdCluster, e ending,
) (*v1beta1.SnapshotSource, error) {
	all, err := itemsOf[v1beta1.EtcdSnapshot](ctx, a, []string{"get", snapshots, "-n", c.Namespace, "-l",
		objects.LabelCluster + "=" + c.Name, "-o", "json"})
	if err != nil {
		return nil, fmt.Errorf("the EtcdSnapshots of EtcdCluster %s/%s can't be read: %w", c.Namespace, c.Name, err)
	}
	s, err := newestBefore(all, c, e)
	if err != nil {
		return nil, err
	}
	a.remark("EtcdSnapshot %s: the newest of EtcdCluster %s/%s that was stored%s, revision %d, %s", s.Name, c.Namespace,
		c.Name, e.before(), s.Status.Revision, moment(s.Status.CompletionTime.Time, a.now()))
	if s.Status.ClusterID != c.Status.ClusterID {
		a.remark("it is of an earlier etcd, from before a restore or a recovery: %s, and now runs %s", s.Status.ClusterID,
			c.Status.ClusterID)
	}
	if s.Spec.Encryption != nil && c.Spec.Recovery.IdentitySecretRef.Name == "" {
		return nil, fmt.Errorf("EtcdSnapshot %s/%s is encrypted: name the Secret with an age identity in "+
			"spec.recovery.identitySecretRef of EtcdCluster %s", c.Namespace, s.Name, c.Name)
	}
	source := &v1beta1.SnapshotSource{SnapshotRef: v1beta1.SnapshotRef{Name: s.Name}}
	stream, err := a.streamOf(ctx, c, s)
	switch {
	case err != nil:
		return nil, err
	case stream == nil:
		a.remark("what was written after it is not restored: no EtcdSnapshotSchedule with spec.stream has stored that")
		return source, nil
	}
	a.remark("and what EtcdSnapshotSchedule %s has stored after it, %s", stream.Name, e.until())
	streams := meta.FindStatusCondition(stream.Status.Conditions, v1beta1.Streaming)
	if streams != nil && streams.Status != metav1.ConditionTrue {
		a.remark("it stores nothing at present: %s", streams.Message)
	}
	source.Until = &v1beta1.Until{Latest: e.at.IsZero()}
	if !e.at.IsZero() {
		source.Until.Time = e.at.Format(time.RFC3339)
	}
	return source, nil
}

// before and until say where a restore ends.
func (e ending) before() string {
	if e.at.IsZero() {
		return ""
	}
	return " before " + e.at.Format(time.RFC3339)
}

func (e ending) until() string {
	if e.at.IsZero() {
		return "up to the latest"
	}
	return "until " + e.at.Format(time.RFC3339)
}

// newestBefore is the newest snapshot that may be restored and has nothing from after a moment.
func newestBefore(all []v1beta1.EtcdSnapshot, c *v1beta1.EtcdCluster, e ending) (*v1beta1.EtcdSnapshot, error) {
	var newest *v1beta1.EtcdSnapshot
	var others []string
	for i := range all {
		s := &all[i]
		at := s.Status.CompletionTime
		switch {
		case s.Spec.ClusterRef.Name != c.Name || s.DeletionTimestamp != nil:
		case !snapshot.Restorable(s):
			others = append(others, snapshot.Unrestorable(s))
		case at.IsZero() || !e.at.IsZero() && at.After(e.at):
			others = append(others, fmt.Sprintf("EtcdSnapshot %s was stored %s", s.Name, at.UTC().Format(time.RFC3339)))
		case newest == nil || newest.Status.CompletionTime.Before(&at):
			newest = s
		}
	}
	if newest != nil {
		return newest, nil
	}
	const shown = 3
	slices.Sort(others)
	why := cmp.Or(strings.Join(others[:min(shown, len(others))], "; "), "it has none, with the label "+
		objects.LabelCluster+"="+c.Name)
	return nil, fmt.Errorf("no EtcdSnapshot of EtcdCluster %s/%s that was stored%s can be restored: %s", c.Namespace,
		c.Name, e.before(), why)
}

// streamOf is the schedule of the cluster that stores what changes after a snapshot: in the same store. Nil for none.
func (a *invocation) streamOf(
	ctx context.Context, c *v1beta1.EtcdCluster, s *v1beta1.EtcdSnapshot,
) (*scheduled, error) {
	all, err := a.schedulesOf(ctx, c)
	if err != nil || s.Status.ClusterID == "" {
		return nil, err
	}
	for i := range all {
		if all[i].Spec.Stream != nil && samePlace(&all[i].Spec.Template.Spec.Store, &s.Spec.Store) {
			return &all[i], nil
		}
	}
	return nil, nil
}

// samePlace reports whether two stores are one, however they are reached.
func samePlace(a, b *v1beta1.Store) bool {
	claim := func(s *v1beta1.Store) string {
		if s.Claim == nil {
			return ""
		}
		return s.Claim.Name
	}
	return claim(a) == claim(b) && stores.URLOf(a).String() == stores.URLOf(b).String()
}
