package hooks

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// status is what people see. Nothing that safety needs is read back from it (S14); only the times of the last changes
// are.
func status(v *view, because rule.Reason, next prospect) v1alpha1.EtcdClusterStatus {
	old := &v.Cluster.Status
	s := v1alpha1.EtcdClusterStatus{
		ObservedGeneration: v.Cluster.Generation,
		ClusterID:          old.ClusterID,
		Epoch:              old.Epoch,
		Version:            old.Version,
		Selector:           objects.LabelCluster + "=" + v.Cluster.Name,
		Phase:              because.Rule,
		Members:            members(v),
	}
	if v.epoch != nil {
		if old.Epoch != int64(v.epoch.n) {
			s.ClusterID = "" // that of an epoch before
		}
		s.Epoch, s.Version, s.Origin, s.Restoring = int64(v.epoch.n), v.epoch.version, v.epoch.originStatus(),
			v.restoring()
		if v.epoch.hadQuorum() {
			s.ClusterID = hex(v.epoch.clusterID)
		}
	}
	if v.Etcd != nil {
		s.ClusterID, s.Leader = hex(v.Etcd.ClusterID), v.nameOf(v.Etcd.Leader)
	}
	for _, m := range s.Members {
		if m.Foreign {
			continue
		}
		s.Replicas++
		if m.Ready && m.Role == v1alpha1.Voter {
			s.ReadyReplicas++
		}
	}
	s.Ready = fmt.Sprintf("%d/%d", s.ReadyReplicas, v.replicas)
	s.TLS, s.Auth, s.Defragmentation = tlsStatus(v), authStatus(v), v.defragRun
	if r := v.replacements(v.failedVoter); r != (v1alpha1.ReplacementStatus{}) {
		s.Replacement = &r
	}
	s.Watched, s.Connection = v.watched(), v.connection()
	s.Running, s.Awaited = v.runningVersion(s.Members), v.awaited
	s.History = history(v, because, s.Auth)
	s.Conditions = conditions(v, because, next, s.Auth)
	return s
}

// members are etcd's list, or the last known one while blind.
func members(v *view) []v1alpha1.MemberStatus {
	var list []v1alpha1.MemberStatus
	if v.Etcd == nil {
		for _, m := range v.Cluster.Status.Members {
			list = append(list, v.memberStatus(v1alpha1.MemberStatus{Name: m.Name, ID: m.ID, Role: m.Role,
				Foreign: m.Foreign}, v.lastStatusHealth(m), false))
		}
		return list
	}
	for _, m := range v.members {
		s := v1alpha1.MemberStatus{Name: cmp.Or(m.displayName(), cmp.Or(m.Name, hex(m.ID))), Foreign: m.alias != "" ||
			v.wasForeign(m), ID: hex(m.ID), Role: v1alpha1.Voter, Leader: m.ID == v.Etcd.Leader}
		if m.Learner {
			s.Role = v1alpha1.Learner
		}
		list = append(list, v.memberStatus(s, m.statusHealth(v), m.serving()))
	}
	return list
}

func (v *view) memberStatus(s v1alpha1.MemberStatus, h Health, ready bool) v1alpha1.MemberStatus {
	_, asked := v.Health[s.Name]
	switch {
	case s.Foreign && h.MemberID == 0:
		s.Message = cmp.Or(h.Err, "it is not known at which URL it answers")
	case s.Foreign:
		s.Version, s.Alarms = h.Version, h.Alarms
		s.DBSize, s.DBSizeInUse = rounded(h.DBSize), rounded(h.DBSizeInUse)
	case !asked && v.fenced(s.Name):
		s.Message = "it is stopped by the annotation " + objects.AnnotationFence
	case !asked:
		s.Message = "its pod has no address"
	case h.Err != "":
		s.Message = h.Err
	default:
		s.Version, s.Alarms = h.Version, h.Alarms
		s.DBSize, s.DBSizeInUse = rounded(h.DBSize), rounded(h.DBSizeInUse)
	}
	s.Ready, s.Volume, s.WALVolume = ready, v.volumeStatus(s.Name), v.volumeStatus(WALClaim(s.Name))
	s.Joined, s.Since = metav1.NewTime(v.Now.Truncate(1e9)), metav1.NewTime(v.Now.Truncate(1e9))
	i := slices.IndexFunc(v.Cluster.Status.Members,
		func(o v1alpha1.MemberStatus) bool { return o.Name == s.Name && o.ID == s.ID })
	if i < 0 {
		return s
	}
	old := &v.Cluster.Status.Members[i]
	if !old.Joined.IsZero() {
		s.Joined = old.Joined
	}
	if old.Ready == ready && !old.Since.IsZero() {
		s.Since = old.Since
	}
	if !ready && v.onHold(s.Name) {
		s.Since = metav1.Time{} // the clock begins when it may come back
	}
	return s
}

// rounded is a size, rounded up to the next eighth of a power of two and to whole MiB, so that a database under load
// does not change the status with every call.
func rounded(n int64) *resource.Quantity {
	if n <= 0 {
		return nil
	}
	step := int64(1) << max(20, bits.Len64(uint64(n))-4)
	return resource.NewQuantity((n+step-1)/step*step, resource.BinarySI)
}

func conditions(v *view, because rule.Reason, next prospect, auth *v1alpha1.AuthStatus) []metav1.Condition {
	list := slices.Clone(v.Cluster.Status.Conditions)
	set := func(kind string, is bool, reason, message string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: v.Cluster.Generation,
			LastTransitionTime: metav1.NewTime(v.Now.Truncate(1e9))}
		if is {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&list, c)
	}
	voters := v.voters
	if v.Etcd != nil {
		set(v1alpha1.Available, true, "QuorumServes", fmt.Sprintf("a quorum answers: %d of %d voters serve",
			serving(voters), len(voters)))
	} else {
		set(v1alpha1.Available, false, because.Rule, because.Message)
	}
	set(v1alpha1.Ready, next.Outlook == Rests, next.reason, next.message)
	if next.Outlook == Works {
		set(v1alpha1.Reconciling, true, next.reason, next.message)
	} else {
		set(v1alpha1.Reconciling, false, wording.NotReconciling, wording.NothingUnderWay)
	}
	if next.Outlook == Waits {
		set(v1alpha1.Stalled, true, next.reason, next.message)
	} else {
		set(v1alpha1.Stalled, false, wording.NotStalled, wording.NothingWaits)
	}
	if trouble := troubles(v, because); len(trouble) > 0 {
		set(v1alpha1.Degraded, true, v.troubleWord(), strings.Join(trouble, "; "))
	} else {
		set(v1alpha1.Degraded, false, "AllWell", "no member is in trouble")
	}
	if reason, message, there := foreignCondition(v, because); reason != "" {
		set(v1alpha1.ForeignMembers, there, reason, message)
	}
	if v.Cluster.Spec.Suspend {
		set(v1alpha1.Suspended, true, "SpecSuspend", "SUSPENDED: Quorate changes nothing and brings nothing back "+
			"until spec.suspend is false")
	} else {
		set(v1alpha1.Suspended, false, "NotSuspended", "spec.suspend is false")
	}
	reason, message, secured := security(v)
	set(v1alpha1.Secured, secured, reason, message)
	reason, message, authorized := authorization(v, auth)
	set(v1alpha1.Authorized, authorized, reason, message)
	if reason, message, is, shown := restored(v); shown {
		set(v1alpha1.Restored, is, reason, message)
	} else {
		meta.RemoveStatusCondition(&list, v1alpha1.Restored)
	}
	if a := advice(v); a != "" {
		set(v1alpha1.Advised, true, "SpecAdvice", a)
	} else {
		set(v1alpha1.Advised, false, "NoAdvice", "nothing to advise")
	}
	return list
}

// connection is what an application needs; nil before there is a record of the cluster.
func (v *view) connection() *v1alpha1.ConnectionStatus {
	if v.epoch == nil {
		return nil
	}
	host := objects.ClientService(v.Cluster.Name) + "." + v.Cluster.Namespace + ".svc"
	c := &v1alpha1.ConnectionStatus{Endpoints: []string{urlOn(objects.Scheme(v.Cluster), host, objects.ClientPort)}}
	if name := ClientSecret(v.Cluster.Name); objects.Encrypted(v.Cluster) {
		if s := v.secret(name); s != nil && s.has(objects.KeyCertificate, objects.KeyPrivate, objects.KeyTrust) {
			c.ClientSecret, c.AuthoritySecret = name, name
		}
	}
	return c
}

// tlsStatus lists the certificates in use and when they expire.
func tlsStatus(v *view) v1alpha1.TLSStatus {
	s := v1alpha1.TLSStatus{Mode: objects.TLSMode(v.Cluster)}
	add := func(name, secret string) {
		if observed := v.secret(secret); observed != nil && observed.Certificate != nil {
			s.Certificates = append(s.Certificates, v1alpha1.CertificateStatus{Name: name, Secret: secret,
				NotAfter: metav1.NewTime(observed.Certificate.NotAfter)})
		}
	}
	if s.Mode == v1alpha1.TLSDisabled {
		return s
	}
	if s.Mode == v1alpha1.TLSAuto {
		add("authority", CASecret(v.Cluster.Name))
	}
	for _, l := range v.leaves {
		add(l.what, l.secret)
	}
	return s
}

// security is whether clients and members prove themselves by certificates that are in order, with a reason and words.
func security(v *view) (reason, message string, secured bool) {
	if !objects.Encrypted(v.Cluster) {
		message = "spec.tls.mode is Disabled: everybody who can reach the members may read and write everything, in " +
			"plain text"
		if why := v.asksInPlainText(); why != "" {
			message += "; " + why
		}
		return "Disabled", message, false
	}
	if len(v.certificateProblems) > 0 {
		return "CertificatesLacking", strings.Join(v.certificateProblems, "; "), false
	}
	if slow := names(filter(v.members, func(m *member) bool { return m.pod != nil && !m.tls.peers })); len(slow) > 0 &&
		v.Etcd != nil {
		return "Switching", fmt.Sprintf("%s does not speak TLS with its peers yet", strings.Join(slow, ", ")), false
	}
	if allowsPlaintext(v.Cluster) {
		return "PlaintextAllowed", "spec.tls.allowPlaintextClients is true: clients may read and write everything in " +
			"plain text, without a certificate; take it out when the applications have followed", false
	}
	if why := v.asksInPlainText(); why != "" {
		return "ForeignPlaintext", why, false
	}
	if v.untrusted != "" {
		return "AuthorityChanged", v.untrusted, false
	}
	var late []string
	for _, c := range tlsStatus(v).Certificates {
		if observed := v.secret(c.Secret).Certificate; v.Now.After(observed.late()) {
			late = append(late, fmt.Sprintf("the certificate in Secret %s expires on %s and has not been renewed",
				c.Secret, day(observed.NotAfter)))
		}
	}
	if len(late) > 0 {
		return "CertificatesExpire", strings.Join(late, "; "), false
	}
	return "Encrypted", "clients and members prove themselves by certificates, and all of these are in order", true
}

// troubles are what is wrong with the members, in words that stay the same while nothing changes.
func troubles(v *view, because rule.Reason) []string {
	var list []string
	if v.Etcd == nil {
		if v.replicas > 0 && v.epoch != nil && (v.epoch.hadQuorum() || v.neverBegins()) || v.longUnmade() {
			list = append(list, because.Message)
		}
		return list
	}
	for _, m := range v.members {
		who := cmp.Or(m.displayName(), "stranger "+hex(m.ID))
		if what := v.troubleOf(m, who); what != "" {
			list = append(list, what)
		}
		if len(m.health.Alarms) > 0 {
			list = append(list, fmt.Sprintf("%s has the alarm %s", who, strings.Join(m.health.Alarms, " and ")))
		}
	}
	if v.longUnmade() {
		list = append(list, v.unmade())
	}
	return append(list, v.alarmsOfOthers()...)
}

// troubleOf a member is why it does not serve, or soon won't; empty for none.
func (v *view) troubleOf(m *member, who string) string {
	reason, lost := v.dataLost(m)
	switch {
	case m.alias != "" && (m.serving() || !v.epoch.hadQuorum() && !m.asked):
		return ""
	case m.alias != "":
		return who + " does not serve" + wording.Colon(m.health.Err)
	case m.name == "":
		return v.strange(m)
	case lost:
		return fmt.Sprintf("%s: %s", who, reason)
	case v.mismatched(m):
		return fmt.Sprintf("%s: %s", who, v.mismatch(m))
	case v.distrustsPeers(m.health):
		return who + " runs since before there was the authority that signs now, and must be restarted to trust it: " +
			"see TrustOutdated in docs/failure-modes.md"
	case !m.serving() && v.fenced(m.name):
		return who + " is stopped by the annotation " + objects.AnnotationFence
	case !m.serving() && (!m.Learner || m.Started()):
		return who + " does not serve" + wording.Colon(v.explain(m))
	}
	return ""
}

// restoring are the URLs of artifacts that members of the epoch that runs, or of the one that is to take over, are
// being filled with.
func (v *view) restoring() []string {
	var list []string
	add := func(e *epoch) {
		if e.snapshot != nil && !e.hadQuorum() && e.phase != phaseCancelled {
			list = append(list, e.snapshot.URL)
		}
	}
	add(v.epoch)
	if v.next != nil {
		add(v.next.epoch)
	}
	return distinct(list)
}
