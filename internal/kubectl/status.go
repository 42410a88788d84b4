package kubectl

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/rules"
)

func (a *invocation) statusFlags(flags *flag.FlagSet) {
	a.format = "text"
	oneOf("a format", "text", "wide", "json", "yaml").flag(flags, &a.format, "o", "`format`: text, wide (a table with "+
		"more columns), json or yaml")
	flags.BoolVar(&a.everywhere, "all-namespaces", false, "all EtcdClusters there are")
	flags.BoolVar(&a.everywhere, "A", false, "short for --all-namespaces")
}

func (a *invocation) validStatus() error {
	if a.everywhere && a.cluster != "" {
		return misused("-A is about all EtcdClusters: leave out %q", a.cluster)
	}
	return nil
}

// status shows one cluster as a screen, and several in a table. Only one is asked itself.
func (a *invocation) status(ctx context.Context) error {
	all, err := a.findAll(ctx)
	if err != nil {
		return err
	}
	one := len(all) == 1 && !a.everywhere
	switch {
	case a.format == "json" || a.format == "yaml":
		return a.printDocument(ctx, all, one)
	case len(all) == 0:
		return a.none(ctx)
	case one && a.format == "text":
		c := all[0].EtcdCluster
		printStatus(a.Out, c, a.look(ctx, c), a.syncFailure(ctx, c), a.now())
	default:
		a.printTable(all)
	}
	return nil
}

// printStatus is one screen about a cluster.
func printStatus(w io.Writer, c *v1beta1.EtcdCluster, l *live, r *syncFailure, now time.Time) {
	s := screen{page{w}, c, l, r, now}
	s.head()
	s.members()
	s.doing()
	s.alarms()
	s.volumes()
	s.attention()
	s.certificates()
	s.defragmentation()
	s.history()
}

type screen struct {
	page
	c       *v1beta1.EtcdCluster
	l       *live
	failure *syncFailure
	now     time.Time
}

func replicas(c *v1beta1.EtcdCluster) int32 {
	if c.Spec.Replicas == nil {
		return 3
	}
	return *c.Spec.Replicas
}

func (s screen) head() {
	ready, leader := votersReady(rowsOf(s.c, s.l, s.now))
	fmt.Fprintf(s.w, "%s in namespace %s: %d/%d ready, etcd %s, %s leads, created %s ago\n", s.c.Name, s.c.Namespace,
		ready, replicas(s.c), cmp.Or(s.c.Status.Version, s.c.Spec.Version), cmp.Or(leader, "no member"),
		lasting(s.now.Sub(s.c.CreationTimestamp.Time)))
}

// votersReady is how many voters serve, and which member leads; empty for none.
func votersReady(rows []row) (ready int, leader string) {
	for _, r := range rows {
		if r.ready && r.role == string(v1beta1.Voter) {
			ready++
		}
		if r.leads {
			leader = r.name
		}
	}
	return ready, leader
}

func (s screen) members() {
	rows := rowsOf(s.c, s.l, s.now)
	s.section("MEMBERS")
	if len(rows) == 0 {
		s.say("none that Quorate knows of yet")
	} else {
		lines := [][]string{{"NAME", "ROLE", "LEADS", "READY", "FOR", "VERSION", "DB", "IN USE", "LAG", "ALARMS"}}
		for _, r := range rows {
			lines = append(lines, r.cells(s.now))
		}
		s.table(lines)
		for _, r := range rows {
			if r.message != "" {
				s.point(r.name + ": " + r.message)
			}
		}
	}
	s.distance()
}

// distance says how far the table can be trusted.
func (s screen) distance() {
	switch {
	case s.l.trouble != "":
		s.say("etcd can't be reached from here, so this is what the status knows, without LAG: " + s.l.trouble)
	case !s.l.answered():
		s.say("No member answers; this is what the status knows, without LAG.")
	case s.l.etcd == nil:
		s.say("No quorum answers: the list is that of the status, and only the members with a LAG have answered now.")
	}
}

// doing says what Quorate does and why, and what is in its way.
func (s screen) doing() {
	s.section("NOW")
	ready := meta.FindStatusCondition(s.c.Status.Conditions, v1beta1.Ready)
	if ready != nil {
		s.say(s.c.Status.Rule + ": " + ready.Message)
	} else {
		s.say("Quorate has not checked this cluster yet. See that Quorate and Metacontroller run: kubectl get pods " +
			"-n quorate-system, -n metacontroller")
	}
	if obstacles := s.obstacles(); len(obstacles) > 0 {
		s.section("IN THE WAY")
		for _, o := range obstacles {
			s.point(o)
		}
	}
}

func (s screen) obstacles() []string {
	var list []string
	if s.c.DeletionTimestamp != nil {
		list = append(list, "its deletion was asked for "+moment(s.c.DeletionTimestamp.Time, s.now))
		if s.c.Spec.DeletionProtection {
			list = append(list, "spec.deletionProtection is true: the deletion waits until it is false")
		}
	}
	if s.c.Status.Rule != "" && s.c.Status.ObservedGeneration < s.c.Generation {
		list = append(list, fmt.Sprintf("this status is of generation %d and the spec of %d: Quorate has not answered "+
			"since the spec was changed; "+
			"`kubectl quorate explain` asks the hooks without it", s.c.Status.ObservedGeneration, s.c.Generation))
	}
	for _, r := range rules.All() {
		if r.Name == s.c.Status.Rule && r.Holds {
			list = append(list, r.Why)
		}
	}
	list = append(list, s.refusals()...)
	if r := s.c.Status.Internal.Replacement; r != nil && r.NextLearnerTime.After(s.now) {
		list = append(list, fmt.Sprintf("%s did not catch up; the next one is tried %s",
			count(int(r.Failures), "learner"),
			moment(r.NextLearnerTime.Time, s.now)))
	}
	return list
}

func (s screen) alarms() {
	list := s.unlisted()
	for _, r := range rowsOf(s.c, s.l, s.now) {
		for _, alarm := range r.alarms {
			list = append(list, fmt.Sprintf("%s has raised %s: see %s", r.name, alarm, pageOf(alarm)))
		}
	}
	if len(list) == 0 {
		return
	}
	s.section("ALARMS")
	for _, alarm := range list {
		s.point(alarm)
	}
}

// pageOf is what to do about an alarm.
func pageOf(alarm string) string {
	return v1beta1.Docs + "troubleshooting.md#" + strings.ToLower(alarm)
}

// unlisted are alarms of members that are not in the member list: etcd keeps them until they are disarmed.
func (s screen) unlisted() (list []string) {
	if s.l.etcd == nil {
		return nil
	}
	for _, alarm := range s.l.etcd.Alarms {
		if !slices.ContainsFunc(s.l.etcd.Members, func(m observation.Member) bool { return m.ID == alarm.MemberID }) {
			list = append(list,
				fmt.Sprintf("there is %s of member %x, which is not listed: see %s", alarm.Kind, alarm.MemberID,
					pageOf(alarm.Kind)))
		}
	}
	return list
}

func (s screen) volumes() {
	var list []string
	for _, m := range s.c.Status.Members {
		if v := m.Volume; v != nil {
			words := m.Name
			if v.Wanted != nil && v.Capacity != nil {
				words += fmt.Sprintf(" has %s and should have %s", v.Capacity, v.Wanted)
			}
			if v.Message != "" {
				words += ": " + v.Message
			}
			list = append(list, words)
		}
	}
	if len(list) == 0 {
		return
	}
	s.section("VOLUMES TO CHANGE")
	for _, v := range list {
		s.point(v)
	}
}

// calm is the status of each condition that needs no attention.
var calm = []struct {
	kind   string
	status metav1.ConditionStatus
}{
	{v1beta1.Available, metav1.ConditionTrue},
	{v1beta1.Stalled, metav1.ConditionFalse},
	{v1beta1.Degraded, metav1.ConditionFalse},
	{v1beta1.Suspended, metav1.ConditionFalse},
	{v1beta1.Secured, metav1.ConditionTrue},
	{v1beta1.Authorized, metav1.ConditionTrue},
	{v1beta1.Advised, metav1.ConditionFalse},
}

func (s screen) attention() {
	list := s.needsAttention()
	if len(list) == 0 {
		return
	}
	s.section("ATTENTION")
	for _, words := range list {
		s.point(words)
	}
}

func (s screen) needsAttention() (list []string) {
	said := ""
	if ready := meta.FindStatusCondition(s.c.Status.Conditions, v1beta1.Ready); ready != nil {
		said = ready.Message
	}
	for _, want := range calm {
		c := meta.FindStatusCondition(s.c.Status.Conditions, want.kind)
		if c == nil || c.Status == want.status {
			continue
		}
		off := s.c.Spec.Auth == nil || !s.c.Spec.Auth.Enabled
		if c.Type == v1beta1.Authorized && off {
			continue
		}
		words := fmt.Sprintf("%s is %s (%s)", c.Type, c.Status, c.Reason)
		if c.Message != said { // once is enough
			words += ": " + c.Message
		}
		list = append(list, words)
	}
	return list
}

func (s screen) certificates() {
	s.section("CERTIFICATES")
	if len(s.c.Status.TLS.Certificates) == 0 {
		if s.c.Spec.TLS.Mode == v1beta1.TLSDisabled {
			s.say("none: spec.tls.mode is Disabled")
		} else {
			s.say("none yet")
		}
		return
	}
	lines := [][]string{{"FOR", "SECRET", "EXPIRES"}}
	for _, c := range s.c.Status.TLS.Certificates {
		lines = append(lines, []string{c.Name, c.SecretRef.Name, expiry(c.NotAfter.Time, s.now)})
	}
	s.table(lines)
}

func expiry(t, now time.Time) string {
	days := int(t.Sub(now).Hours() / 24)
	at := t.UTC().Format(time.DateOnly)
	switch {
	case t.Before(now):
		return fmt.Sprintf("HAS EXPIRED (%s)", at)
	case days == 0:
		return fmt.Sprintf("in %s (%s)", lasting(t.Sub(now)), t.UTC().Format("2006-01-02 15:04 UTC"))
	}
	return fmt.Sprintf("in %s (%s)", count(days, "day"), at)
}

func (s screen) defragmentation() {
	s.section("DEFRAGMENTATION")
	d := s.c.Status.Defragmentation
	if d == nil {
		d = &v1beta1.DefragmentationStatus{}
	}
	s.say("last: " + lastRun(d, s.now))
	next := "none is scheduled; `kubectl quorate defrag` asks for one"
	if !d.NextScheduleTime.IsZero() {
		next = moment(d.NextScheduleTime.Time, s.now)
	}
	if m := s.c.Spec.Maintenance.Defragmentation; d.NextScheduleTime.IsZero() && m != nil && m.Schedule != "" {
		next = fmt.Sprintf("by the schedule %q, in UTC", m.Schedule)
	}
	s.say("next: " + next)
}

// lastRun is the run that is under way, or the last one.
func lastRun(d *v1beta1.DefragmentationStatus, now time.Time) string {
	done := count(len(d.Done), "member") + " done"
	if len(d.Done) > 0 {
		done += " (" + strings.Join(d.Done, ", ") + ")"
	}
	if d.Reclaimed != nil {
		done += ", " + size(d.Reclaimed.Value()) + " given back"
	}
	switch {
	case d.StartTime.IsZero():
		return "none that Quorate remembers"
	case d.CompletionTime.IsZero():
		return fmt.Sprintf("under way, begun %s: %s", moment(d.StartTime.Time, now), done)
	}
	return fmt.Sprintf("%s: %s", moment(d.CompletionTime.Time, now), done)
}

// entries of the history that are shown.
const entries = 5

func (s screen) history() {
	h := s.c.Status.History
	if len(h) == 0 {
		return
	}
	s.section("HISTORY")
	for _, e := range h[max(0, len(h)-entries):] {
		words := e.Rule
		if e.Step != "" {
			words += " (" + e.Step + ")"
		}
		if e.Message != "" {
			words += ": " + e.Message
		}
		lines := wrapped(words, width-23)
		fmt.Fprintf(s.w, "  %s  %s\n", e.Time.UTC().Format(time.DateTime), lines[0])
		for _, line := range lines[1:] {
			fmt.Fprintf(s.w, "%23s%s\n", "", line)
		}
	}
}
