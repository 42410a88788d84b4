package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/certtest"
)

// The tokens of these tests. None may appear in a log, an answer or a metric.
const (
	rightToken = "right-0123456789abcdef"
	nextToken  = "next-0123456789abcdef"
	wrongToken = "wrong-0123456789abcdef"
)

// authority signs certificates.
type authority struct{ *certtest.Pair }

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	return authority{certtest.Authority(t, pkix.Name{CommonName: name})}
}

// issue makes a certificate for 127.0.0.1 and its key, as PEM.
func (a authority) issue(t *testing.T, usage x509.ExtKeyUsage, end time.Time) (certificate, key []byte) {
	t.Helper()
	made := certtest.New(t, x509.Certificate{DNSNames: []string{"localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		KeyUsage: x509.KeyUsageDigitalSignature, NotAfter: end}, a.Pair)
	return made.PEM(), made.KeyPEM()
}

// client is a certificate for a caller.
func (a authority) client(t *testing.T) *tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(a.issue(t, x509.ExtKeyUsageClientAuth, time.Now().Add(time.Hour)))
	require.NoError(t, err)
	return &pair
}

// caller calls a server that trusts this authority's certificates; a new connection for each call unless it keeps them.
func (a authority) caller(certificate *tls.Certificate) *http.Client {
	config := &tls.Config{RootCAs: a.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}
	if certificate != nil { // presented whatever the server asks for
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return certificate, nil
		}
	}
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: config,
		ForceAttemptHTTP2: true}}
}

// files are those of a server in a test.
type files struct {
	CallerFiles
	ca authority
}

// newFiles writes a certificate, a key and the right token.
func newFiles(t *testing.T) files {
	t.Helper()
	dir := t.TempDir()
	f := files{ca: newAuthority(t, "hooks"), CallerFiles: CallerFiles{
		Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), Token: filepath.Join(dir, "tokens"),
	}}
	certificate, key := f.ca.issue(t, x509.ExtKeyUsageServerAuth, time.Now().Add(time.Hour))
	replace(t, f.Cert, certificate)
	replace(t, f.Key, key)
	replace(t, f.Token, []byte(rightToken+"\n"))
	return f
}

// replace writes a file as Kubernetes does: another file under the old name.
func replace(t *testing.T, file string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(file+"~", content, 0o600))
	require.NoError(t, os.Rename(file+"~", file))
}

// untouched is an etcd that counts what is asked of it.
type untouched struct {
	healthy
	observed, done atomic.Int32
}

func (u *untouched) Observe(ctx context.Context, e []observation.Endpoint) (*observation.Membership,
	map[string]observation.Health) {
	u.observed.Add(1)
	return u.healthy.Observe(ctx, e)
}

func (u *untouched) Do(ctx context.Context, s decision.Step, m *observation.Membership,
	e []observation.Endpoint) error {
	u.done.Add(1)
	return u.healthy.Do(ctx, s, m, e)
}

// lines is a log that is read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// secured is a server with these files, that listens, and the addresses of its hooks and its pages.
func secured(t *testing.T, f CallerFiles, o Options) (address, pages string, etcd *untouched, log *lines) {
	t.Helper()
	etcd, log = &untouched{}, &lines{}
	o.Etcd, o.Log = etcd, slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Settings.Image = "ghcr.io/quorate-dev/quorate:v0.1.0"
	var err error
	o.Callers, err = NewCallers(f, o.Log)
	require.NoError(t, err)
	url, pages, _ := listen(t, New(o))
	return strings.TrimPrefix(url, "http://"), pages, etcd, log
}

// call posts a body with an Authorization header, and returns the code and text of the answer.
func send(t *testing.T, client *http.Client, url, authorization string, body []byte) (int, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	require.NoError(t, err)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// TestCallers: with the token a call is answered, sent as Metacontroller 4.16 or 1.5 can.
func TestCallers(t *testing.T) {
	f := newFiles(t)
	address, _, etcd, log := secured(t, f.CallerFiles, Options{})
	client := f.ca.caller(nil)
	for _, header := range []string{"Bearer " + rightToken, "bearer  " + rightToken, basic("quorate", rightToken),
		basic("", rightToken)} {
		code, text, err := send(t, client, "https://"+address+"/sync", header, steady(t))
		require.NoError(t, err)
		require.Equal(t, 200, code, text)
	}
	require.EqualValues(t, 4, etcd.observed.Load())

	// As Metacontroller 1.5.20 does: net/http sends the user of the URL as Basic authentication.
	answer, err := client.Post("https://quorate:"+rightToken+"@"+address+"/sync", "application/json",
		bytes.NewReader(steady(t)))
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, 200, answer.StatusCode)
	require.Equal(t, 1, answer.ProtoMajor, "HTTP/2 is off")
	require.EqualValues(t, tls.VersionTLS13, answer.TLS.Version)
	require.NotContains(t, log.String(), rightToken)
}

func basic(user, password string) string {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, password)
	return r.Header.Get("Authorization")
}

// TestURLErrorHidesTheToken is what we rely on in Metacontroller 1.5.20, which logs such errors: net/http leaves the
// password of a URL out of them.
func TestURLErrorHidesTheToken(t *testing.T) {
	_, err := http.Post("http://quorate:"+rightToken+"@127.0.0.1:1/sync", "application/json", nil)
	require.ErrorContains(t, err, "quorate:***@127.0.0.1:1")
	require.NotContains(t, err.Error(), rightToken)
}

// TestTokenIsRotated: a second line is valid at once, and a line that is gone no longer. A file that can't be used
// changes nothing and is complained about once.
func TestTokenIsRotated(t *testing.T) {
	f := newFiles(t)
	address, _, _, log := secured(t, f.CallerFiles, Options{})
	client := f.ca.caller(nil) // keeps its connection
	code := func(token string) int {
		t.Helper()
		code, _, err := send(t, client, "https://"+address+"/sync", "Bearer "+token, steady(t))
		require.NoError(t, err)
		return code
	}
	require.Equal(t, []int{200, 401}, []int{code(rightToken), code(nextToken)})
	replace(t, f.Token, []byte(rightToken+"\n"+nextToken+"\n"))
	require.Equal(t, []int{200, 200}, []int{code(rightToken), code(nextToken)})
	replace(t, f.Token, []byte(nextToken))
	require.Equal(t, []int{401, 200}, []int{code(rightToken), code(nextToken)})

	for _, useless := range []string{"", "short", rightToken + "\n" + nextToken + "\n" + wrongToken} {
		replace(t, f.Token, []byte(useless))
		require.Equal(t, []int{401, 200, 200}, []int{code(rightToken), code(nextToken), code(nextToken)})
	}
	require.NoError(t, os.Remove(f.Token))
	require.Equal(t, []int{401, 200, 200}, []int{code(rightToken), code(nextToken), code(nextToken)})
	require.Equal(t, 4, strings.Count(log.String(), "can't be used"), "once for each file: %s", log)
	for _, token := range []string{rightToken, nextToken, wrongToken} {
		require.NotContains(t, log.String(), token)
	}
}

// TestCertificateIsRotated: each handshake has the pair of now; one that does not fit changes nothing.
func TestCertificateIsRotated(t *testing.T) {
	f := newFiles(t)
	address, _, _, log := secured(t, f.CallerFiles, Options{})
	serial := func() string {
		t.Helper()
		client := f.ca.caller(nil)
		defer client.CloseIdleConnections()
		answer, err := client.Get("https://" + address + "/sync")
		require.NoError(t, err)
		defer answer.Body.Close()
		return answer.TLS.PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	require.Equal(t, before, serial())
	certificate, key := f.ca.issue(t, x509.ExtKeyUsageServerAuth, time.Now().Add(time.Hour))
	replace(t, f.Cert, certificate) // the key is still the old one's, as in the middle of a replacement
	require.Equal(t, before, serial())
	require.Equal(t, before, serial())
	require.Equal(t, 1, strings.Count(log.String(), "can't be used"), "said once: %s", log)
	replace(t, f.Key, key)
	after := serial()
	require.NotEqual(t, before, after)
	require.Contains(t, log.String(), "read again")
}

// TestClientCertificates: only those signed by the CA of now, also on connections from before.
func TestClientCertificates(t *testing.T) {
	f := newFiles(t)
	good, bad := newAuthority(t, "callers"), newAuthority(t, "others")
	f.ClientCA, f.Token = filepath.Join(t.TempDir(), "ca.crt"), ""
	replace(t, f.ClientCA, good.PEM())
	address, _, etcd, log := secured(t, f.CallerFiles, Options{})
	url := "https://" + address + "/sync"

	keeps := f.ca.caller(good.client(t))
	code, text, err := send(t, keeps, url, "", steady(t))
	require.NoError(t, err)
	require.Equal(t, 200, code, text)
	require.EqualValues(t, 1, etcd.observed.Load())

	old, err := tls.X509KeyPair(good.issue(t, x509.ExtKeyUsageClientAuth, time.Now().Add(-time.Minute)))
	require.NoError(t, err)
	server, err := tls.X509KeyPair(good.issue(t, x509.ExtKeyUsageServerAuth, time.Now().Add(time.Hour)))
	require.NoError(t, err)
	for name, certificate := range map[string]*tls.Certificate{
		"none": nil, "of another CA": bad.client(t), "expired": &old, "of a server": &server,
	} {
		_, _, err := send(t, f.ca.caller(certificate), url, "Bearer "+rightToken, steady(t))
		require.Error(t, err, name)
	}

	replace(t, f.ClientCA, bad.PEM())
	code, text, err = send(t, keeps, url, "", steady(t))
	require.NoError(t, err)
	require.Equal(t, 401, code, "the connection is from before: %s", text)
	require.EqualValues(t, 1, etcd.observed.Load())
	_, _, err = send(t, f.ca.caller(good.client(t)), url, "", steady(t))
	require.Error(t, err)
	code, _, err = send(t, f.ca.caller(bad.client(t)), url, "", steady(t))
	require.NoError(t, err)
	require.Equal(t, 200, code)
	require.Contains(t, log.String(), "connection failed")
}

// TestHalfConfigured: what can't be meant is an error at the start, that says which flag and which file.
func TestHalfConfigured(t *testing.T) {
	f := newFiles(t)
	write := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	other := newFiles(t)
	key, err := os.ReadFile(f.Key)
	require.NoError(t, err)
	for says, c := range map[string]CallerFiles{
		"--tls-cert is set and --tls-key is not": {Cert: f.Cert},
		"--tls-key is set and --tls-cert is not": {Key: f.Key},
		"--client-ca needs HTTPS":                {ClientCA: f.Cert},
		"are no certificate and its private key": {Cert: f.Cert, Key: other.Key},
		"no such file":                           {Cert: f.Cert, Key: f.Key + "x"},
		"it holds no PEM certificate":            {Cert: f.Cert, Key: f.Key, ClientCA: f.Token},
		"it holds a EC PRIVATE KEY, where only certificates": {Cert: f.Cert, Key: f.Key,
			ClientCA: write("ca", string(key))},
		"--token-file: stat /none/tokens":           {Token: "/none/tokens"},
		"it is empty":                               {Token: write("empty", " \n\n")},
		"16 characters at least":                    {Token: write("short", "secret")},
		"printable ASCII characters without spaces": {Token: write("spaces", rightToken+" "+nextToken)},
		"it holds 3 tokens; two at most may be valid at once": {Token: write("three",
			rightToken+"\n"+nextToken+"\n"+wrongToken)},
	} {
		_, err := NewCallers(c, slog.Default())
		require.ErrorContains(t, err, says)
		for _, secret := range []string{rightToken, nextToken, wrongToken, "secret\"", "PRIVATE KEY-----"} {
			require.NotContains(t, err.Error(), secret)
		}
	}
}

// TestWarnings: one line at the start says who can call the hooks, if not just those who know the secret.
func TestWarnings(t *testing.T) {
	f := newFiles(t)
	for _, c := range []struct {
		files CallerFiles
		says  string
	}{
		{f.CallerFiles, ""},
		{CallerFiles{Cert: f.Cert, Key: f.Key, ClientCA: f.Cert}, ""},
		{CallerFiles{Cert: f.Cert, Key: f.Key}, "HTTPS without authentication"},
		{CallerFiles{Token: f.Token}, "learns the token"},
		{CallerFiles{}, "plain HTTP without authentication"},
	} {
		_, pages, _, log := secured(t, c.files, Options{})
		answer, err := http.Get(pages + "/healthz")
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Eventually(t, func() bool { return strings.Contains(log.String(), "listening") }, time.Minute,
			time.Millisecond)
		if c.says == "" {
			require.NotContains(t, log.String(), "WARN")
			continue
		}
		require.Eventually(t, func() bool { return strings.Contains(log.String(), c.says) }, time.Minute,
			time.Millisecond)
		require.Equal(t, 1, strings.Count(log.String(), "WARN"))
	}
	require.Contains(t, (*Callers)(nil).warning(), "plain HTTP without authentication")
}
