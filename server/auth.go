package server

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/quorate-dev/quorate/server/wire"
)

// CallerFiles name the files by which callers of the hooks know the server and the server knows them. Each is read
// again when it changes. The zero value is plain HTTP without authentication.
type CallerFiles struct {
	// Cert and Key are the server's certificate, with its chain, and its private key, as PEM: both or neither.
	Cert, Key string
	// ClientCA holds the PEM certificates of those who sign callers' certificates. Callers must have one. Needs Cert.
	ClientCA string
	// Token holds the token that callers must send, alone on a line; or two of them, while one takes the other's place.
	Token string
}

// Callers says who may call the hooks, and how. Make one with NewCallers; nil is plain HTTP without authentication.
type Callers struct {
	pair     *reread[*tls.Certificate] // nil: plain HTTP
	clientCA *reread[*x509.CertPool]   // nil: no certificate is asked for
	tokens   *reread[[]digest]         // nil: no token is asked for
}

// NewCallers reads the files. The error says which of them can't be used, in the words of the flags of quorate serve.
func NewCallers(files CallerFiles, log *slog.Logger) (*Callers, error) {
	c := &Callers{}
	err := error(nil)
	switch {
	case files.Cert == "" && files.Key != "":
		return nil, errors.New("--tls-key is set and --tls-cert is not: HTTPS needs both")
	case files.Cert != "" && files.Key == "":
		return nil, errors.New("--tls-cert is set and --tls-key is not: HTTPS needs both")
	case files.Cert == "" && files.ClientCA != "":
		return nil, errors.New("--client-ca needs HTTPS: set --tls-cert and --tls-key too")
	}
	if files.Cert != "" {
		if c.pair, err = keyPair(log, files.Cert, files.Key); err != nil {
			return nil, err
		}
	}
	if files.ClientCA != "" {
		if c.clientCA, err = authorities(log, files.ClientCA); err != nil {
			return nil, err
		}
	}
	if files.Token != "" {
		if c.tokens, err = tokens(log, files.Token); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// warning says who can call the hooks when that is more than those who know the secret; else it is empty.
func (c *Callers) warning() string {
	encrypted := c != nil && c.pair != nil
	known := c != nil && (c.tokens != nil || c.clientCA != nil)
	switch {
	case encrypted && known:
		return ""
	case encrypted:
		return "the hooks are HTTPS without authentication: unless --token-file or --client-ca is set, all who reach " +
			"this port decide which etcd members exist; only a NetworkPolicy that is enforced keeps others than " +
			"Metacontroller away"
	case known:
		return "the hooks are plain HTTP: anyone who can listen on the network between Metacontroller and this port " +
			"learns the token of --token-file, and can then decide which etcd members exist; set --tls-cert and " +
			"--tls-key"
	}
	return "the hooks are plain HTTP without authentication: all who reach this port decide which etcd members " +
		"exist; only a NetworkPolicy that is enforced keeps others than Metacontroller away (quorate install sets up " +
		"HTTPS and a token)"
}

// digest is a token's SHA-256: all are of one length, so that comparing them takes one time.
type digest [sha256.Size]byte

// leastToken is the fewest characters of a token. quorate install makes them of 43, which is 256 bits.
const leastToken = 16

// tokens reads a token file.
func tokens(log *slog.Logger, file string) (*reread[[]digest], error) {
	t, err := newReread(log, func(contents [][]byte) ([]digest, error) {
		all, err := parseTokens(contents[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return all, nil
	}, file)
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	return t, nil
}

func parseTokens(text []byte) ([]digest, error) {
	var all []digest
	for line := range bytes.Lines(text) {
		token := bytes.TrimSpace(line)
		switch {
		case len(token) == 0:
			continue
		case bytes.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
			return nil, errors.New("a token has printable ASCII characters without spaces, one token on a line")
		case len(token) < leastToken:
			return nil, fmt.Errorf("a token has %d characters at least; openssl rand -hex 32 makes a good one",
				leastToken)
		}
		all = append(all, sha256.Sum256(token))
	}
	switch {
	case len(all) == 0:
		return nil, errNothing
	case len(all) > 2:
		return nil, fmt.Errorf("it holds %d tokens; two at most may be valid at once, the old and the new one",
			len(all))
	}
	return all, nil
}

// The words for a caller who is refused. What it sent is not among them.
var (
	errNoToken = wire.Refuse(http.StatusUnauthorized, "the call carries no token: send the one of --token-file as "+
		"Authorization: Bearer, or as the password of Authorization: Basic")
	errWrongToken = wire.Refuse(http.StatusUnauthorized, "the call's token is not one of --token-file")
	errNoCert     = wire.Refuse(http.StatusUnauthorized, "the call's connection carries no client certificate")
	errWrongCert  = wire.Refuse(http.StatusUnauthorized, "the connection's client certificate is not, or no longer, "+
		"signed by --client-ca")
)

// check refuses a call that doesn't come from an allowed caller.
func (c *Callers) check(r *http.Request) error {
	if c == nil {
		return nil
	}
	if c.clientCA != nil {
		if err := c.checkCertificate(r.TLS); err != nil {
			return err
		}
	}
	if c.tokens != nil {
		return checkToken(r, c.tokens.get())
	}
	return nil
}

// checkCertificate repeats for each call what the handshake did once for the connection, which may be older than the CA
// that counts now.
func (c *Callers) checkCertificate(state *tls.ConnectionState) error {
	if state == nil || len(state.PeerCertificates) == 0 {
		return errNoCert
	}
	between := x509.NewCertPool()
	for _, certificate := range state.PeerCertificates[1:] {
		between.AddCert(certificate)
	}
	if _, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: c.clientCA.get(), Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return errWrongCert
	}
	return nil
}

func checkToken(r *http.Request, valid []digest) error {
	token, found := sentToken(r)
	if !found {
		return errNoToken
	}
	sent := sha256.Sum256([]byte(token))
	equal := 0
	for _, d := range valid {
		equal |= subtle.ConstantTimeCompare(sent[:], d[:])
	}
	if equal != 1 {
		return errWrongToken
	}
	return nil
}

// sentToken is the token in a call's only Authorization header. Metacontroller before 4.16 can't send a bearer token;
// 1.5 sends the password of a URL.
func sentToken(r *http.Request) (string, bool) {
	if len(r.Header.Values("Authorization")) != 1 {
		return "", false
	}
	if _, password, ok := r.BasicAuth(); ok {
		return password, true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// authenticate lets a call pass if its sender may call. It comes before anything of the body is read, and the body of a
// refused call never is: the connection ends.
func (s *Server) authenticate(c *gin.Context) {
	err := s.options.Callers.check(c.Request)
	if err == nil {
		welcome(c.Request.Context())
		return
	}
	c.Header("Connection", "close")
	c.Header("WWW-Authenticate", `Bearer realm="quorate"`)
	s.refuse(c, err)
}
