package hooks

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// What tools that wait are told: kubectl wait, helm --wait, Flux and Argo CD. They know three words for an object
// (kstatus, of sigs.k8s.io/cli-utils): it is as its spec asks for, it is on its way there, or it will not come there
// by itself. So exactly one of the conditions Ready, Reconciling and Stalled is True.

// Outlook is what to expect of a decision.
type Outlook string

const (
	// Works says that Quorate goes on by itself, or waits for what Kubernetes, etcd or another controller will do.
	// Condition Reconciling.
	Works Outlook = "Works"
	// Waits says that nothing goes on before a person does something. Condition Stalled.
	Waits Outlook = "Waits"
	// Rests says that what runs is what the spec asks for, at this hour. Condition Ready.
	Rests Outlook = "Rests"
	// Aside says that what is done, or not done, has nothing to do with that. The rules that come after it tell.
	Aside Outlook = "Aside"
)

// outlooks are those that each rule may have. Of several the first holds where its verdict names none. Verify holds
// every verdict against this table.
var outlooks = map[string][]Outlook{
	// held back is what the rules after it would do: if they would do something, it waits for a person
	"Suspended":     {Aside},
	"Unsupported":   {Waits},
	"ApplyStrategy": {Works, Waits}, // Works: by dynamic-apply it ends with the next call

	"Empty":  {Rests},               // replicas 0 asks for nothing
	"Record": {Works, Waits},        // Works: a snapshot to begin with may still be on its way
	"Pause":  {Works, Rests, Waits}, // Waits: a pod is the last that keeps a claim from being deleted
	// Waits: a certificate that somebody keeps is there and can't be used; one that is not there may be on its way
	"WaitForCertificates": {Works, Waits},
	"SwitchEpoch":         {Works, Waits}, // Waits: the data can't be restored
	"Provision":           {Works, Waits}, // Waits: too few nodes are named

	"WrongCluster": {Waits},
	"Join":         {Works, Waits}, // Waits: the existing etcd does not suit
	"Recover":      {Works, Waits}, // Waits: what the policy asks for can't be done
	"Restore":      {Works},
	"QuorumLost":   {Waits, Works}, // Works: the next epoch is being made ready
	"Reschedule":   {Works},
	"Start":        {Works, Waits}, // Waits: not started in time, or can't be
	"Blind":        {Works, Waits}, // Works: pods and nodes come back. Waits: too many members must be restarted

	"Elect":           {Works},
	"ReserveName":     {Works},
	"Corrupt":         {Works, Waits}, // Waits: whose data is right is not proven
	"LearnerLost":     {Works},
	"LearnerSurplus":  {Works},
	"Promote":         {Works},
	"CancelDowngrade": {Works},
	"SetVersion":      {Works},
	"LearnerYields":   {Works},
	"Fence":           {Works},
	"LearnerLate":     {Works},
	"RecreatePod":     {Works},
	"Learner":         {Works, Waits}, // Waits: it is a stranger's, or answers as somebody else
	"WaitForRemoved":  {Works},
	"Replace":         {Works, Waits}, // Waits: those who would have to serve first wait for a person
	"Shrink":          {Works, Waits}, // Waits: only strangers are left to remove
	"ReplaceDead":     {Works, Waits},
	// Waits: there is no node, a downgrade is open, or a person decides about a member that is silent
	"Grow":          {Works, Waits},
	"RetireForeign": {Works, Waits},
	// Waits: something of the spec is not done before the foreign members are gone
	"ForeignMembers": {Rests, Works, Waits},

	"Authorize": {Works},
	// Waits: a person decides about a member, has fenced it, or must take a change back that does not work
	"WaitForMembers": {Works, Waits},
	"RollingUpdate":  {Works, Waits}, // Waits: an image holds another version than its tag says
	"UpdatePeerURLs": {Works},
	"NoSpace":        {Works},
	"Defragment":     {Aside},        // upkeep
	"Upgrade":        {Works, Waits}, // Waits: the way is refused
	"Resize":         {Works},
	"OutOfSpace":     {Waits},
	"VolumePending":  {Waits},
	"PrepareRestore": {Works, Waits}, // Waits: the data can't be restored
	"WaitForWindow":  {Rests, Waits}, // Waits: no window ever opens
	"Converged":      {Rests},
}

// prospect is what people and tools are told of a decision: an outlook, with a reason and words.
type prospect struct {
	Outlook
	reason, message string
}

// prospectOf is that of the rule at this place of the mode, and its verdict.
func (v *view) prospectOf(at int, decision *verdict) prospect {
	name := v.mode.rules[at].Name
	p := prospect{cmp.Or(decision.outlook, outlooks[name][0]), name, decision.message}
	switch {
	case p.Outlook == Aside && v.Cluster.Spec.Suspend:
		next, then := v.resumed().prospectFrom(0)
		if p.Outlook = then.Outlook; p.Outlook == Works {
			p.Outlook = Waits
			p.message += fmt.Sprintf("; rule %s waits for that", next)
		}
		return p
	case p.Outlook == Aside:
		_, then := v.prospectFrom(at + 1)
		p.Outlook = then.Outlook
		return p
	}
	if p.Outlook == Rests && v.Etcd != nil && !v.besideForeign() {
		p = cmp.Or(v.unauthorized(), cmp.Or(v.unreachable(), p))
	}
	return v.withUnmade(p)
}

// unreachable says that clients have no Service; empty when they have. An object of the same name that is not ours
// stays as it is.
func (v *view) unreachable() prospect {
	name := objects.ClientService(v.Cluster.Name)
	if v.Children.Services[name] != nil {
		return prospect{}
	}
	return prospect{Works, "ServiceNotFound", fmt.Sprintf("clients have no Service: %s is not there, or belongs to "+
		"something else; if it does, delete it or rename it", name)}
}

// resumed is the cluster as if spec.suspend were false.
func (v *view) resumed() *view {
	w, c := *v, *v.Cluster
	c.Spec.Suspend = false
	w.Cluster = &c
	w.mode = modeOf(&w, modes)
	return &w
}

// prospectFrom is that of the rule that would decide if those before this place did not, and its name. Users and roles
// that are only looked at are no change.
func (v *view) prospectFrom(at int) (string, prospect) {
	for {
		next, decision := v.mode.rules[at:].First(v)
		at += next
		if _, looks := decision.step.(Authorize); !looks || v.unauthorized() != (prospect{}) {
			return v.mode.rules[at].Name, v.prospectOf(at, decision)
		}
		at++
	}
}

// unauthorized says that etcd's users and roles are not those of the spec; empty when they are.
func (v *view) unauthorized() prospect {
	if v.Cluster.Spec.Auth == nil {
		return prospect{}
	}
	now := authStatus(v)
	reason, message, _ := authorization(v, now)
	switch reason {
	case "FieldWrong":
		return prospect{Waits, reason, message}
	case "Applying", "NotApplied", "SecretNotFound":
		return prospect{Works, reason, message}
	}
	return prospect{}
}

// ---- what only a person can mend

// byPerson reports whether one of these members that do not serve comes back only when a person does something.
func (v *view) byPerson(silent []*member) Outlook {
	if slices.ContainsFunc(silent, func(m *member) bool {
		return m.displayName() == "" || v.mismatched(m) || v.fenced(m.name) || v.overdue(m) && v.whyNotReplaced(m) != ""
	}) {
		return Waits
	}
	return Works
}

// uncertified is whether certificates come by themselves: those that are not there may be on their way, those that
// somebody keeps and that can't be used stay so.
func (v *view) uncertified() Outlook {
	if v.withoutCertManager() != "" {
		return Waits
	}
	if objects.TLSMode(v.Cluster) == v1alpha1.TLSSecrets && slices.ContainsFunc(v.leaves, func(l leaf) bool {
		return (l.server || l.what == "operator") && v.secret(l.secret) != nil && v.flaw(l) != ""
	}) {
		return Waits
	}
	return Works
}

// outlookWhileBlind is whether those who need not be restarted could be a quorum.
func (v *view) outlookWhileBlind() Outlook {
	known := v.knownVoters()
	if able := filter(known, func(name string) bool { return !v.distrustsPeers(v.Health[name]) }); len(able) < quorum(len(known)) {
		return Waits
	}
	return Works
}

// filling is whether members that are not filled yet come to their data by themselves: what can't be reached is tried
// again, and may be there then; what can't be read, or does not fit, stays so.
func (v *view) filling() Outlook {
	if v.differing() != "" {
		return Waits
	}
	for _, name := range v.epoch.initialNames() {
		report := seedFailure(v.Children.Pods[name])
		if report == nil || seeded(v.Children.Pods[name]) {
			continue
		}
		switch report.Reason {
		case "WrongKey", "Damaged", "NoSpace", "OtherVersion", "NotFound", "Denied":
			return Waits
		}
	}
	return Works
}

// nextComes is whether the next epoch is made ready by itself.
func (v *view) nextComes() Outlook {
	switch {
	case v.next == nil:
		return Waits
	case v.choosing():
		return cmp.Or(v.chooseSurvivor().outlook, Works)
	}
	return v.next.filling()
}

// starts is whether the initial members may still come to a quorum by themselves.
func (v *view) starts() Outlook {
	if len(v.epoch.startsOn) > 0 && cmp.Or(v.unfilled(), v.differing()) != "" {
		return v.filling()
	}
	for _, name := range v.epoch.initialNames() {
		if m := (&member{name: name, pod: v.Children.Pods[name]}); m.pod != nil && len(failures(m.pod)) == 0 &&
			unpulled(m) == "" && crashesBefore(m) == "" && !hasStarted(m.pod) {
			return Works // a node, an image or a volume is on its way
		}
	}
	return Waits
}

// arrives is whether the snapshot that a source names may still be taken.
func (v *view) arrives(s *v1alpha1.SnapshotSource) Outlook {
	if s == nil || s.Name == "" {
		return Works
	}
	if snapshot := v.Related.Snapshots[s.Name]; snapshot != nil {
		switch snapshot.Status.Phase {
		case v1alpha1.SnapshotSucceeded, v1alpha1.SnapshotStored, v1alpha1.SnapshotFailed, v1alpha1.SnapshotSkipped,
			v1alpha1.SnapshotDeleting:
			return Waits
		case v1alpha1.SnapshotPending, v1alpha1.SnapshotRunning:
		}
	}
	return Works
}

// followed is whether everything of the spec is done although there are members that are not ours.
func (v *view) followed() Outlook {
	differs := func(m *member) bool { return m.name != "" && v.updateOf(m) != nil }
	if slices.ContainsFunc(v.members, differs) || len(v.hops()) > 0 || v.unauthorized() != (prospect{}) ||
		v.restorePending() {
		return Waits
	}
	switch {
	case len(v.Etcd.Alarms) > 0 || volumePending(v) != nil:
		return Waits
	case resize(v) != nil:
		return Works
	}
	return Rests
}

// restorePending reports whether the spec asks for data that the cluster does not have.
func (v *view) restorePending() bool {
	_, _, is, shown := restored(v)
	return shown && !is
}
