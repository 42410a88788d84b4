package kubectl

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/journal"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/internal/ui"
)

// The command ui: a page with what the other commands print. It looks by the same calls of kubectl as they do.

func (a *invocation) uiFlags(flags *flag.FlagSet) {
	a.quorateFlags(flags)
	flags.IntVar(&a.port, "port", 0, "`port` of this machine that the page is on; 0 is any that is free")
}

// ui serves the page until it is interrupted. Without -n it has the clusters of all namespaces.
func (a *invocation) ui(ctx context.Context) error {
	a.everywhere = a.namespace == ""
	if _, err := a.list(ctx); err != nil {
		return err
	}
	return a.serve(ctx, a.port, looking{a}, func(url string) {
		fmt.Fprintf(a.Out, "%s\nOnly this machine reaches it, and who has the address may read what you may. Ctrl-C ends "+
			"it.\n", url)
	})
}

// looking is what the page shows, by kubectl.
type looking struct{ *invocation }

// about is a command about one cluster that prints into the buffer.
func (l looking) about(of ui.Name) (*invocation, *bytes.Buffer) {
	var out bytes.Buffer
	program, a := *l.Program, *l.invocation
	program.Out = &plain{to: &out}
	a.Program = &program
	a.everywhere = false
	a.namespace = of.Namespace
	a.cluster = of.Name
	return &a, &out
}

// Clusters implements [ui.Source]: by their status, and their pods and claims, which are newer.
func (l looking) Clusters(ctx context.Context) ([]ui.Cluster, error) {
	all, err := l.list(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := itemsOf[corev1.Pod](ctx, l.invocation, l.in("get", "pods", "-l", objects.LabelCluster, "-o", "json"))
	if err != nil {
		return nil, err
	}
	claims, err := itemsOf[corev1.PersistentVolumeClaim](ctx, l.invocation, l.in("get", "pvc", "-l", objects.LabelCluster,
		"-o", "json"))
	if err != nil {
		return nil, err
	}
	shown := []ui.Cluster{}
	for _, c := range all {
		shown = append(shown, l.shown(c.EtcdCluster, &live{}, ownedBy(pods, c.EtcdCluster),
			ownedBy(claims, c.EtcdCluster), l.now()))
	}
	return shown, nil
}

// ownedBy are those that belong to the cluster, by name.
func ownedBy[T any, O interface {
	*T
	metav1.Object
}](all []T, c *v1beta1.EtcdCluster) map[string]O {
	owned := map[string]O{}
	for i := range all {
		if one := O(&all[i]); metav1.IsControlledBy(one, c) {
			owned[one.GetName()] = one
		}
	}
	return owned
}

// shown is a cluster as the page has it.
func (l looking) shown(c *v1beta1.EtcdCluster, answers *live, pods map[string]*corev1.Pod,
	claims map[string]*corev1.PersistentVolumeClaim, at time.Time) ui.Cluster {
	s := ui.Cluster{
		Name: ui.Name{Namespace: c.Namespace, Name: c.Name}, Status: cmp.Or(c.Status.Rule, "not checked yet"),
		Message: message(c), Mood: moodOf(c), Version: cmp.Or(c.Status.Version, c.Spec.Version), Voters: replicas(c),
		Epoch: c.Status.Epoch, Attention: whole(screen{c: c, l: answers, now: at}.needsAttention()),
		Flags: " -n " + c.Namespace, Members: []ui.Member{},
	}
	for _, flag := range l.passed {
		s.Flags += " " + quoted(flag)
	}
	s.Changed = c.ResourceVersion + s.Status + s.Message
	rows := rowsOf(c, answers, at)
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.name == name }) {
			rows = append(rows, row{name: name})
		}
	}
	for _, r := range rows {
		m := memberShown(r, pods[r.name], claims[r.name])
		if m.Ready && m.Role == string(v1beta1.Voter) {
			s.Ready++
		}
		s.Members = append(s.Members, m)
	}
	return s
}

func moodOf(c *v1beta1.EtcdCluster) string {
	is := func(kind string, status metav1.ConditionStatus) bool {
		return meta.IsStatusConditionPresentAndEqual(c.Status.Conditions, kind, status)
	}
	began := c.Status.ClusterID != ""
	switch {
	case is(v1beta1.Stalled, metav1.ConditionTrue), began && is(v1beta1.Available, metav1.ConditionFalse):
		return ui.Trouble
	case is(v1beta1.Ready, metav1.ConditionTrue):
		return ui.Calm
	}
	return ui.Busy
}

func memberShown(r row, pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) ui.Member {
	m := ui.Member{Name: r.name, Role: r.role, Leads: r.leads, Ready: r.ready, Since: r.since, Version: r.version,
		Size: r.size, Used: r.used, Alarms: whole(r.alarms), Message: r.message, Quota: defaults.Quota(pod)}
	if pod != nil { // it is newer than the status
		serving := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
		m.Ready = pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, serving)
		for _, c := range pod.Status.ContainerStatuses {
			if c.Name == objects.ContainerEtcd {
				m.Restarts = c.RestartCount
			}
		}
	}
	m.State = stateOf(pod, m.Ready)
	if claim != nil {
		m.Volume = string(cmp.Or(claim.Status.Phase, corev1.ClaimPending))
		m.Capacity = claim.Status.Capacity.Storage().Value()
	}
	return m
}

// stateOf is a pod in a word or two.
func stateOf(pod *corev1.Pod, ready bool) string {
	switch {
	case ready:
		return "serves"
	case pod == nil:
		return "no pod"
	case pod.DeletionTimestamp != nil:
		return "stopping"
	case pod.Spec.NodeName == "" && pod.Status.Phase == corev1.PodPending:
		return "waits for a node"
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		usual := []string{"", "PodInitializing", "ContainerCreating"}
		if w := c.State.Waiting; w != nil && !slices.Contains(usual, w.Reason) {
			return w.Reason
		}
	}
	return "starting"
}

// History implements [ui.Source]: by the journal, and where it can't be read by what the status remembers.
func (l looking) History(ctx context.Context, of ui.Name) (*ui.History, error) {
	a, _ := l.about(of)
	text, err := a.entries(ctx, of.Namespace, of.Name)
	if err != nil {
		return a.remembered(ctx, err)
	}
	entries, all, err := journal.Read(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	h := &ui.History{Moments: []ui.Moment{}}
	for _, e := range entries[max(0, len(entries)-ui.MostMoments):] {
		m, err := looking{a}.moment(e, all)
		if err != nil {
			return nil, err
		}
		h.Moments = append(h.Moments, *m)
	}
	return h, nil
}

// moment is an entry of a journal: what was observed, and the status that was answered.
func (l looking) moment(e *journal.Entry, all journal.Objects) (*ui.Moment, error) {
	o, err := e.Observation(all)
	if err != nil {
		return nil, err
	}
	events, err := journal.Events([]*journal.Entry{e}, all)
	if err != nil {
		return nil, err
	}
	status := v1beta1.EtcdClusterStatus{}
	if err := objects.Read(all[e.Decided.Status], &status); err != nil {
		return nil, err
	}
	c := *o.Cluster
	c.Status = status
	answers := &live{etcd: o.Etcd, health: o.Health}
	m := &ui.Moment{Time: e.Time, Changes: []string{},
		Cluster: l.shown(&c, answers, o.Children.Pods, o.Children.Claims, e.Time)}
	m.Cluster.Status = e.Decided.Rule
	m.Cluster.Message = e.Decided.Message
	for _, event := range events {
		m.Changes = append(m.Changes, event.Changes...)
	}
	return m, nil
}

// remembered is the history of the status, which has no members.
func (a *invocation) remembered(ctx context.Context, because error) (*ui.History, error) {
	c, err := a.find(ctx)
	if err != nil {
		return nil, err
	}
	h := &ui.History{Moments: []ui.Moment{}, Note: fmt.Sprintf("These are the decisions that the status remembers. %s",
		because)}
	for _, e := range c.Status.History {
		m := ui.Moment{Time: e.Time.Time, Changes: []string{}}
		if e.Step != "" {
			m.Changes = append(m.Changes, "etcd: "+e.Step)
		}
		m.Cluster = ui.Cluster{Name: ui.Name{Namespace: c.Namespace, Name: c.Name}, Status: e.Rule, Message: e.Message,
			Mood: ui.Busy, Attention: []string{}}
		h.Moments = append(h.Moments, m)
	}
	return h, nil
}

// Explain implements [ui.Source].
func (l looking) Explain(ctx context.Context, of ui.Name, at time.Time) (string, error) {
	a, out := l.about(of)
	a.at = at
	explain := a.explain
	if !at.IsZero() {
		explain = a.history
	}
	err := explain(ctx)
	return out.String(), err
}

// Stored implements [ui.Source].
func (l looking) Stored(ctx context.Context, of ui.Name) (*ui.Stored, error) {
	a, _ := l.about(of)
	c, err := a.find(ctx)
	if err != nil {
		return nil, err
	}
	all, err := itemsOf[v1beta1.EtcdSnapshot](ctx, a, []string{"get", snapshots, "-n", c.Namespace, "-l",
		objects.LabelCluster + "=" + c.Name, "-o", "json"})
	if err != nil {
		return nil, err
	}
	schedules, err := a.schedulesOf(ctx, c.EtcdCluster)
	if err != nil {
		return nil, err
	}
	s := &ui.Stored{Snapshots: []ui.Snapshot{}, Streams: []ui.Stream{}}
	for i := range all {
		if one := &all[i]; one.Spec.ClusterRef.Name == c.Name {
			s.Snapshots = append(s.Snapshots, snapshotShown(one))
		}
	}
	slices.SortFunc(s.Snapshots, func(a, b ui.Snapshot) int { return a.Time.Compare(b.Time) })
	for i := range schedules {
		if stream := streamShown(&schedules[i], s.Snapshots, l.now()); stream != nil {
			s.Streams = append(s.Streams, *stream)
		}
	}
	return s, nil
}

func snapshotShown(s *v1beta1.EtcdSnapshot) ui.Snapshot {
	shown := ui.Snapshot{Name: s.Name, Time: s.Status.CompletionTime.Time,
		Phase: string(cmp.Or(s.Status.Phase, v1beta1.SnapshotPending)), Verified: !s.Status.VerificationTime.IsZero(),
		Restorable: snapshot.Restorable(s) && s.DeletionTimestamp == nil, Revision: s.Status.Revision,
		Message: s.Status.Message}
	if shown.Time.IsZero() {
		shown.Time = s.CreationTimestamp.Time
	}
	if s.Status.Size != nil {
		shown.Size = s.Status.Size.Value()
	}
	return shown
}

// streamShown is a stream from its base on, or from the first snapshot; nil for none. While it runs it has all up to
// now, and else what it had stored when it stopped.
func streamShown(s *scheduled, all []ui.Snapshot, now time.Time) *ui.Stream {
	if s.Spec.Stream == nil || s.Status.Stream == nil || len(all) == 0 {
		return nil
	}
	shown := &ui.Stream{Name: s.Name, From: all[0].Time, To: now}
	if i := slices.IndexFunc(all, func(o ui.Snapshot) bool { return o.Name == s.Status.Stream.Base }); i >= 0 {
		shown.From = all[i].Time
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, v1beta1.Streaming); c != nil {
		shown.Runs = c.Status == metav1.ConditionTrue
		shown.Message = c.Message
		if !shown.Runs {
			shown.To = c.LastTransitionTime.Time
		}
	}
	return shown
}

// Contents implements [ui.Source]: what the newest verified snapshot tells, and the streams of who writes.
func (l looking) Contents(ctx context.Context, of ui.Name) (*ui.Contents, error) {
	a, _ := l.about(of)
	c, err := a.find(ctx)
	if err != nil {
		return nil, err
	}
	told, err := a.accounts(ctx, c.EtcdCluster)
	if err != nil {
		return nil, err
	}
	shown := &ui.Contents{Notes: []string{}, Prefixes: []ui.Prefix{}}
	if len(told) > 0 {
		newest := told[len(told)-1].Status
		shown.Time = newest.CompletionTime.Time
		for _, p := range longest(newest.Contents.Prefixes) {
			shown.Prefixes = append(shown.Prefixes, ui.Prefix{Prefix: p.Prefix, Keys: p.Keys, Bytes: p.Bytes})
		}
	}
	d := &topDocument{}
	a.topStreams(ctx, c.EtcdCluster, d)
	shown.Notes = append(shown.Notes, d.remarks...)
	if len(d.Streams) > 0 { // each tells the same
		wrote := d.Streams[0].Writes
		shown.From = wrote.From
		shown.To = wrote.To
		for _, p := range longest(wrote.Contents.Prefixes) {
			shown.Wrote(p.Prefix, p.Writes)
		}
	}
	return shown, nil
}

// longest are the prefixes that are none of another, so that no key counts twice.
func longest(all []v1beta1.PrefixContents) []v1beta1.PrefixContents {
	return objects.Filter(all, func(p v1beta1.PrefixContents) bool {
		return !slices.ContainsFunc(all, func(o v1beta1.PrefixContents) bool {
			return o.Prefix != p.Prefix && strings.HasPrefix(o.Prefix, p.Prefix)
		})
	})
}
