package chaos

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"
)

// Keys are a certificate, its private key, and the authorities that the other side must be signed by: under tls.crt,
// tls.key and ca.crt, in PEM, as in a Secret.
type Keys map[string][]byte

// middle is the server's side of TLS towards Quorate. Before it shows itself as a member it talks to that very
// member: one that can't be reached, or is not the one that Quorate means, is not there for Quorate either, and the
// authorities that the member says it trusts are passed on.
type middle struct {
	credentials.TransportCredentials // whatever is of clients, unused
	e                                *Etcd
}

// link is what the proxy knows of one connection of Quorate.
type link struct {
	credentials.TLSInfo
	member *tls.Config // as Quorate talks to the member that it means
}

// ServerHandshake implements credentials.TransportCredentials.
func (m middle) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	l := &link{}
	conn, info, err := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			own, err := l.meet(m.e, hello)
			if err != nil {
				_ = raw.Close() // an alert would tell Quorate more than one that isn't there can
			}
			return own, err
		}}).ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	var ok bool
	if l.TLSInfo, ok = info.(credentials.TLSInfo); !ok {
		return nil, nil, fmt.Errorf("a %T is not of TLS", info)
	}
	return conn, l, nil
}

// meet makes a handshake with the member that Quorate means, and is then how the proxy stands for it.
func (l *link) meet(e *Etcd, hello *tls.ClientHelloInfo) (*tls.Config, error) {
	server, operator, err := e.TLS(hello.ServerName)
	if err != nil {
		return nil, err
	}
	shown, clients, err := server.parse()
	if err != nil {
		return nil, err
	}
	own, members, err := operator.parse()
	if err != nil {
		return nil, err
	}
	l.member = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, ServerName: hello.ServerName,
		Certificates: []tls.Certificate{own}, RootCAs: pool(members)}
	subjects, err := l.trusts(e, hello.Conn.LocalAddr().String())
	if err != nil {
		return nil, err
	}
	// One that the member trusts and that has left ca.crt since can't be told of: its certificate is not known.
	clients = slices.DeleteFunc(clients, func(c *x509.Certificate) bool {
		return !slices.ContainsFunc(subjects, func(s []byte) bool { return string(s) == string(c.RawSubject) })
	})
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{shown},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool(clients), SessionTicketsDisabled: true,
	}, nil
}

// trusts are the subjects (DER) of the authorities that the member at this address takes clients' certificates from.
func (l *link) trusts(e *Etcd, address string) (subjects [][]byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	raw, err := e.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	config := l.member.Clone()
	config.GetClientCertificate = func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		subjects = request.AcceptableCAs
		return &config.Certificates[0], nil
	}
	err = tls.Client(raw, config).HandshakeContext(ctx)
	return subjects, err
}

// parse is the certificate, and the authorities.
func (k Keys) parse() (own tls.Certificate, authorities []*x509.Certificate, err error) {
	if own, err = tls.X509KeyPair(k["tls.crt"], k["tls.key"]); err != nil {
		return own, nil, err
	}
	for block, rest := pem.Decode(k["ca.crt"]); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return own, nil, err
		}
		authorities = append(authorities, c)
	}
	if len(authorities) == 0 {
		return own, nil, errors.New("ca.crt holds no certificate")
	}
	return own, authorities, nil
}

func pool(certificates []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certificates {
		p.AddCert(c)
	}
	return p
}
