package answer

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/rules"
)

// externalCondition is the condition of that name: whether there are any, with a reason and words. Without a reason
// there is nothing to say.
func externalCondition(f *facts.Facts, because decision.Reason) (reason, message string, there bool) {
	switch {
	case !f.Epoch.Joined():
		return "", "", false
	case !f.Epoch.HadQuorum() && f.Unfit() != "":
		return "Unfit", f.Unfit(), true
	case !f.Epoch.HadQuorum():
		return "Asking", because.Message, true
	case !f.BesideExternal():
		return "Retired", "all members are ours" + f.TrustLeft(), false
	case f.Etcd == nil:
		return "", "", true // the condition stays as it was
	}
	reason, message = f.ExternalStage()
	return reason, message, true
}

// told is what a status tells of this call.
type told struct {
	Because decision.Reason
	Next    decision.Prospect
	// GivenUp is the voter that is given up for its silence; empty for none.
	GivenUp string
	Awaited awaited
	// WantsSnapshot: an upgrade waits for one.
	WantsSnapshot bool
}

// statusOf is what people see. Nothing that safety needs is read back from it (S14); only the times of the last changes
// are.
func statusOf(f *facts.Facts, d told) v1beta1.EtcdClusterStatus {
	old := &f.Cluster.Status
	s := v1beta1.EtcdClusterStatus{
		ObservedGeneration: f.Cluster.Generation,
		ClusterID:          old.ClusterID,
		Epoch:              old.Epoch,
		Version:            old.Version,
		Selector:           objects.LabelCluster + "=" + f.Cluster.Name,
		Rule:               d.Because.Rule,
		Members:            members(f),
	}
	if f.Epoch != nil {
		if old.Epoch != int64(f.Epoch.N) {
			s.ClusterID = "" // that of an epoch before
		}
		s.Epoch = int64(f.Epoch.N)
		s.Version = f.Epoch.Version
		s.Origin = f.Epoch.OriginStatus()
		s.Internal.Restoring = Restoring(f)
		if f.Epoch.HadQuorum() {
			s.ClusterID = objects.Hex(f.Epoch.ClusterID)
		}
	}
	if f.Etcd != nil {
		s.ClusterID = objects.Hex(f.Etcd.ClusterID)
		s.Leader = f.NameOf(f.Etcd.Leader)
	}
	for _, m := range s.Members {
		if m.External {
			continue
		}
		s.Replicas++
		if m.Ready && m.Role == v1beta1.Voter {
			s.ReadyReplicas++
		}
	}
	s.TLS = tlsStatus(f)
	s.Internal.EarlierLife = f.SeenOfEarlierLife()
	s.Auth, s.Internal.AppliedAuth = f.AuthStatus()
	s.Defragmentation, s.Internal.Defragmentation = f.DefragRun.Told()
	if r := f.Replacements(d.GivenUp); r != (v1beta1.ReplacementStatus{}) {
		s.Internal.Replacement = &r
	}
	s.Internal.Watched = f.Watched()
	s.Internal.Leadership = f.LeadershipMemory()
	s.Internal.ClockTime = old.Internal.ClockTime
	s.SnapshotWanted = f.SnapshotWanted(d.WantsSnapshot)
	s.Connection = connection(f)
	s.Internal.Awaited = d.Awaited.List
	s.Operations = operations(f, d.Because)
	s.History = history(f, d.Because, &s)
	s.Conditions = conditions(f, d, &s)
	return s
}

// members are etcd's list, or the last known one while blind.
func members(f *facts.Facts) []v1beta1.MemberStatus {
	var list []v1beta1.MemberStatus
	if f.Etcd == nil {
		for _, m := range f.Cluster.Status.Members {
			list = append(list, memberStatus(f, v1beta1.MemberStatus{Name: m.Name, ID: m.ID, Role: m.Role,
				External: m.External}, f.LastStatusHealth(m), false))
		}
		return list
	}
	for _, m := range f.Members {
		s := v1beta1.MemberStatus{Name: cmp.Or(m.DisplayName(), cmp.Or(m.Name, objects.Hex(m.ID))),
			External: m.Alias != "" ||
				f.WasExternal(m), ID: objects.Hex(m.ID), Role: v1beta1.Voter, Leader: m.ID == f.Etcd.Leader}
		ready := m.Serving()
		if m.Learner {
			s.Role = f.RoleIn(m)
		}
		if s.Role == v1beta1.Spare {
			ready = f.CaughtUp(m) // it could vote
		}
		list = append(list, memberStatus(f, s, m.StatusHealth(f), ready))
	}
	return list
}

func memberStatus(f *facts.Facts, s v1beta1.MemberStatus, h observation.Health, ready bool) v1beta1.MemberStatus {
	_, asked := f.Health[s.Name]
	switch {
	case s.External && h.MemberID == 0:
		s.Message = cmp.Or(h.Err, "its URL is not known")
	case s.External:
		s.Version = h.Version
		s.Alarms = h.Alarms
		s.DBSize = rounded(h.DBSize)
		s.DBSizeInUse = rounded(h.DBSizeInUse)
	case !asked && f.Fenced(s.Name):
		s.Message = "stopped by an EtcdOperation of type Fence"
	case !asked:
		s.Message = "its pod has no address"
	case h.Err != "":
		s.Message = h.Err
	default:
		s.Version = h.Version
		s.Alarms = h.Alarms
		s.DBSize = rounded(h.DBSize)
		s.DBSizeInUse = rounded(h.DBSizeInUse)
	}
	s.Ready = ready
	s.Volume = f.VolumeStatus(s.Name)
	s.WALVolume = f.VolumeStatus(facts.WALClaim(s.Name))
	s.JoinTime = metav1.NewTime(f.Now.Truncate(1e9))
	s.LastTransitionTime = metav1.NewTime(f.Now.Truncate(1e9))
	i := slices.IndexFunc(f.Cluster.Status.Members,
		func(o v1beta1.MemberStatus) bool { return o.Name == s.Name && o.ID == s.ID })
	if i < 0 {
		return s
	}
	old := &f.Cluster.Status.Members[i]
	if !old.JoinTime.IsZero() {
		s.JoinTime = old.JoinTime
	}
	if old.Ready == ready && !old.LastTransitionTime.IsZero() {
		s.LastTransitionTime = old.LastTransitionTime
	}
	if !ready && f.OnHold(s.Name) {
		s.LastTransitionTime = metav1.Time{} // the clock begins when it may come back
	}
	return s
}

// Rounded is a size in bytes, rounded up to the next eighth of a power of two and to whole MiB, so that a database
// under load does not change the status with every call.
func Rounded(n int64) int64 {
	if n <= 0 {
		return 0
	}
	step := SizeStep(n)
	return (n + step - 1) / step * step
}

// SizeStep is by how much a size in bytes may grow until [Rounded] shows another.
func SizeStep(n int64) int64 { return 1 << max(20, bits.Len64(uint64(n))-4) }

// rounded is nil for nothing.
func rounded(n int64) *resource.Quantity {
	if n <= 0 {
		return nil
	}
	return resource.NewQuantity(Rounded(n), resource.BinarySI)
}

// suspension is why changes are held back, or are not.
func suspension(f *facts.Facts) (reason, message string) {
	switch {
	case f.Suspended():
		return "SpecSuspend", "SUSPENDED: Quorate changes and recreates nothing until spec.suspend is false"
	case f.Cluster.Spec.Suspend:
		return "ChangeUnderWay", "spec.suspend waits for the change in progress: the API server has its data here " +
			"(spec.selfHosted)"
	}
	return "NotSuspended", "spec.suspend is false"
}

func conditions(f *facts.Facts, d told, now *v1beta1.EtcdClusterStatus) []metav1.Condition {
	list := slices.Clone(f.Cluster.Status.Conditions)
	to := decision.Conditions{List: &list, Generation: f.Cluster.Generation, Now: f.Now}
	set := to.Set
	voters := f.Voters
	if f.Etcd != nil {
		set(v1beta1.Available, true, "QuorumServes", fmt.Sprintf("a quorum answers: %d of %d voters serve",
			facts.Serving(voters), len(voters)))
	} else {
		set(v1beta1.Available, false, unavailable(f), d.Because.Message)
	}
	to.Expect(d.Next.Outlook, reasonOf(f, d.Next), d.Next.Message)
	if trouble := troubles(f, d); len(trouble) > 0 {
		set(v1beta1.Degraded, true, troubleWord(f, d.Awaited), strings.Join(trouble, "; "))
	} else {
		set(v1beta1.Degraded, false, "AllWell", "no member has a problem")
	}
	if reason, message, there := externalCondition(f, d.Because); reason != "" {
		set(v1beta1.ExternalMembers, there, reason, message)
	}
	reason, message := suspension(f)
	set(v1beta1.Suspended, f.Suspended(), reason, message)
	reason, message, secured := Security(f)
	set(v1beta1.Secured, secured, reason, message)
	reason, message, authorized := f.Authorization(now.Auth, now.Internal.AppliedAuth)
	set(v1beta1.Authorized, authorized, reason, message)
	if reason, message, is, shown := f.Restored(); shown {
		set(v1beta1.Restored, is, reason, message)
	} else {
		meta.RemoveStatusCondition(&list, v1beta1.Restored)
	}
	if a := Advice(f); a != "" {
		set(v1beta1.Advised, true, "SpecAdvice", a)
	} else {
		set(v1beta1.Advised, false, "NoAdvice", "no advice")
	}
	return list
}

// reasonOf is the reason of Ready, Reconciling and Stalled: one of those that the API promises.
func reasonOf(f *facts.Facts, next decision.Prospect) string {
	switch {
	case next.Reason == v1beta1.ReasonNoPodReady, next.Reason == v1beta1.ReasonFailedCreate:
		return next.Reason
	case f.Suspended():
		return v1beta1.ReasonSuspended
	case next.Outlook == decision.Rests && f.Replicas == 0:
		return v1beta1.ReasonPaused
	case next.Outlook == decision.Rests && next.Reason == rules.WaitForWindow:
		return v1beta1.ReasonWaitingForWindow
	case next.Outlook == decision.Rests:
		return v1beta1.ReasonServing
	case next.Outlook == decision.Waits && f.Unsupported() != nil:
		return v1beta1.ReasonInvalid
	case unavailable(f) == v1beta1.ReasonNoQuorum:
		return v1beta1.ReasonNoQuorum
	case next.Outlook == decision.Waits:
		return v1beta1.ReasonActionNeeded
	}
	return v1beta1.ReasonProgressing
}

// unavailable is the reason of Available while no quorum answers.
func unavailable(f *facts.Facts) string {
	switch {
	case f.Replicas == 0:
		return v1beta1.ReasonPaused
	case f.Etcd == nil && f.Epoch != nil && f.Epoch.HadQuorum():
		return v1beta1.ReasonNoQuorum
	}
	return v1beta1.ReasonProgressing
}

// connection is what an application needs; nil before there is a record of the cluster. It is no service binding, whose
// Secret has entries that ours lack: they would have to be written into Secrets that cert-manager or people keep.
func connection(f *facts.Facts) *v1beta1.ConnectionStatus {
	if f.Epoch == nil {
		return nil
	}
	host := objects.ClientService(f.Cluster.Name) + "." + f.Cluster.Namespace + ".svc"
	c := &v1beta1.ConnectionStatus{Endpoints: []string{defaults.URLOn(objects.Scheme(f.Cluster), host,
		objects.ClientPort)}}
	if f.HostNetwork() {
		for _, m := range f.Voters {
			if m.PodName != "" {
				c.Endpoints = append(c.Endpoints, objects.ClientURL(f.Cluster, m.PodName, f.Address(m.PodName)))
			}
		}
		if old := f.Cluster.Status.Connection; f.Etcd == nil && old != nil {
			c.Endpoints = old.Endpoints
		}
	}
	for _, address := range f.LoadBalancerAddresses() {
		c.External = append(c.External, defaults.URLOn(objects.Scheme(f.Cluster), address, objects.ClientPort))
	}
	if f.Cluster.Spec.MemberService != nil {
		c.External = membersOutside(f, c.External)
	}
	if s := f.Children.Services[objects.ClientService(f.Cluster.Name)]; s != nil && len(s.Spec.Ports) > 0 &&
		s.Spec.Type == corev1.ServiceTypeNodePort {
		c.NodePort = s.Spec.Ports[0].NodePort
	}
	c.ClientSecretRef, c.CASecretRef = clientSecrets(f)
	return c
}

// clientSecrets are what applications show, while a member asks for it, and what they trust.
func clientSecrets(f *facts.Facts) (shown, trusted v1beta1.SecretRef) {
	name := defaults.ClientSecret(f.Cluster.Name)
	s := f.Secret(name)
	if !objects.Encrypted(f.Cluster) || s == nil || !s.Has(objects.KeyCertificate, objects.KeyPrivate, objects.KeyTrust) {
		return shown, trusted
	}
	trusted.Name = name
	if !defaults.AsksNone(f.Cluster) || len(f.Anonymous()) < len(f.Children.Pods) {
		shown = trusted
	}
	return shown, trusted
}

// membersOutside adds the voters' URLs outside Kubernetes; while etcd does not answer they are those of before.
func membersOutside(f *facts.Facts, list []string) []string {
	if old := f.Cluster.Status.Connection; f.Etcd == nil && old != nil {
		return old.External
	}
	for _, m := range f.Voters {
		if url, known := f.OutsideURL(m.PodName); known && m.PodName != "" {
			list = append(list, url)
		}
	}
	return list
}

// tlsStatus lists the certificates in use and when they expire.
func tlsStatus(f *facts.Facts) v1beta1.TLSStatus {
	s := v1beta1.TLSStatus{Mode: objects.TLSMode(f.Cluster)}
	add := func(name, secret string) {
		if observed := f.Secret(secret); observed != nil && observed.Certificate != nil {
			s.Certificates = append(s.Certificates, v1beta1.CertificateStatus{Name: name,
				SecretRef: v1beta1.SecretRef{Name: secret},
				NotAfter:  metav1.NewTime(observed.Certificate.NotAfter)})
		}
	}
	if s.Mode == v1beta1.TLSDisabled {
		return s
	}
	if s.ClientAuth = v1beta1.ClientAuthRequired; len(f.Anonymous()) > 0 {
		s.ClientAuth = v1beta1.ClientAuthNone
	}
	if s.Mode == v1beta1.TLSAuto {
		add("authority", defaults.CASecret(f.Cluster.Name))
	}
	for _, l := range f.Leaves {
		add(l.What, l.Secret)
	}
	return s
}

// Security is whether clients and members prove themselves by certificates that are in order, with a reason and words.
func Security(f *facts.Facts) (reason, message string, secured bool) {
	if !objects.Encrypted(f.Cluster) {
		message = "spec.tls.mode is Disabled: everything that can reach the members may read and write all keys, in " +
			"plain text"
		if why := f.AsksInPlainText(); why != "" {
			message += "; " + why
		}
		return "Disabled", message, false
	}
	if len(f.CertificateProblems) > 0 {
		return "CertificatesLacking", strings.Join(f.CertificateProblems, "; "), false
	}
	if slow := facts.Names(objects.Filter(f.Members, func(m *facts.Member) bool {
		return m.Pod != nil &&
			!m.TLS.Peers
	})); len(slow) > 0 &&
		f.Etcd != nil {
		return "Switching", fmt.Sprintf("%s does not use TLS with its peers yet", strings.Join(slow, ", ")), false
	}
	if defaults.AllowsPlaintext(f.Cluster) {
		return "PlaintextAllowed", "spec.tls.allowPlaintextClients is true: clients may read and write all keys in " +
			"plain text, without a certificate; remove it when all applications use TLS", false
	}
	if why := f.AsksInPlainText(); why != "" {
		return "ExternalPlaintext", why, false
	}
	if f.Untrusted != "" {
		return "AuthorityChanged", f.Untrusted, false
	}
	var late []string
	for _, c := range tlsStatus(f).Certificates {
		if observed := f.Secret(c.SecretRef.Name).Certificate; f.Now.After(observed.Late()) {
			late = append(late, fmt.Sprintf("the certificate in Secret %s expires on %s and has not been renewed",
				c.SecretRef.Name, facts.Day(observed.NotAfter)))
		}
	}
	if len(late) > 0 {
		return "CertificatesExpire", strings.Join(late, "; "), false
	}
	return clientAuth(f)
}

// clientAuth is how clients prove who they are, where all certificates are in order.
func clientAuth(f *facts.Facts) (reason, message string, secured bool) {
	if open := f.Anonymous(); len(open) > 0 && f.AuthOff() {
		return "AuthOff", fmt.Sprintf("etcd's auth is off, and %s asks clients for no certificate: everything that can "+
			"reach it may read and write all keys; see the condition Authorized", strings.Join(open, ", ")), false
	} else if len(open) > 0 {
		return "Encrypted",
			"members authenticate by certificates, which are in order; clients log in with a password", true
	}
	return "Encrypted", "clients and members authenticate by certificates, and all of them are in order", true
}

// troubles are what is wrong with the members, in words that stay the same while nothing changes.
func troubles(f *facts.Facts, d told) []string {
	var list []string
	if f.Etcd == nil {
		down := f.Replicas > 0 && f.Epoch != nil && (f.Epoch.HadQuorum() || f.NeverBegins())
		if down || d.Awaited.Long() {
			list = append(list, d.Because.Message)
		}
		return list
	}
	for _, m := range f.Members {
		who := cmp.Or(m.DisplayName(), "unmanaged member "+objects.Hex(m.ID))
		if what := troubleOf(f, m, who); what != "" {
			list = append(list, what)
		}
		if len(m.Health.Alarms) > 0 {
			list = append(list, fmt.Sprintf("%s has the alarm %s", who, strings.Join(m.Health.Alarms, " and ")))
		}
	}
	if d.Awaited.Long() {
		list = append(list, d.Awaited.Unmade())
	}
	return append(list, f.AlarmsOfOthers()...)
}

// troubleOf a member is why it does not serve, or soon won't; empty for none.
func troubleOf(f *facts.Facts, m *facts.Member, who string) string {
	reason, lost := f.DataLost(m)
	switch {
	case m.Alias != "" && (m.Serving() || !f.Epoch.HadQuorum() && !m.Asked):
		return ""
	case m.Alias != "":
		return who + " does not serve" + objects.Colon(m.Health.Err)
	case m.PodName == "":
		return f.Strange(m)
	case lost:
		return fmt.Sprintf("%s: %s", who, reason)
	case f.Mismatched(m):
		return fmt.Sprintf("%s: %s", who, f.Mismatch(m))
	case f.Distrusts(m.Health):
		return who + " started before the present authority and must restart to trust it: see " +
			v1beta1.Docs + "troubleshooting.md#trustoutdated"
	case !m.Serving() && f.Fenced(m.PodName):
		return who + " is stopped by an EtcdOperation of type Fence"
	case !m.Serving() && (!m.Learner || m.Started()):
		return who + " does not serve" + objects.Colon(f.Explain(m))
	}
	return ""
}

// Restoring are the URLs of artifacts that members of the epoch that runs, or of the one that is to take over, are
// being filled with, and that of a restore that is asked for.
func Restoring(f *facts.Facts) []string {
	var list []string
	add := func(e *facts.Epoch) {
		if e.Snapshot != nil && !e.HadQuorum() && e.Phase != record.PhaseCancelled {
			list = append(list, e.Snapshot.URL)
		}
	}
	add(f.Epoch)
	if f.Next != nil {
		add(f.Next.Epoch)
	}
	if url := f.URLOfRestore(); url != "" {
		list = append(list, url)
	}
	return defaults.Distinct(list)
}

// troubleWord is the reason of the condition Degraded.
func troubleWord(f *facts.Facts, awaited awaited) string {
	switch {
	case f.Etcd == nil && awaited.Long() && (f.Epoch == nil || !f.NeverBegins()):
		return v1beta1.ReasonFailedCreate
	case f.Etcd == nil && !f.Epoch.HadQuorum():
		return "BootstrapStalled"
	case f.Etcd == nil:
	case f.MismatchedPods() > 0:
		return "MemberMismatch"
	case slices.ContainsFunc(f.Voters, func(m *facts.Member) bool { return waitsForPerson(f, m) }):
		return "PersonDecides"
	case awaited.Long():
		return v1beta1.ReasonFailedCreate
	}
	return "MembersInTrouble"
}

// waitsForPerson reports whether a voter is overdue, and a person decides whether it is replaced.
func waitsForPerson(f *facts.Facts, m *facts.Member) bool {
	return f.Overdue(m) && f.WhyNotReplaced(m) != ""
}
