package archive

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/test/certtest"
)

// Every backend meets every failure, in a process of its own with credentials that are marked.
// Neither what that process prints nor its error has the mark, or anything that was sent to the
// store to prove who asks.

// mark is in every secret, and in what follows the bucket in every URL.
const mark = "MARKED"

// asClient makes this test program one that uses a store once, as the environment says.
const asClient = "QUORATE_TEST_STORE"

// use is what such a process does.
type use struct {
	Upload  bool
	Place   Place
	Timeout time.Duration
}

// useStore stores something or fetches it, and prints the error.
func useStore(told string) int {
	var u use
	if err := json.Unmarshal([]byte(told), &u); err != nil {
		panic(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), u.Timeout)
	defer stop()
	err := u.upload(ctx)
	if !u.Upload {
		err = u.download(ctx)
	}
	fmt.Println(ReasonOf(err), err)
	slog.New(slog.NewJSONHandler(os.Stderr, nil)).Error("failed", "error", err)
	return 0
}

func (u use) upload(ctx context.Context) error {
	if !u.Upload {
		return nil
	}
	s, err := openStore(ctx, u.Place, true)
	if err != nil {
		return err
	}
	defer s.Close()
	_, _, err = s.put(ctx, key, bytes.NewReader(database(3<<20)), Form{Compression: v1beta1.CompressNone}, false)
	return err
}

func (u use) download(ctx context.Context) error {
	place, query, asked := strings.Cut(u.Place.URL, "?")
	if asked {
		query = "?" + query
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	_, err = Fetch(ctx, Source{URL: place + "/" + key + query, StoreDir: u.Place.Dir, CAFile: u.Place.CAFile},
		filepath.Join(dir, "db"))
	return err
}

// trouble is a store in which nothing works. What it answers repeats all that it was told.
type trouble struct {
	mode string
	mu   sync.Mutex
	told []string // what proved who asked
}

func (s *trouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.told = append(s.told, r.Header.Get("Authorization"), r.URL.RawQuery, r.Header.Get("X-Amz-Security-Token"))
	s.mu.Unlock()
	var echo strings.Builder
	fmt.Fprintf(&echo, "%s %s\n", r.Method, r.URL)
	_ = r.Header.Write(&echo)
	if s.mode == "403" || s.mode == "500" || s.mode == "echo" {
		_, _ = io.Copy(io.Discard, r.Body) // who is still writing does not read the answer
	}
	switch s.mode {
	case "reset":
		drop(w)
	case "cut off", "reset midway":
		s.midway(w, r)
	default:
		code := map[string]int{"403": 403, "500": 500, "echo": 400}[s.mode]
		refuse(w, r, code, echo.String())
	}
}

// refuse answers with an error in the words of the store.
func refuse(w http.ResponseWriter, r *http.Request, code int, echo string) {
	word := map[int]string{403: "SignatureDoesNotMatch", 404: "NoSuchKey", 500: "InternalError"}[code]
	if r.Header.Get("X-Ms-Version") != "" {
		word = map[int]string{403: "AuthenticationFailed", 404: "BlobNotFound", 500: "ServerBusy"}[code]
	}
	w.Header().Set("X-Ms-Error-Code", word)
	w.WriteHeader(code)
	if strings.Contains(r.Host, "googleapis") {
		raw, _ := json.Marshal(map[string]any{"error": map[string]any{"code": code, "message": echo,
			"errors": []map[string]string{{"reason": "forbidden", "message": echo}}}})
		_, _ = w.Write(raw)
		return
	}
	var text bytes.Buffer
	_ = xmlEscape(&text, echo)
	fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>%s</Message><StringToSign>%s</StringToSign></Error>", word, &text, &text)
}

func xmlEscape(w io.Writer, text string) error {
	_, err := strings.NewReplacer("<", "&lt;", "&", "&amp;", "\r\n", " ", "\n", " ").WriteString(w, text)
	return err
}

// midway sends half of what is fetched, and takes half of what is stored.
func (s *trouble) midway(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodDelete:
		w.WriteHeader(map[bool]int{true: http.StatusAccepted,
			false: http.StatusNoContent}[r.Header.Get("X-Ms-Version") != ""])
		return
	case r.Method == http.MethodHead, strings.Contains(r.URL.Path, recordSuffix):
		refuse(w, r, http.StatusNotFound, "none")
		return
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Length", "1000000")
		w.Header().Set("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")
		w.Header().Set("ETag", `"0x1"`)
		w.Header().Set("X-Ms-Blob-Type", "BlockBlob")
		w.Header().Set("X-Goog-Hash", "crc32c=n03x6A==")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(make([]byte, 300000))
		_ = http.NewResponseController(w).Flush()
	default:
		_, _ = io.CopyN(io.Discard, r.Body, 100000)
	}
	if s.mode == "reset midway" {
		drop(w)
	}
	panic(http.ErrAbortHandler)
}

// drop resets the connection.
func drop(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if secure, is := conn.(*tls.Conn); is {
		conn = secure.NetConn()
	}
	if tcp, is := conn.(*net.TCPConn); is {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// proxy takes every client that wants to reach a store at Google to this one.
func (s *trouble) proxy(t *testing.T, certificate tls.Certificate) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	inside := make(chan net.Conn)
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute, ErrorLog: nil}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(&through{l, inside, make(chan struct{})}) }()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				buffer := make([]byte, 4096)
				if _, err := conn.Read(buffer); err != nil {
					return
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
				inside <- tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{certificate},
					MinVersion: tls.VersionTLS12})
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// through is a listener of connections that come another way.
type through struct {
	net.Listener
	conns chan net.Conn
	ended chan struct{}
}

func (l *through) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *through) Close() error {
	close(l.ended)
	return l.Listener.Close()
}

// authorities are one that is trusted, in a file, and an unknown one, with a certificate of each for
// the names of stores.
type authorities struct {
	file           string
	known, unknown tls.Certificate
}

func newAuthorities(t *testing.T) authorities {
	t.Helper()
	known, stranger := forge(t), forge(t)
	a := authorities{file: filepath.Join(t.TempDir(), "ca.crt"), known: known.TLS(), unknown: stranger.TLS()}
	require.NoError(t, os.WriteFile(a.file, known.PEM(), 0o600))
	return a
}

// forge makes a certificate for the names of stores that is its own authority.
func forge(t *testing.T) *certtest.Pair {
	t.Helper()
	return certtest.New(t, x509.Certificate{IsCA: true, BasicConstraintsValid: true,
		DNSNames:    []string{"storage.googleapis.com", "*.storage.googleapis.com", "oauth2.googleapis.com"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}, nil)
}

// backend says how a process comes to a store, with what credentials.
type backend struct {
	name string
	// at is the place and the environment for a store at this address, which is http://host:port or
	// https://host:port.
	at func(t *testing.T, address string, a authorities) (Place, []string)
	// proxied: it is reached by a proxy.
	proxied bool
	// patience is how long a process may try again.
	patience time.Duration
}

var backends = []backend{
	{name: "s3", patience: time.Minute, at: func(_ *testing.T, address string, a authorities) (Place, []string) {
		return Place{URL: "s3://bucket/" + mark + "?use_path_style=true&region=" + mark + "&endpoint=" + address,
				CAFile: a.file}, []string{"AWS_ACCESS_KEY_ID=" + mark + "ID", "AWS_SECRET_ACCESS_KEY=" + mark + "KEY",
				"AWS_SESSION_TOKEN=" + mark + "TOKEN", "AWS_EC2_METADATA_DISABLED=true"}
	}},
	{name: "azblob with a key", patience: time.Minute, at: func(_ *testing.T, address string, a authorities) (Place,
		[]string) {
		return azure(address, a, "AZURE_STORAGE_KEY="+
			base64.StdEncoding.EncodeToString([]byte(mark+strings.Repeat("k", 40))))
	}},
	{name: "azblob with a SAS token", patience: time.Minute,
		at: func(_ *testing.T, address string, a authorities) (Place, []string) {
			return azure(address, a, "AZURE_STORAGE_SAS_TOKEN=sv=2024-11-04&se=2099-01-01&sr=c&sp=racwdl&sig="+mark+
				"SIGNATURE%3D")
		}},
	{name: "gs", proxied: true, patience: 4 * time.Second, at: func(t *testing.T, address string, a authorities) (Place,
		[]string) {
		return google(t, address, a, "/token")
	}},
}

// google is a bucket that is reached by a proxy, with a token from a server that answers at /token,
// and refuses at /refused.
func google(t *testing.T, address string, a authorities, token string) (Place, []string) {
	t.Helper()
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/refused") {
			w.WriteHeader(http.StatusBadRequest)
			raw, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, `{"error":"invalid_grant","error_description":%q}`, raw)
			return
		}
		_, _ = fmt.Fprintf(w, `{"access_token":"%sTOKEN","token_type":"Bearer","expires_in":3600}`, mark)
	}))
	t.Cleanup(func() { _ = tokens.Config.Close() })
	return Place{URL: "gs://bucket/" + mark, CAFile: a.file},
		[]string{"HTTPS_PROXY=" + address, "GOOGLE_APPLICATION_CREDENTIALS=" + serviceAccount(t, tokens.URL+token)}
}

func azure(address string, a authorities, credential string) (Place, []string) {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	return Place{URL: "azblob://bucket/" + mark, CAFile: a.file}, []string{
		"AZURE_STORAGE_ACCOUNT=" + mark + "account", credential, "AZURE_STORAGE_PROTOCOL=" + u.Scheme,
		"AZURE_STORAGE_DOMAIN=" + u.Host, "AZURE_STORAGE_IS_LOCAL_EMULATOR=true",
	}
}

// serviceAccount is a file with credentials of Google's.
func serviceAccount(t *testing.T, tokens string) string {
	t.Helper()
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	raw, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "p", "client_email": mark + "@p.iam.gserviceaccount.com",
		"private_key_id": mark + "KEY", "token_uri": tokens,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
			Bytes: x509.MarshalPKCS1PrivateKey(own)})),
	})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "credentials.json")
	require.NoError(t, os.WriteFile(file, raw, 0o600))
	return file
}

// failures are what happens on the way, and what is said of it.
var failures = []struct {
	name string
	want string // the reason of the error, and its cause
}{
	{"no such host", "Unreachable: its name is not known to DNS"},
	{"refused", "Unreachable: connection refused"},
	{"reset", "Unreachable: it broke off before its end"},
	{"stranger", "Unreachable: its certificate is signed by an authority that is not trusted"},
	{"403", "Denied: HTTP 403"},
	{"500", "Failed: HTTP 500"},
	{"echo", "Failed: HTTP 400"},
	{"cut off", "Unreachable: it broke off before its end"},
	{"reset midway", "Unreachable: it broke off before its end"},
}

func TestNoFailureOfAStoreTellsASecret(t *testing.T) {
	if testing.Short() {
		t.Skip("each of some seventy processes takes seconds")
	}
	a := newAuthorities(t)
	type attempt struct {
		name, want string
		store      *trouble
		backend    backend
		said       string
	}
	var all []*attempt
	var processes sync.WaitGroup
	room := make(chan struct{}, 12)
	for _, b := range backends {
		for _, f := range failures {
			for _, upload := range []bool{false, true} {
				one := &attempt{name: fmt.Sprintf("%s/%s/upload=%t", b.name, f.name, upload), want: f.want,
					store: &trouble{mode: f.name}, backend: b}
				place, env := b.at(t, one.store.address(t, b, a), a)
				all = append(all, one)
				processes.Go(func() {
					room <- struct{}{}
					defer func() { <-room }()
					one.said = asked(t, use{Upload: upload, Place: place, Timeout: b.patience}, env)
				})
			}
		}
	}
	refused := &attempt{name: "gs/no token", want: "Denied: HTTP 400, invalid_grant", store: &trouble{mode: "403"},
		backend: backends[3]}
	place, env := google(t, refused.store.address(t, backends[3], a), a, "/refused")
	refused.said, all = asked(t, use{Place: place, Timeout: time.Minute}, env), append(all, refused)
	processes.Wait()
	for _, one := range all {
		t.Run(one.name, func(t *testing.T) {
			one.store.silent(t, one.said)
			reason, cause, _ := strings.Cut(one.want, ": ")
			if one.backend.proxied && strings.Contains(one.said, "did not answer in time") {
				return // Google's SDK tries again until there is no time left
			}
			assert.Contains(t, "\n"+one.said, "\n"+reason+" ")
			assert.Contains(t, one.said, cause)
		})
	}
}

// TestAccountOfTheURL: the key of a Secret that names no account is that of the account in the URL.
func TestAccountOfTheURL(t *testing.T) {
	a := newAuthorities(t)
	for _, given := range []string{"", "inurl"} {
		store := &trouble{mode: "403"}
		place, env := azure(store.address(t, backends[1], a), a,
			"AZURE_STORAGE_KEY="+base64.StdEncoding.EncodeToString([]byte(mark+strings.Repeat("k", 40))))
		place.URL += "?storage_account=inurl"
		said := asked(t, use{Place: place, Timeout: time.Minute}, append(env, "AZURE_STORAGE_ACCOUNT="+given))
		store.silent(t, said)
		assert.Contains(t, said, "Denied ")
		assert.Contains(t, strings.Join(store.told, "\n"), "SharedKey inurl:")
	}
}

// TestLoginOfACloud: who asks for a token of Azure's asks the cloud that the store is in, and no other.
func TestLoginOfACloud(t *testing.T) {
	if testing.Short() {
		t.Skip("Microsoft's SDK asks again for seconds")
	}
	identity := []string{"AZURE_TENANT_ID=00000000-0000-0000-0000-000000000001", "AZURE_CLIENT_ID=" + mark + "ID",
		"AZURE_CLIENT_SECRET=" + mark + "SECRET"}
	var processes sync.WaitGroup
	for _, c := range []struct{ query, given, want string }{
		{"", "", "login.microsoftonline.com:443"},
		{"&domain=blob.core.windows.net", "", "login.microsoftonline.com:443"},
		{"&domain=blob.core.usgovcloudapi.net", "", "login.microsoftonline.us:443"},
		{"&domain=blob.core.chinacloudapi.cn", "", "login.chinacloudapi.cn:443"},
		{"&domain=blob.core.usgovcloudapi.net", "https://login.chinacloudapi.cn/", "login.chinacloudapi.cn:443"},
	} {
		var mu sync.Mutex
		var wanted []string
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Contains(wanted, r.Host) {
				wanted = append(wanted, r.Host)
			}
			w.WriteHeader(http.StatusForbidden)
		}))
		t.Cleanup(proxy.Close)
		processes.Go(func() {
			env := append(slices.Clone(identity), "HTTPS_PROXY="+proxy.URL, "AZURE_AUTHORITY_HOST="+c.given)
			said := asked(t, use{Place: Place{URL: "azblob://bucket/" + mark + "?storage_account=inurl" + c.query},
				Timeout: time.Minute}, env)
			assert.NotContains(t, said, mark)
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, []string{c.want}, wanted, "%s: %s", c.query, said)
		})
	}
	processes.Wait()
}

// address of the store, or of the proxy before it.
func (s *trouble) address(t *testing.T, b backend, a authorities) string {
	t.Helper()
	switch {
	case s.mode == "no such host":
		return "http://nowhere.invalid:1"
	case s.mode == "refused":
		return "http://127.0.0.1:1" // where nothing listens
	case b.proxied && s.mode == "stranger":
		return s.proxy(t, a.unknown)
	case b.proxied:
		return s.proxy(t, a.known)
	}
	server := httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	t.Cleanup(func() { _ = server.Config.Close() }) // without waiting for those who are still at it
	if s.mode == "stranger" {
		server.TLS = &tls.Config{Certificates: []tls.Certificate{a.unknown}, MinVersion: tls.VersionTLS12}
		server.StartTLS()
	} else {
		server.Start()
	}
	return server.URL
}

// asked is what a process prints that uses a store.
func asked(t *testing.T, u use, env []string) string {
	told, err := json.Marshal(u)
	if !assert.NoError(t, err) { // without that, the process would run all tests again, and so on
		return ""
	}
	process := exec.CommandContext(t.Context(), os.Args[0])
	process.Env = append(slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "AWS_") || strings.HasPrefix(pair, "AZURE_") ||
			strings.HasPrefix(pair, "GOOGLE_") || strings.Contains(strings.ToLower(pair), "_proxy=")
	}), append(env, asClient+"="+string(told))...)
	said, err := process.CombinedOutput()
	assert.NoError(t, err, string(said))
	return string(said)
}

// silent fails when something was said that proves who asks, or that follows the bucket in a URL.
func (s *trouble) silent(t *testing.T, said string) {
	t.Helper()
	assert.NotContains(t, said, mark)
	assert.NotContains(t, said, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, proof := range s.told {
		for _, part := range strings.FieldsFunc(proof, func(r rune) bool { return strings.ContainsRune(" ,;&", r) }) {
			if _, value, _ := strings.Cut(part, "="); len(value) > 12 {
				assert.NotContains(t, said, value)
			}
		}
	}
}
