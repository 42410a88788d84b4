package check

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// expiresSoon is how long before its end people should hear of it.
const expiresSoon = 30 * 24 * time.Hour

// plain is what the checks of certificate and trust say of hooks without HTTPS; ok when all are called by it.
func (s *Seen) plain() (Finding, bool) {
	called := s.called()
	n := 0
	for _, w := range called {
		if w.address().Scheme != "https" {
			n++
		}
	}
	switch n {
	case 0:
		return Finding{}, false
	case len(called):
		return warn("hooks are plain HTTP, for all who reach them", "use what quorate install prints: "+
				s.install()),
			true
	}
	return fail(fmt.Sprintf("%d of %d hooks are called by plain HTTP, the others by HTTPS", n, len(called)),
			s.install()),
		true
}

func certificate(s *Seen) Finding {
	if f, is := s.plain(); is {
		return f
	}
	if f := s.without([]string{secrets}); f.State != OK {
		return f
	}
	secret, there := s.secrets[s.hooksSecret()]
	if !there {
		return fail("no such Secret: "+s.Namespace+"/"+s.hooksSecret()+", which Quorate's pods read", s.install())
	}
	again := s.renewal()
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return fail("tls.crt and tls.key of the Secret "+s.Namespace+"/"+s.hooksSecret()+" are no certificate and its "+
			"private key", again)
	}
	for _, w := range s.called() {
		if pair.Leaf.VerifyHostname(w.address().Hostname()) != nil {
			return fail(fmt.Sprintf("it is for %s, and the hooks are called as %s",
				strings.Join(pair.Leaf.DNSNames, ", "),
				w.address().Hostname()), again)
		}
	}
	until := pair.Leaf.NotAfter.UTC().Format(time.DateOnly)
	switch left := pair.Leaf.NotAfter.Sub(s.Now); {
	case left <= 0:
		return fail("it has expired on "+until, again)
	case s.Now.Before(pair.Leaf.NotBefore):
		return fail("it is not valid before "+pair.Leaf.NotBefore.UTC().Format(time.RFC3339),
			"see that clocks are right; "+
				"or else "+again)
	case left < expiresSoon:
		return warn("it expires on "+until, again)
	}
	return ok("for %s, until %s", strings.Join(pair.Leaf.DNSNames, ", "), until)
}

// renewal is the command for another certificate and another token.
func (s *Seen) renewal() string {
	return "make another (" + v1beta1.Docs + "explanation/security.md): " +
		command("kubectl -n %s delete secret %s", s.Namespace, s.hooksSecret()) + ", then " + s.install()
}

func trust(s *Seen) Finding {
	if f, is := s.plain(); is {
		return f
	}
	w := s.metacontroller()
	called := s.called()
	inline := slices.DeleteFunc(slices.Clone(called), func(w *webhook) bool { return w.CABundle == nil })
	switch len(inline) {
	case 0:
		return s.trustsFolder(w)
	case len(called):
	default:
		return fail(fmt.Sprintf("%d of %d hooks have no caBundle", len(called)-len(inline), len(called)), s.install())
	}
	if v, known := s.metacontrollerVersion(); known && v.before(4, 16) {
		return fail("the CompositeControllers say by caBundle what to trust, which Metacontroller "+v.String()+
			" does not read", s.install())
	}
	for _, w := range inline {
		if f := s.signed([]byte(w.CABundle.Inline), "the caBundle of the CompositeControllers",
			s.install()); f.State != OK {
			return f
		}
	}
	return ok("by the caBundle of the CompositeControllers")
}

// trustsFolder is about a Metacontroller that trusts what a folder holds, which it reads once.
func (s *Seen) trustsFolder(w *workload) Finding {
	if f := s.without([]string{trusted}); f.State != OK {
		return f
	}
	if s.trusted == nil {
		return fail("neither have the CompositeControllers a caBundle, nor is there a ConfigMap "+
			s.Metacontroller+"/"+callerCA, s.install())
	}
	if !mountsTrust(w) {
		return fail(fmt.Sprintf("%s does not mount the ConfigMap %s where SSL_CERT_DIR points", w.title(),
			callerCA),
			"mount it there ("+v1beta1.Docs+"explanation/security.md); or upgrade Metacontroller to 4.16 or later, and say so "+
				"to quorate install")
	}
	if f := s.signed([]byte(s.trusted.Data["ca.crt"]), "the ConfigMap "+s.Metacontroller+"/"+callerCA,
		s.install()+", then "+s.restart()); f.State != OK {
		return f
	}
	changed := lastChange(s.trusted.ObjectMeta)
	started := s.started(w)
	switch {
	case started.IsZero():
		return fail("Metacontroller is not running", command("kubectl -n %s describe pods", s.Metacontroller)+
			" shows why")
	case started.Before(changed):
		return fail(fmt.Sprintf("Metacontroller runs since %s and reads the ConfigMap %s once, which has changed at %s",
			started.UTC().Format(time.RFC3339), callerCA, changed.UTC().Format(time.RFC3339)), s.restart())
	}
	return ok("by the ConfigMap %s/%s, read at its start", s.Metacontroller, callerCA)
}

// signed reports whether an authority of this bundle has signed the hooks' certificate; without the right to see that,
// it is not known.
func (s *Seen) signed(bundle []byte, where, do string) Finding {
	if f := s.without([]string{secrets}); f.State != OK {
		return f
	}
	block, _ := pem.Decode(s.secrets[s.hooksSecret()].Data[corev1.TLSCertKey])
	if block == nil {
		return unchecked("no certificate exists")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return unchecked("the certificate can't be read")
	}
	roots := x509.NewCertPool()
	between := x509.NewCertPool()
	between.AppendCertsFromPEM(s.secrets[s.hooksSecret()].Data[corev1.TLSCertKey])
	roots.AppendCertsFromPEM(bundle)
	// At a time when it was valid: that it has expired is said elsewhere.
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between,
		CurrentTime: leaf.NotBefore.Add(time.Second)}); err != nil {
		return fail("the authority in "+where+" has not signed the hooks' certificate", do)
	}
	return ok("")
}

// mountsTrust reports whether the container reads the ConfigMap by SSL_CERT_DIR.
func mountsTrust(w *workload) bool {
	c := containerOf(w)
	folders, _ := env(c, "SSL_CERT_DIR")
	for _, v := range w.Spec.Template.Spec.Volumes {
		if v.ConfigMap == nil || v.ConfigMap.Name != callerCA {
			continue
		}
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == v.Name && slices.Contains(strings.Split(folders, ":"), m.MountPath)
		})
	}
	return false
}

// lastChange is the newest time at which the object was written, as the API server notes it.
func lastChange(m metav1.ObjectMeta) time.Time {
	last := m.CreationTimestamp.Time
	for _, f := range m.ManagedFields {
		if f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// started is when Metacontroller's process began; zero when it does not run.
func (s *Seen) started(w *workload) time.Time {
	for _, p := range s.podsOf(w) {
		for _, c := range p.Status.ContainerStatuses {
			if c.Name == containerOf(w).Name && c.State.Running != nil {
				return c.State.Running.StartedAt.Time
			}
		}
	}
	return time.Time{}
}

func token(s *Seen) Finding {
	w := s.deployment()
	called := s.called()
	if _, asked := env(containerOf(w), "QUORATE_TOKEN_FILE"); !asked &&
		!slices.ContainsFunc(containerOf(w).Args, func(a string) bool { return strings.HasPrefix(a, "--token-file") }) {
		return warn("Quorate asks for none: all who reach the hooks may call them",
			"use what quorate install prints, "+
				"with Metacontroller 4.16 or later or 1.5 ("+v1beta1.Docs+"explanation/security.md): "+s.install())
	}
	if f := s.without([]string{secrets}); f.State != OK {
		return f
	}
	valid := bytes.Fields(s.secrets[s.hooksSecret()].Data["tokens"])
	how := ""
	for _, w := range called {
		sent, by, f := s.sent(w)
		if f.State != OK {
			return f
		}
		if !slices.ContainsFunc(valid, func(v []byte) bool { return string(v) == sent }) {
			return fail("what Metacontroller sends ("+by+") is not among the tokens in the Secret "+
				s.Namespace+"/"+s.hooksSecret()+": every call is refused with 401", s.install())
		}
		how = by
	}
	return ok("sent by %s and accepted", how)
}

// sent is what Metacontroller sends with a call, and by what.
func (s *Seen) sent(w *webhook) (token, by string, f Finding) {
	if w.Authorization != nil {
		ref := w.Authorization.SecretRef
		if ref.Namespace != s.Namespace {
			return "", "", Finding{State: Unknown, Found: fmt.Sprintf("the token comes from the Secret %s/%s, which "+
				"this "+
				"program does not read", ref.Namespace, ref.Name),
				Do: "compare it with the last line of tokens in the Secret " + s.Namespace + "/" + s.hooksSecret()}
		}
		return string(bytes.TrimSpace(s.secrets[ref.Name].Data[ref.Key])), "a Secret", ok("")
	}
	if password, is := w.address().User.Password(); is {
		return password, "the URL", ok("")
	}
	return "", "", fail("Quorate asks for a token, and "+w.address().Host+w.address().Path+" is called without: every "+
		"call is refused with 401", s.install())
}
