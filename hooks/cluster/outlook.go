package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/auth"
	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/health"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/rollout"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/versions"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// prospectOf is that of the rule at this place of the mode, and its verdict.
func prospectOf(v *state.View, in *mode, at int, verdict *decision.Verdict) decision.Prospect {
	name := in.rules[at].Name
	p := decision.Prospect{Outlook: cmp.Or(verdict.Outlook, in.rules[at].Outlooks[0]), Reason: name, Message: verdict.Message}
	switch {
	case p.Outlook == rule.Aside && v.Suspended():
		w := resumed(v)
		next, then := prospectFrom(w, modeOf(w), 0)
		if p.Outlook = then.Outlook; p.Outlook == rule.Works {
			p.Outlook = rule.Waits
			p.Message += fmt.Sprintf("; rule %s waits for it", next)
		}
		return p
	case p.Outlook == rule.Aside:
		_, then := prospectFrom(v, in, at+1)
		p.Outlook = then.Outlook
		return p
	}
	if p.Outlook == rule.Rests && v.Etcd != nil && !v.BesideForeign() {
		p = cmp.Or(unauthorized(v), unreachable(v), unready(v), p)
	}
	return health.WithUnmade(v, p)
}

// unreachable says that clients have no Service, or none to one of the members; empty when they have. An object of the
// same name that is not ours stays as it is.
func unreachable(v *state.View) decision.Prospect {
	names := []string{objects.ClientService(v.Cluster.Name)}
	for _, member := range v.Outside() {
		names = append(names, objects.MemberService(member))
	}
	for _, name := range names {
		if v.Children.Services[name] == nil {
			return decision.Prospect{Outlook: rule.Works, Reason: "ServiceNotFound",
				Message: fmt.Sprintf("clients have no Service: %s does not exist, or has another owner; if it has, "+
					"delete it or rename it", name)}
		}
	}
	return decision.Prospect{}
}

// probed is for how long the kubelets of voters that serve may say that no pod is ready: they ask every few seconds.
const probed = time.Minute

// unready says that the Service leads clients to no pod, because no kubelet finds its own ready; empty when it leads to
// one. A pod is made without a word of that, and a mesh or a policy may keep the kubelets from asking.
func unready(v *state.View) decision.Prospect {
	var since time.Time
	for _, m := range v.ReplicaVoters() {
		if m.Pod == nil || objects.Ready(m.Pod) {
			return decision.Prospect{}
		}
		told := wording.Find(m.Pod.Status.Conditions, func(c *corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		if told == nil {
			return decision.Prospect{}
		}
		since = state.Later(since, told.LastTransitionTime.Time)
	}
	if since.IsZero() {
		return decision.Prospect{}
	}
	p := decision.Prospect{Outlook: rule.Works, Reason: "NoPodReady",
		Message: "the voters serve, and clients are led to none: the kubelets say of no pod that it is ready"}
	if v.Now.After(since.Add(probed)) {
		p.Outlook = rule.Waits
		p.Message += fmt.Sprintf("; `kubectl describe pod -n %s -l %s=%s` shows why", v.Cluster.Namespace,
			objects.LabelCluster, v.Cluster.Name)
	}
	return p
}

// resumed is the cluster as if spec.suspend were false.
func resumed(v *state.View) *state.View {
	w, c := *v, *v.Cluster
	c.Spec.Suspend = false
	w.Cluster = &c
	return &w
}

// prospectFrom is that of the rule that would decide if those before this place did not, and its name. Users and roles
// that are only looked at are no change.
func prospectFrom(v *state.View, in *mode, at int) (string, decision.Prospect) {
	for {
		next, verdict := in.rules[at:].First(v)
		at += next
		if _, looks := verdict.Step.(decision.Authorize); !looks || unauthorized(v) != (decision.Prospect{}) {
			return in.rules[at].Name, prospectOf(v, in, at, verdict)
		}
		at++
	}
}

// unauthorized says that etcd's users and roles are not those of the spec; empty when they are.
func unauthorized(v *state.View) decision.Prospect {
	if v.Cluster.Spec.Auth == nil {
		return decision.Prospect{}
	}
	now, applied := auth.AuthStatus(v)
	reason, message, _ := auth.Authorization(v, now, applied)
	switch reason {
	case "FieldWrong":
		return decision.Prospect{Outlook: rule.Waits, Reason: reason, Message: message}
	case "Applying", "NotApplied", "SecretNotFound":
		return decision.Prospect{Outlook: rule.Works, Reason: reason, Message: message}
	}
	return decision.Prospect{}
}

// byPerson reports whether one of these members that do not serve comes back only when a person does something.
func byPerson(v *state.View, silent []*state.Member) rule.Outlook {
	if slices.ContainsFunc(silent, func(m *state.Member) bool {
		full := pods.DiskFull(v, m) && !volumes.MoreRoom(v, m.PodName)
		return m.DisplayName() == "" || pods.Mismatched(v, m) || v.Fenced(m.PodName) || full ||
			health.Overdue(v, m) && health.WhyNotReplaced(v, m) != ""
	}) {
		return rule.Waits
	}
	return rule.Works
}

// uncertified is whether certificates come by themselves: those that are not there may be on their way, those that
// others keep and that can't be used stay so.
func uncertified(v *state.View) rule.Outlook {
	if certificates.WithoutCertManager(v) != "" {
		return rule.Waits
	}
	if objects.TLSMode(v.Cluster) == v1alpha1.TLSSecrets && slices.ContainsFunc(v.Leaves, func(l spec.Leaf) bool {
		return (l.Server || l.What == "operator") && certificates.Secret(v, l.Secret) != nil &&
			certificates.Flaw(v, l) != ""
	}) {
		return rule.Waits
	}
	return rule.Works
}

// outlookWhileBlind is whether those who may come back by themselves could be a quorum.
func outlookWhileBlind(v *state.View) rule.Outlook {
	switch {
	case v.Next != nil:
		return nextComes(v)
	case quorumWithout(v, distrusting(v), leftBehind(v), dataGone(v)):
		return rule.Works
	}
	return rule.Waits
}

// quorumWithout reports whether the voters, as last known, are a quorum without all of these.
func quorumWithout(v *state.View, lists ...[]string) bool {
	known := state.KnownVoters(v)
	able := wording.Filter(known, func(name string) bool { return !slices.Contains(slices.Concat(lists...), name) })
	return len(able) >= state.Quorum(len(known))
}

// filling is whether members that are not filled yet come to their data by themselves: what can't be reached is tried
// again, and may be there then; what can't be read, or does not fit, stays so.
func filling(v *state.View) rule.Outlook {
	if epochs.Differing(v) != "" || epochs.Unplaced(v) {
		return rule.Waits
	}
	for _, name := range v.Epoch.InitialNames() {
		report := epochs.SeedFailure(v.Children.Pods[name])
		if report == nil || epochs.Seeded(v.Children.Pods[name]) {
			continue
		}
		switch report.Reason {
		case "WrongKey", "Damaged", "NoSpace", "OtherVersion", "NotFound", "Denied":
			return rule.Waits
		}
	}
	return rule.Works
}

// nextComes is whether the next epoch is made ready by itself.
func nextComes(v *state.View) rule.Outlook {
	switch {
	case v.Next == nil:
		return rule.Waits
	case v.Choosing():
		return cmp.Or(epochs.BestSurvivor(v).Outlook, rule.Works)
	case epochs.Unstaged(v.Next) == "":
		return stops(v)
	}
	return filling(v.Next)
}

// starts is whether the initial members may still come to a quorum by themselves.
func starts(v *state.View) rule.Outlook {
	if len(v.Epoch.StartsOn) > 0 && cmp.Or(epochs.Unfilled(v), epochs.Differing(v)) != "" {
		return filling(v)
	}
	for _, name := range v.Epoch.InitialNames() {
		if m := (&state.Member{PodName: name, Pod: v.Children.Pods[name]}); m.Pod != nil &&
			len(state.Failures(m.Pod)) == 0 &&
			state.Unpulled(m) == "" && state.CrashesBefore(m) == "" && !state.HasStarted(m.Pod) {
			return rule.Works // a node, an image or a volume is on its way
		}
	}
	return rule.Waits
}

// arrives is whether the snapshot that a source names may still be taken.
func arrives(v *state.View, s *v1alpha1.SnapshotSource) rule.Outlook {
	if s == nil || s.SnapshotRef.Name == "" {
		return rule.Works
	}
	if snapshot := v.Related.Snapshots[s.SnapshotRef.Name]; snapshot != nil {
		switch snapshot.Status.Phase {
		case v1alpha1.SnapshotSucceeded, v1alpha1.SnapshotStored, v1alpha1.SnapshotFailed, v1alpha1.SnapshotSkipped,
			v1alpha1.SnapshotDeleting:
			return rule.Waits
		case v1alpha1.SnapshotPending, v1alpha1.SnapshotRunning:
		}
	}
	return rule.Works
}

// followed is whether everything of the spec is done although there are members that are not ours.
func followed(v *state.View) rule.Outlook {
	differs := func(m *state.Member) bool { return m.PodName != "" && rollout.UpdateOf(v, m) != nil }
	if slices.ContainsFunc(v.Members, differs) || len(versions.Hops(v)) > 0 ||
		unauthorized(v) != (decision.Prospect{}) || restorePending(v) {
		return rule.Waits
	}
	switch {
	case len(v.Etcd.Alarms) > 0 || volumePending(v) != nil:
		return rule.Waits
	case resize(v) != nil:
		return rule.Works
	}
	return rule.Rests
}

// restorePending reports whether the spec asks for data that the cluster does not have.
func restorePending(v *state.View) bool {
	_, _, is, shown := health.Restored(v)
	return shown && !is
}

// VerifyOutlook reports whether tools are told one thing, and one that the rule may have.
func VerifyOutlook(d decision.Decision) error {
	var is []string
	for _, c := range d.Status.Conditions {
		if c.Status == metav1.ConditionTrue &&
			slices.Contains([]string{v1alpha1.Ready, v1alpha1.Reconciling, v1alpha1.Stalled}, c.Type) {
			is = append(is, c.Type)
		}
	}
	if len(is) != 1 {
		return fmt.Errorf("outlook: exactly one of Ready, Reconciling and Stalled must be True, and these are: %v", is)
	}
	for _, r := range Rules() {
		if r.Name == d.Reason.Rule && slices.Contains(r.Outlooks, d.Outlook) {
			return nil
		}
	}
	return fmt.Errorf("outlook: rule %s has not the outlook %s", d.Reason.Rule, d.Outlook)
}
