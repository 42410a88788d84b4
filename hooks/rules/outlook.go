package rules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// WaitForWindow is the rule that has changes wait for a maintenance window.
const WaitForWindow = "WaitForWindow"

// prospectOf is that of the rule at this place of the mode, and its plan.
func prospectOf(f *facts.Facts, in *Mode, at int, plan *decision.Plan) decision.Prospect {
	name := in.Rules[at].Name
	p := decision.Prospect{Outlook: cmp.Or(plan.Outlook, in.Rules[at].Outlooks[0]), Reason: name, Message: plan.Message}
	switch {
	case p.Outlook == decision.Aside && f.Suspended():
		w := resumed(f)
		next, then := prospectFrom(w, modeOf(w), 0)
		if p.Outlook = then.Outlook; p.Outlook == decision.Works {
			p.Outlook = decision.Waits
			p.Message += fmt.Sprintf("; rule %s waits for it", next)
		}
		return p
	case p.Outlook == decision.Aside:
		_, then := prospectFrom(f, in, at+1)
		p.Outlook = then.Outlook
		return p
	}
	if p.Outlook == decision.Rests && f.Etcd != nil && !f.BesideExternal() {
		p = cmp.Or(unauthorized(f), unreachable(f), unready(f), p)
	}
	return p
}

// unreachable says that clients have no Service, or none to one of the members; empty when they have. An object of the
// same name that is not ours stays as it is.
func unreachable(f *facts.Facts) decision.Prospect {
	names := []string{objects.ClientService(f.Cluster.Name)}
	for _, member := range f.Outside() {
		names = append(names, objects.MemberService(member))
	}
	for _, name := range names {
		if f.Children.Services[name] == nil {
			return decision.Prospect{
				Outlook: decision.Works,
				Reason:  "ServiceNotFound",
				Message: fmt.Sprintf("clients have no Service: %s does not exist, or has another owner; if it has, "+
					"delete it or rename it", name),
			}
		}
	}
	return decision.Prospect{}
}

// probed is for how long the kubelets of voters that serve may say that no pod is ready: they ask every few seconds.
const probed = time.Minute

// unready says that the Service leads clients to no pod, because no kubelet finds its own ready; empty when it leads to
// one. A pod is made without a word of that, and a mesh or a policy may keep the kubelets from asking.
func unready(f *facts.Facts) decision.Prospect {
	var since time.Time
	for _, m := range f.ReplicaVoters() {
		if m.Pod == nil || objects.Ready(m.Pod) {
			return decision.Prospect{}
		}
		told := objects.Find(m.Pod.Status.Conditions, func(c *corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		if told == nil {
			return decision.Prospect{}
		}
		since = facts.Later(since, told.LastTransitionTime.Time)
	}
	if since.IsZero() {
		return decision.Prospect{}
	}
	p := decision.Prospect{
		Outlook: decision.Works,
		Reason:  v1beta1.ReasonNoPodReady,
		Message: "the voters serve, but no pod is ready, so clients reach none through the Service",
	}
	if f.Now.After(since.Add(probed)) {
		p.Outlook = decision.Waits
		p.Message += fmt.Sprintf("; `kubectl describe pod -n %s -l %s=%s` shows why", f.Cluster.Namespace,
			objects.LabelCluster, f.Cluster.Name)
	}
	return p
}

// resumed is the cluster as if spec.suspend were false.
func resumed(f *facts.Facts) *facts.Facts {
	w := *f
	c := *f.Cluster
	c.Spec.Suspend = false
	w.Cluster = &c
	return &w
}

// prospectFrom is that of the rule that would decide if those before this place did not, and its name. Users and roles
// that are only looked at are no change.
func prospectFrom(f *facts.Facts, in *Mode, at int) (string, decision.Prospect) {
	for {
		next, plan := in.Rules[at:].First(f)
		at += next
		if _, looks := plan.Step.(decision.Authorize); !looks || unauthorized(f) != (decision.Prospect{}) {
			return in.Rules[at].Name, prospectOf(f, in, at, plan)
		}
		at++
	}
}

// unauthorized says that etcd's users and roles are not those of the spec; empty when they are.
func unauthorized(f *facts.Facts) decision.Prospect {
	if f.Cluster.Spec.Auth == nil {
		return decision.Prospect{}
	}
	now, applied := f.AuthStatus()
	reason, message, _ := f.Authorization(now, applied)
	switch reason {
	case "FieldWrong":
		return decision.Prospect{Outlook: decision.Waits, Reason: reason, Message: message}
	case "Applying", "NotApplied", "SecretNotFound":
		return decision.Prospect{Outlook: decision.Works, Reason: reason, Message: message}
	}
	return decision.Prospect{}
}

// byPerson reports whether one of these members that do not serve comes back only when a person does something.
func byPerson(f *facts.Facts, unreachable []*facts.Member) decision.Outlook {
	lasts := func(m *facts.Member) bool {
		if m.DisplayName() == "" || f.Mismatched(m) || f.Fenced(m.PodName) {
			return true
		}
		full := f.DiskFull(m) && !f.MoreRoom(m.PodName)
		// without a quorum beside it that is seen to serve, it is neither restarted nor replaced
		distrusts := f.DistrustsQuorate(m.Health) && !m.Restarting() && !f.QuorumWithout(m)
		return full || distrusts || f.Overdue(m) && f.WhyNotReplaced(m) != ""
	}
	if slices.ContainsFunc(unreachable, lasts) {
		return decision.Waits
	}
	return decision.Works
}

// uncertified is whether certificates come by themselves: those that are not there may be on their way, those that
// others keep and that can't be used stay so.
func uncertified(f *facts.Facts) decision.Outlook {
	if f.Unsignable() {
		return decision.Waits
	}
	unusable := f.Related.Secrets[defaults.CRLSource(f.Cluster)] != nil && f.CRLFlaw() != ""
	if f.WithoutCertManager() != "" || f.CRLAwaited() != "" && unusable {
		return decision.Waits
	}
	if objects.TLSMode(f.Cluster) == v1beta1.TLSSecrets && slices.ContainsFunc(f.Leaves, func(l defaults.Leaf) bool {
		return (l.Server || l.What == "operator") && f.Secret(l.Secret) != nil &&
			f.Flaw(l) != ""
	}) {
		return decision.Waits
	}
	return decision.Works
}

// outlookWhileBlind is whether those who may come back by themselves could be a quorum.
func outlookWhileBlind(f *facts.Facts) decision.Outlook {
	switch {
	case f.Next != nil:
		return nextComes(f)
	case quorumWithout(f, distrusting(f), leftBehind(f), dataGone(f), crashing(f)):
		return decision.Works
	}
	return decision.Waits
}

// quorumWithout reports whether the voters, as last known, are a quorum without all of these.
func quorumWithout(f *facts.Facts, lists ...[]string) bool {
	known := f.KnownVoters()
	able := objects.Filter(known, func(name string) bool { return !slices.Contains(slices.Concat(lists...), name) })
	return len(able) >= facts.Quorum(len(known))
}

// filling is whether members that are not filled yet come to their data by themselves: what can't be reached is tried
// again, and may be there then; what can't be read, or does not fit, stays so.
func filling(f *facts.Facts) decision.Outlook {
	if f.Differing() != "" || f.Unplaced() {
		return decision.Waits
	}
	for _, name := range f.Epoch.InitialNames() {
		report := facts.SeedFailure(f.Children.Pods[name])
		if report == nil || facts.Seeded(f.Children.Pods[name]) {
			continue
		}
		switch report.Reason {
		case "WrongKey", "Damaged", "NoSpace", "OtherVersion", "NotFound", "Denied":
			return decision.Waits
		}
	}
	return decision.Works
}

// nextComes is whether the next epoch is made ready by itself.
func nextComes(f *facts.Facts) decision.Outlook {
	switch {
	case f.Next == nil:
		return decision.Waits
	case f.Choosing():
		return cmp.Or(f.BestSurvivor().Outlook, decision.Works)
	case f.Next.Unprepared() == "":
		return stops(f)
	}
	return filling(f.Next)
}

// starts is whether the initial members may still come to a quorum by themselves.
func starts(f *facts.Facts) decision.Outlook {
	if len(f.Epoch.StartsOn) > 0 && cmp.Or(f.Unfilled(), f.Differing()) != "" {
		return filling(f)
	}
	for _, name := range f.Epoch.InitialNames() {
		m := &facts.Member{PodName: name, Pod: f.Children.Pods[name]}
		if m.Pod == nil || facts.HasStarted(m.Pod) || len(facts.Failures(m.Pod)) > 0 {
			continue
		}
		if facts.Unpulled(m) == "" && facts.CrashesBefore(m) == "" {
			return decision.Works // a node, an image or a volume is on its way
		}
	}
	return decision.Waits
}

// arrives is whether the snapshot that a source names may still be taken.
func arrives(f *facts.Facts, s *v1beta1.SnapshotSource) decision.Outlook {
	if s == nil || s.SnapshotRef.Name == "" {
		return decision.Works
	}
	if snapshot := f.Related.Snapshots[s.SnapshotRef.Name]; snapshot != nil {
		switch snapshot.Status.Phase {
		case v1beta1.SnapshotSucceeded, v1beta1.SnapshotUnverified, v1beta1.SnapshotFailed, v1beta1.SnapshotSkipped,
			v1beta1.SnapshotDeleting:
			return decision.Waits
		case v1beta1.SnapshotPending, v1beta1.SnapshotRunning:
		}
	}
	return decision.Works
}

// followed is whether everything of the spec is done although there are members that are not ours.
func followed(f *facts.Facts) decision.Outlook {
	differs := func(m *facts.Member) bool { return m.PodName != "" && f.UpdateOf(m) != nil }
	if slices.ContainsFunc(f.Members, differs) || len(f.Hops()) > 0 ||
		unauthorized(f) != (decision.Prospect{}) || restorePending(f) {
		return decision.Waits
	}
	switch {
	case len(f.Etcd.Alarms) > 0 || volumePending(f) != nil:
		return decision.Waits
	case resize(f) != nil:
		return decision.Works
	}
	return decision.Rests
}

// restorePending reports whether the spec asks for data that the cluster does not have.
func restorePending(f *facts.Facts) bool {
	_, _, is, shown := f.Restored()
	return shown && !is
}

// VerifyOutlook reports whether tools are told one thing, and one that the rule may have.
func VerifyOutlook(d decision.Decision) error {
	var is []string
	for _, c := range d.Status.Conditions {
		if c.Status == metav1.ConditionTrue &&
			slices.Contains([]string{v1beta1.Ready, v1beta1.Reconciling, v1beta1.Stalled}, c.Type) {
			is = append(is, c.Type)
		}
	}
	if len(is) != 1 {
		return fmt.Errorf("outlook: exactly one of Ready, Reconciling and Stalled must be True, and these are: %v", is)
	}
	for _, r := range All() {
		if r.Name == d.Reason.Rule && slices.Contains(r.Outlooks, d.Outlook) {
			return nil
		}
	}
	return fmt.Errorf("outlook: rule %s has not the outlook %s", d.Reason.Rule, d.Outlook)
}
