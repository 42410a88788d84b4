// Package defaults is what an EtcdCluster asks for, with the defaults put in, and what is wrong with it.
package defaults

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Protected reports whether a cluster that is being deleted should run on: it is looked after as before, until the
// protection is taken away.
func Protected(c *v1beta1.EtcdCluster) bool { return c.Spec.DeletionProtection || c.Spec.SelfHosted }

// defaultPatience is how long what is unreachable may come back by itself where the spec says nothing else.
const defaultPatience = 5 * time.Minute

// RecoverAfter is how long a quorum is lost before spec.recovery acts.
func RecoverAfter(s *v1beta1.EtcdClusterSpec) time.Duration { return patience(s.Recovery.After) }

// ReplaceAfter is how long a voter may be unreachable before it is given up.
func ReplaceAfter(s *v1beta1.EtcdClusterSpec) time.Duration {
	return patience(s.MemberReplacement.After)
}

func patience(asked metav1.Duration) time.Duration {
	if asked.Duration > 0 {
		return asked.Duration
	}
	return defaultPatience
}

// Validate says what is wrong with a spec that can't be run. The API server refuses nearly all of it (CEL rules);
// this is for what slips through, as in a Kubernetes without them.
func Validate(s *v1beta1.EtcdClusterSpec, settings observation.Settings) error {
	r, err := ParseRelease(s.Version)
	switch {
	case err != nil:
		return err
	case r.LosesMembers() || !Supported(r):
		return fmt.Errorf("spec.version %s is not supported: use %s or later of 3.5, %s or later of 3.6, or 3.%d",
			s.Version, Least35, Least36, Newest[len(Newest)-1].Minor())
	case s.Replicas != nil && (*s.Replicas < 0 || *s.Replicas > 9):
		return fmt.Errorf("spec.replicas %d is not between 0 and 9", *s.Replicas)
	case s.Spares < 0 || s.Spares > 1:
		return fmt.Errorf("spec.spares %d is not 0 or 1: etcd has one learner at a time", s.Spares)
	case Heartbeat(s.Options) <= 0 || Election(s.Options) < 5*Heartbeat(s.Options):
		return fmt.Errorf("spec.options.electionTimeout must be at least 5 times spec.options.heartbeatInterval")
	case retention(s.Options) < 0, s.Options.AutoCompaction.Revisions != nil && *s.Options.AutoCompaction.Revisions < 1:
		return fmt.Errorf("spec.options.autoCompaction can't be negative: keep revisions for 1s or longer, or 1 or " +
			"more of them")
	}
	return cmp.Or(settings.Validate(s), validateExtraArgs(s.Options, s.Version), validateStorage(s), validateExternal(s),
		validateSources(s),
		validateTLS(&s.TLS), validateClientAuth(s), validateSelfHosted(s), validateMetadata(&s.AdditionalMetadata),
		validateMemory(&s.Resources), validatePods(s),
		validateClientService(&s.ClientService), validateMemberService(s), validateNetworkPolicy(&s.NetworkPolicy))
}

func validateStorage(s *v1beta1.EtcdClusterSpec) error {
	switch {
	case s.Storage.Medium == v1beta1.Memory && s.Replicas != nil && *s.Replicas == 0:
		return fmt.Errorf("spec.replicas 0 would lose the data of a Memory cluster")
	case !s.Storage.Size.IsZero() && s.Storage.Size.Sign() < 0:
		return fmt.Errorf("spec.storage.size %s is negative", s.Storage.Size.String())
	}
	return cmp.Or(validateAutoGrow(s), validateHostPath(s), validateHostNetwork(s))
}

func validateAutoGrow(s *v1beta1.EtcdClusterSpec) error {
	auto := s.Storage.AutoGrow
	size := StorageSize(s)
	switch {
	case auto == nil:
		return nil
	case s.Storage.Medium != "" && s.Storage.Medium != v1beta1.Persistent:
		return fmt.Errorf("spec.storage.autoGrow is for the medium Persistent; remove it")
	case s.Options.QuotaBackendBytes != nil:
		return fmt.Errorf("spec.options.quotaBackendBytes fixes the quota that spec.storage.autoGrow is to raise; remove " +
			"one of them")
	case auto.Max.Cmp(size) < 0:
		return fmt.Errorf("spec.storage.autoGrow.max %s is less than spec.storage.size %s; raise it", auto.Max.String(),
			size.String())
	}
	return nil
}

func validateTLS(s *v1beta1.TLSSpec) error {
	switch s.Mode {
	case "", v1beta1.TLSAuto, v1beta1.TLSDisabled:
		return nil
	case v1beta1.TLSSecrets:
		if s.Secrets == nil {
			return fmt.Errorf("spec.tls.mode Secrets needs spec.tls.secrets: the names of the Secrets with the " +
				"certificates")
		}
		return nil
	case v1beta1.TLSCertManager:
		if s.CertManager == nil || s.CertManager.IssuerRef.Name == "" {
			return fmt.Errorf("spec.tls.mode CertManager needs spec.tls.certManager.issuerRef.name")
		}
		return nil
	}
	return fmt.Errorf("spec.tls.mode %q is not Auto, Secrets, CertManager or Disabled", s.Mode)
}

func validateClientAuth(s *v1beta1.EtcdClusterSpec) error {
	switch s.TLS.ClientAuth {
	case "", v1beta1.ClientAuthRequired:
		return nil
	case v1beta1.ClientAuthNone:
		if a := s.Auth; a != nil && a.Enabled && s.TLS.Mode != v1beta1.TLSDisabled {
			return loginsByPassword(a)
		}
		return fmt.Errorf("spec.tls.clientAuth None needs TLS and spec.auth.enabled true: without auth everyone may " +
			"read and write all keys; enable auth, or set spec.tls.clientAuth to Required")
	}
	return fmt.Errorf("spec.tls.clientAuth %q is not Required or None", s.TLS.ClientAuth)
}

// loginsByPassword refuses a user who could not log in any more.
func loginsByPassword(a *v1beta1.AuthSpec) error {
	for i, u := range a.Users {
		if u.Credential == v1beta1.CredentialCertificate {
			return fmt.Errorf("spec.auth.users[%d]: with spec.tls.clientAuth None no one logs in with a certificate; "+
				"set credential to Password", i)
		}
	}
	return nil
}

// AsksNone reports whether clients should be asked for no certificate, once auth is on.
func AsksNone(c *v1beta1.EtcdCluster) bool {
	return c.Spec.TLS.ClientAuth == v1beta1.ClientAuthNone && validateClientAuth(&c.Spec) == nil
}

// Heartbeat is etcd's heartbeat interval, in whole milliseconds as etcd has it.
func Heartbeat(o v1beta1.Options) time.Duration {
	return cmp.Or(o.HeartbeatInterval.Duration, 100*time.Millisecond).Truncate(time.Millisecond)
}

// Election is etcd's election timeout, in whole milliseconds.
func Election(o v1beta1.Options) time.Duration {
	return cmp.Or(o.ElectionTimeout.Duration, time.Second).Truncate(time.Millisecond)
}

// StorageSize of each member.
func StorageSize(s *v1beta1.EtcdClusterSpec) resource.Quantity {
	if s.Storage.Size.IsZero() {
		return defaultSize
	}
	return s.Storage.Size
}

// Speech is how a member speaks, beyond what is in its template.
type Speech struct {
	// PeersTLS: its peers dial it by TLS.
	PeersTLS bool
	// Anonymous: it asks clients for no certificate. Revokes: it has a list of those that it lets in no more.
	Anonymous, Revokes bool
}

// Flags are etcd's flags for one member: those of its template, and those for its own address and version, for what it
// has room for, and for how it is dialled.
func Flags(c *v1beta1.EtcdCluster, t *Template, member, address, version string, room Room,
	speaks Speech) []string {
	clientPort, peerPort, metricsPort := objects.Ports(c)
	peers := "http"
	everywhere := objects.AnyAddress(address)
	clients := URLOn(objects.Scheme(c), everywhere, clientPort)
	if speaks.PeersTLS {
		peers = "https"
	}
	if AllowsPlaintext(c) {
		clients = URLOn("http", everywhere, clientPort) + "," + clients
	}
	list := []string{
		"--name=" + member,
		"--data-dir=" + objects.DataDir,
		"--listen-client-urls=" + clients,
		"--advertise-client-urls=" + objects.ClientURL(c, member, address),
		"--listen-peer-urls=" + URLOn(peers, everywhere, peerPort),
		"--initial-advertise-peer-urls=" + objects.PeerURLOf(c, member, address, speaks.PeersTLS),
		"--listen-metrics-urls=" + URLOn("http", everywhere, metricsPort),
		fmt.Sprintf("--quota-backend-bytes=%d", room.Quota),
		fmt.Sprintf("--snapshot-count=%d", room.SnapshotCount),
	}
	list = append(append(list, optionFlags(t)...), extraFlags(t.Options.ExtraArgs, version)...)
	list = append(list, corruptionFlags(version)...)
	if t.Server != "" {
		list = append(list, certificateFlags(c.Name, version, speaks)...)
	}
	return list
}

// optionFlags are those of the template.
func optionFlags(t *Template) []string {
	list := t.Options.flags()
	if t.Server != "" {
		list = append(list, "--tls-min-version="+t.MinTLS, "--auth-token="+token())
	}
	if len(t.CipherSuites) > 0 {
		list = append(list, "--cipher-suites="+strings.Join(t.CipherSuites, ","))
	}
	return list
}

// Experimental reports whether a version has the experimental flags that newer ones have as flags and feature gates.
func Experimental(version string) bool {
	r, err := ParseRelease(version)
	return err == nil && r.Less(Release{3, 6, 0})
}

// SameFlags reports whether two versions are started with the same flags: then a new image is all that a pod needs.
func SameFlags(a, b string) bool { return Experimental(a) == Experimental(b) }

// corruptionFlags turn etcd's own corruption checks on: they were experimental flags in 3.5 and are feature gates
// since 3.6 (3.7 knows no --experimental flag any more).
func corruptionFlags(version string) []string {
	if Experimental(version) {
		return []string{"--experimental-initial-corrupt-check=true", "--experimental-compact-hash-check-enabled=true"}
	}
	return []string{"--feature-gates=CompactHashCheck=true,InitialCorruptCheck=true"}
}

// MinTLS is the oldest version of TLS that etcd speaks where the spec says nothing.
const MinTLS = "TLS1.2"

// certificateFlags make etcd speak TLS with certificates on both sides. Peers are told by their common name, not by
// the address that they come from: etcd would look every name of theirs up, at every connection. The flag that
// switches that off has lost its experimental in 3.6.
func certificateFlags(cluster, version string, speaks Speech) []string {
	skip := "--peer-skip-client-san-verification=true"
	if Experimental(version) {
		skip = "--experimental-peer-skip-client-san-verification=true"
	}
	list := []string{
		"--cert-file=" + objects.CertificateDir + "/server/" + objects.KeyCertificate,
		"--key-file=" + objects.CertificateDir + "/server/" + objects.KeyPrivate,
	}
	// Either flag alone makes etcd require a certificate (ServerConfig in its transport/listener.go).
	if !speaks.Anonymous {
		list = append(list, "--trusted-ca-file="+objects.CertificateDir+"/server/"+objects.KeyTrust,
			"--client-cert-auth=true")
	}
	if speaks.Revokes {
		list = append(list, objects.FlagCRL+"="+objects.CertificateDir+"/clients/"+objects.KeyCRL)
	}
	return append(list,
		"--peer-cert-file="+objects.CertificateDir+"/peer/"+objects.KeyCertificate,
		"--peer-key-file="+objects.CertificateDir+"/peer/"+objects.KeyPrivate,
		"--peer-trusted-ca-file="+objects.CertificateDir+"/peer/"+objects.KeyTrust,
		"--peer-client-cert-auth=true",
		"--peer-cert-allowed-cn="+peerName(cluster),
		skip,
	)
}

// token is what etcd gives to a client that logs in. It is set before there are users, so that these need no restart.
func token() string {
	return fmt.Sprintf("jwt,pub-key=%s/token/%s,priv-key=%s/token/%s,sign-method=ES256,ttl=10m", objects.CertificateDir,
		objects.KeyTokenPublic, objects.CertificateDir, objects.KeyTokenPrivate)
}

// validateSources says what is wrong with the snapshot that the spec of a cluster names.
func validateSources(s *v1beta1.EtcdClusterSpec) error {
	b := s.Bootstrap
	switch {
	case b == nil:
		return nil
	case b.Claims != nil:
		return validateClaims(s)
	case b.LatestSnapshot != nil:
		return validateLatest(b.LatestSnapshot)
	}
	return stores.ValidateSource("spec.bootstrap.snapshot", b.Snapshot)
}

// folderForm is that of spec.bootstrap.latestSnapshot.folder.
var folderForm = regexp.MustCompile(`^([0-9A-Za-z][-._0-9A-Za-z]*(/[0-9A-Za-z][-._0-9A-Za-z]*)*)?$`)

// validateLatest says what is wrong with spec.bootstrap.latestSnapshot, where the CRD did not refuse it.
func validateLatest(l *v1beta1.LatestSnapshot) error {
	const field = "spec.bootstrap.latestSnapshot"
	until := l.Until
	switch {
	case l.IfNone != v1beta1.BeginEmpty && l.IfNone != v1beta1.WaitForSnapshot:
		return fmt.Errorf(field+".ifNone %.100q is not BeginEmpty or Wait", l.IfNone)
	case len(l.Folder) > 512 || !folderForm.MatchString(l.Folder):
		return errors.New(field + ".folder is not a folder such as default/demo")
	case until != nil && (!until.Latest || until.ClusterID != ""):
		return errors.New(field + ".until can only be latest: true, without clusterID")
	}
	return stores.Validate(field+".store", &l.Store)
}

// validateClaims says what is wrong with spec.bootstrap.claims, where the CRD did not refuse it.
func validateClaims(s *v1beta1.EtcdClusterSpec) error {
	c := s.Bootstrap.Claims
	switch {
	case s.Storage.Medium == v1beta1.HostPath || s.Storage.Medium == v1beta1.Memory:
		return fmt.Errorf("spec.bootstrap.claims needs storage.medium Persistent")
	case len(c.Names) == 0:
		return fmt.Errorf("spec.bootstrap.claims.names is empty")
	case c.Path != "" && c.Path != "." && !filepath.IsLocal(c.Path):
		return fmt.Errorf("spec.bootstrap.claims.path is not a path within the volume, such as default.etcd")
	}
	return nil
}

// Replicas is how many voters the spec asks for.
func Replicas(c *v1beta1.EtcdCluster) int {
	if c.Spec.Replicas == nil {
		return 3
	}
	return int(*c.Spec.Replicas)
}
