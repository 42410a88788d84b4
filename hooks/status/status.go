// Package status is what people see: the status of an EtcdCluster.
package status

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

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/auth"
	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/foreign"
	"github.com/quorate-dev/quorate/hooks/health"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/versions"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// Of is what people see. Nothing that safety needs is read back from it (S14); only the times of the last changes
// are.
func Of(v *state.View, because rule.Reason, next decision.Prospect) v1alpha1.EtcdClusterStatus {
	old := &v.Cluster.Status
	s := v1alpha1.EtcdClusterStatus{
		ObservedGeneration: v.Cluster.Generation,
		ClusterID:          old.ClusterID,
		Epoch:              old.Epoch,
		Version:            old.Version,
		Selector:           objects.LabelCluster + "=" + v.Cluster.Name,
		Rule:               because.Rule,
		Members:            members(v),
	}
	if v.Epoch != nil {
		if old.Epoch != int64(v.Epoch.N) {
			s.ClusterID = "" // that of an epoch before
		}
		s.Epoch, s.Version, s.Origin, s.Internal.Restoring = int64(v.Epoch.N), v.Epoch.Version, v.Epoch.OriginStatus(),
			Restoring(v)
		if v.Epoch.HadQuorum() {
			s.ClusterID = wording.Hex(v.Epoch.ClusterID)
		}
	}
	if v.Etcd != nil {
		s.ClusterID, s.Leader = wording.Hex(v.Etcd.ClusterID), v.NameOf(v.Etcd.Leader)
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
	s.Ready = fmt.Sprintf("%d/%d", s.ReadyReplicas, v.Replicas)
	s.TLS = tlsStatus(v)
	s.Internal.EarlierLife = epochs.SeenOfEarlierLife(v)
	s.Auth, s.Internal.AppliedAuth = auth.AuthStatus(v)
	s.Defragmentation, s.Internal.Defragmentation = v.DefragRun.Told()
	if r := health.Replacements(v, v.FailedVoter); r != (v1alpha1.ReplacementStatus{}) {
		s.Internal.Replacement = &r
	}
	s.Internal.Watched, s.Internal.ClockTime, s.Connection = state.Watched(v), old.Internal.ClockTime, connection(v)
	s.Running, s.Internal.Awaited = versions.RunningVersion(v, s.Members), v.Awaited
	s.Operations = Operations(v, because)
	s.History = health.History(v, because, &s)
	s.Conditions = conditions(v, because, next, &s)
	return s
}

// members are etcd's list, or the last known one while blind.
func members(v *state.View) []v1alpha1.MemberStatus {
	var list []v1alpha1.MemberStatus
	if v.Etcd == nil {
		for _, m := range v.Cluster.Status.Members {
			list = append(list, memberStatus(v, v1alpha1.MemberStatus{Name: m.Name, ID: m.ID, Role: m.Role,
				Foreign: m.Foreign}, state.LastStatusHealth(v, m), false))
		}
		return list
	}
	for _, m := range v.Members {
		s := v1alpha1.MemberStatus{Name: cmp.Or(m.DisplayName(), cmp.Or(m.Name, wording.Hex(m.ID))),
			Foreign: m.Alias != "" ||
				foreign.WasForeign(v, m), ID: wording.Hex(m.ID), Role: v1alpha1.Voter, Leader: m.ID == v.Etcd.Leader}
		if m.Learner {
			s.Role = v1alpha1.Learner
		}
		list = append(list, memberStatus(v, s, m.StatusHealth(v), m.Serving()))
	}
	return list
}

func memberStatus(v *state.View, s v1alpha1.MemberStatus, h observation.Health, ready bool) v1alpha1.MemberStatus {
	_, asked := v.Health[s.Name]
	switch {
	case s.Foreign && h.MemberID == 0:
		s.Message = cmp.Or(h.Err, "its URL is not known")
	case s.Foreign:
		s.Version, s.Alarms = h.Version, h.Alarms
		s.DBSize, s.DBSizeInUse = rounded(h.DBSize), rounded(h.DBSizeInUse)
	case !asked && v.Fenced(s.Name):
		s.Message = "stopped by an EtcdOperation of type Fence"
	case !asked:
		s.Message = "its pod has no address"
	case h.Err != "":
		s.Message = h.Err
	default:
		s.Version, s.Alarms = h.Version, h.Alarms
		s.DBSize, s.DBSizeInUse = rounded(h.DBSize), rounded(h.DBSizeInUse)
	}
	s.Ready, s.Volume, s.WALVolume = ready, volumes.VolumeStatus(v, s.Name), volumes.VolumeStatus(v,
		state.WALClaim(s.Name))
	s.JoinTime, s.LastTransitionTime = metav1.NewTime(v.Now.Truncate(1e9)), metav1.NewTime(v.Now.Truncate(1e9))
	i := slices.IndexFunc(v.Cluster.Status.Members,
		func(o v1alpha1.MemberStatus) bool { return o.Name == s.Name && o.ID == s.ID })
	if i < 0 {
		return s
	}
	old := &v.Cluster.Status.Members[i]
	if !old.JoinTime.IsZero() {
		s.JoinTime = old.JoinTime
	}
	if old.Ready == ready && !old.LastTransitionTime.IsZero() {
		s.LastTransitionTime = old.LastTransitionTime
	}
	if !ready && state.OnHold(v, s.Name) {
		s.LastTransitionTime = metav1.Time{} // the clock begins when it may come back
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

// suspension is why changes are held back, or are not.
func suspension(v *state.View) (reason, message string) {
	switch {
	case v.Suspended():
		return "SpecSuspend", "SUSPENDED: Quorate changes and recreates nothing until spec.suspend is false"
	case v.Cluster.Spec.Suspend:
		return "ChangeUnderWay", "spec.suspend waits for the change in progress: the API server has its data here " +
			"(spec.selfHosted)"
	}
	return "NotSuspended", "spec.suspend is false"
}

func conditions(v *state.View, because rule.Reason, next decision.Prospect,
	now *v1alpha1.EtcdClusterStatus) []metav1.Condition {
	list := slices.Clone(v.Cluster.Status.Conditions)
	to := rule.Conditions{List: &list, Generation: v.Cluster.Generation, Now: v.Now}
	set := to.Set
	voters := v.Voters
	if v.Etcd != nil {
		set(v1alpha1.Available, true, "QuorumServes", fmt.Sprintf("a quorum answers: %d of %d voters serve",
			state.Serving(voters), len(voters)))
	} else {
		set(v1alpha1.Available, false, because.Rule, because.Message)
	}
	to.Expect(next.Outlook, next.Reason, next.Message)
	if trouble := troubles(v, because); len(trouble) > 0 {
		set(v1alpha1.Degraded, true, health.TroubleWord(v), strings.Join(trouble, "; "))
	} else {
		set(v1alpha1.Degraded, false, "AllWell", "no member has a problem")
	}
	if reason, message, there := foreign.ForeignCondition(v, because); reason != "" {
		set(v1alpha1.ForeignMembers, there, reason, message)
	}
	reason, message := suspension(v)
	set(v1alpha1.Suspended, v.Suspended(), reason, message)
	reason, message, secured := Security(v)
	set(v1alpha1.Secured, secured, reason, message)
	reason, message, authorized := auth.Authorization(v, now.Auth, now.Internal.AppliedAuth)
	set(v1alpha1.Authorized, authorized, reason, message)
	if reason, message, is, shown := health.Restored(v); shown {
		set(v1alpha1.Restored, is, reason, message)
	} else {
		meta.RemoveStatusCondition(&list, v1alpha1.Restored)
	}
	if a := Advice(v); a != "" {
		set(v1alpha1.Advised, true, "SpecAdvice", a)
	} else {
		set(v1alpha1.Advised, false, "NoAdvice", "no advice")
	}
	return list
}

// connection is what an application needs; nil before there is a record of the cluster. It is no service binding, whose
// Secret has entries that ours lack: they would have to be written into Secrets that cert-manager or people keep.
func connection(v *state.View) *v1alpha1.ConnectionStatus {
	if v.Epoch == nil {
		return nil
	}
	host := objects.ClientService(v.Cluster.Name) + "." + v.Cluster.Namespace + ".svc"
	c := &v1alpha1.ConnectionStatus{Endpoints: []string{spec.URLOn(objects.Scheme(v.Cluster), host,
		objects.ClientPort)}}
	if v.HostNetwork() {
		for _, m := range v.Voters {
			if m.PodName != "" {
				c.Endpoints = append(c.Endpoints, objects.ClientURL(v.Cluster, m.PodName, v.Address(m.PodName)))
			}
		}
		if old := v.Cluster.Status.Connection; v.Etcd == nil && old != nil {
			c.Endpoints = old.Endpoints
		}
	}
	for _, address := range v.External() {
		c.External = append(c.External, spec.URLOn(objects.Scheme(v.Cluster), address, objects.ClientPort))
	}
	if v.Cluster.Spec.MemberService != nil {
		c.External = membersOutside(v, c.External)
	}
	if s := v.Children.Services[objects.ClientService(v.Cluster.Name)]; s != nil && len(s.Spec.Ports) > 0 &&
		s.Spec.Type == corev1.ServiceTypeNodePort {
		c.NodePort = s.Spec.Ports[0].NodePort
	}
	c.ClientSecretRef, c.AuthoritySecretRef = clientSecrets(v)
	return c
}

// clientSecrets are what applications show, while a member asks for it, and what they trust.
func clientSecrets(v *state.View) (shown, trusted v1alpha1.SecretRef) {
	name := spec.ClientSecret(v.Cluster.Name)
	s := certificates.Secret(v, name)
	if !objects.Encrypted(v.Cluster) || s == nil || !s.Has(objects.KeyCertificate, objects.KeyPrivate, objects.KeyTrust) {
		return shown, trusted
	}
	trusted.Name = name
	if !spec.AsksNone(v.Cluster) || len(state.Anonymous(v)) < len(v.Children.Pods) {
		shown = trusted
	}
	return shown, trusted
}

// membersOutside adds the voters' URLs outside Kubernetes; while etcd does not answer they are those of before.
func membersOutside(v *state.View, list []string) []string {
	if old := v.Cluster.Status.Connection; v.Etcd == nil && old != nil {
		return old.External
	}
	for _, m := range v.Voters {
		if url, known := v.OutsideURL(m.PodName); known && m.PodName != "" {
			list = append(list, url)
		}
	}
	return list
}

// tlsStatus lists the certificates in use and when they expire.
func tlsStatus(v *state.View) v1alpha1.TLSStatus {
	s := v1alpha1.TLSStatus{Mode: objects.TLSMode(v.Cluster)}
	add := func(name, secret string) {
		if observed := certificates.Secret(v, secret); observed != nil && observed.Certificate != nil {
			s.Certificates = append(s.Certificates, v1alpha1.CertificateStatus{Name: name,
				SecretRef: v1alpha1.SecretRef{Name: secret},
				NotAfter:  metav1.NewTime(observed.Certificate.NotAfter)})
		}
	}
	if s.Mode == v1alpha1.TLSDisabled {
		return s
	}
	if s.ClientAuth = v1alpha1.ClientAuthRequired; len(state.Anonymous(v)) > 0 {
		s.ClientAuth = v1alpha1.ClientAuthNone
	}
	if s.Mode == v1alpha1.TLSAuto {
		add("authority", spec.CASecret(v.Cluster.Name))
	}
	for _, l := range v.Leaves {
		add(l.What, l.Secret)
	}
	return s
}

// Security is whether clients and members prove themselves by certificates that are in order, with a reason and words.
func Security(v *state.View) (reason, message string, secured bool) {
	if !objects.Encrypted(v.Cluster) {
		message = "spec.tls.mode is Disabled: everything that can reach the members may read and write all keys, in " +
			"plain text"
		if why := foreign.AsksInPlainText(v); why != "" {
			message += "; " + why
		}
		return "Disabled", message, false
	}
	if len(v.CertificateProblems) > 0 {
		return "CertificatesLacking", strings.Join(v.CertificateProblems, "; "), false
	}
	if slow := state.Names(wording.Filter(v.Members, func(m *state.Member) bool {
		return m.Pod != nil &&
			!m.TLS.Peers
	})); len(slow) > 0 &&
		v.Etcd != nil {
		return "Switching", fmt.Sprintf("%s does not use TLS with its peers yet", strings.Join(slow, ", ")), false
	}
	if spec.AllowsPlaintext(v.Cluster) {
		return "PlaintextAllowed", "spec.tls.allowPlaintextClients is true: clients may read and write all keys in " +
			"plain text, without a certificate; remove it when all applications use TLS", false
	}
	if why := foreign.AsksInPlainText(v); why != "" {
		return "ForeignPlaintext", why, false
	}
	if v.Untrusted != "" {
		return "AuthorityChanged", v.Untrusted, false
	}
	var late []string
	for _, c := range tlsStatus(v).Certificates {
		if observed := certificates.Secret(v, c.SecretRef.Name).Certificate; v.Now.After(observed.Late()) {
			late = append(late, fmt.Sprintf("the certificate in Secret %s expires on %s and has not been renewed",
				c.SecretRef.Name, certificates.Day(observed.NotAfter)))
		}
	}
	if len(late) > 0 {
		return "CertificatesExpire", strings.Join(late, "; "), false
	}
	return clientAuth(v)
}

// clientAuth is how clients prove who they are, where all certificates are in order.
func clientAuth(v *state.View) (reason, message string, secured bool) {
	if open := state.Anonymous(v); len(open) > 0 && state.AuthOff(v) {
		return "AuthOff", fmt.Sprintf("etcd's auth is off, and %s asks clients for no certificate: everything that can "+
			"reach it may read and write all keys; see the condition Authorized", strings.Join(open, ", ")), false
	} else if len(open) > 0 {
		return "Encrypted",
			"members authenticate by certificates, which are in order; clients log in with a password", true
	}
	return "Encrypted", "clients and members authenticate by certificates, and all of them are in order", true
}

// troubles are what is wrong with the members, in words that stay the same while nothing changes.
func troubles(v *state.View, because rule.Reason) []string {
	var list []string
	if v.Etcd == nil {
		if v.Replicas > 0 && v.Epoch != nil && (v.Epoch.HadQuorum() || epochs.NeverBegins(v)) || health.LongUnmade(v) {
			list = append(list, because.Message)
		}
		return list
	}
	for _, m := range v.Members {
		who := cmp.Or(m.DisplayName(), "stranger "+wording.Hex(m.ID))
		if what := troubleOf(v, m, who); what != "" {
			list = append(list, what)
		}
		if len(m.Health.Alarms) > 0 {
			list = append(list, fmt.Sprintf("%s has the alarm %s", who, strings.Join(m.Health.Alarms, " and ")))
		}
	}
	if health.LongUnmade(v) {
		list = append(list, health.Unmade(v))
	}
	return append(list, health.AlarmsOfOthers(v)...)
}

// troubleOf a member is why it does not serve, or soon won't; empty for none.
func troubleOf(v *state.View, m *state.Member, who string) string {
	reason, lost := v.DataLost(m)
	switch {
	case m.Alias != "" && (m.Serving() || !v.Epoch.HadQuorum() && !m.Asked):
		return ""
	case m.Alias != "":
		return who + " does not serve" + wording.Colon(m.Health.Err)
	case m.PodName == "":
		return pods.Strange(v, m)
	case lost:
		return fmt.Sprintf("%s: %s", who, reason)
	case pods.Mismatched(v, m):
		return fmt.Sprintf("%s: %s", who, pods.Mismatch(v, m))
	case certificates.DistrustsPeers(v, m.Health):
		return who + " started before the present authority and must restart to trust it: see TrustOutdated in " +
			"docs/troubleshooting.md"
	case !m.Serving() && v.Fenced(m.PodName):
		return who + " is stopped by an EtcdOperation of type Fence"
	case !m.Serving() && (!m.Learner || m.Started()):
		return who + " does not serve" + wording.Colon(health.Explain(v, m))
	}
	return ""
}

// Restoring are the URLs of artifacts that members of the epoch that runs, or of the one that is to take over, are
// being filled with, and that of a restore that is asked for.
func Restoring(v *state.View) []string {
	var list []string
	add := func(e *state.Epoch) {
		if e.Snapshot != nil && !e.HadQuorum() && e.Phase != record.PhaseCancelled {
			list = append(list, e.Snapshot.URL)
		}
	}
	add(v.Epoch)
	if v.Next != nil {
		add(v.Next.Epoch)
	}
	if url := epochs.URLOfRestore(v); url != "" {
		list = append(list, url)
	}
	return spec.Distinct(list)
}
