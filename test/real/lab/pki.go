package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// identity is a user of the API server: each gets a certificate, a key and a
// kubeconfig named after it. Users beginning with "system:" have their rights
// from Kubernetes itself; the others get theirs in conf/base.yaml.
type identity struct{ file, user, group string }

var identities = []identity{
	{"admin", "admin", "system:masters"},
	{"kube-controller-manager", "system:kube-controller-manager", ""},
	{"kube-scheduler", "system:kube-scheduler", ""},
	{"kube-proxy", "system:kube-proxy", ""},
	{"coredns", "system:coredns", ""},
	{"local-path-provisioner", "lab:provisioner", ""},
}

// authority is a certificate authority that exists for one lab.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// leaf is a certificate. Hosts are names or addresses of what shows it as a server.
type leaf struct {
	file, user, group string
	hosts             []string
}

// writePKI fills a folder with all the keys of a cluster whose API server is
// reached from the nodes at server and from pods at services, and whose etcd at
// etcdHosts.
func writePKI(dir, server string, services []string, nodes map[string][]string, etcdHosts []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	apiServer := leaf{"apiserver", "kube-apiserver", "", append([]string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.lab.internal",
		"localhost", "127.0.0.1",
	}, services...)}
	users := identities
	leaves := []leaf{{"apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters", nil}}
	for name, ips := range nodes {
		// The node authorizer goes by exactly this user and group.
		user, group := "system:node:"+name, "system:nodes"
		users = append(users, identity{"kubelet-" + name, user, group})
		hosts := append([]string{name, "127.0.0.1"}, ips...)
		leaves = append(leaves, leaf{"kubelet-serving-" + name, user, group, hosts})
		apiServer.hosts = append(apiServer.hosts, ips...)
	}
	root, err := writeAuthority(dir, "ca", append(leaves, apiServer)...)
	if err != nil {
		return err
	}
	for _, who := range users {
		if err := root.writeIdentity(dir, server, who); err != nil {
			return err
		}
	}
	// An authority of its own, as kubeadm does.
	if _, err := writeAuthority(dir, "etcd-ca", leaf{"etcd-server", "control-plane", "", etcdHosts},
		leaf{"etcd-peer", "control-plane", "", etcdHosts},
		leaf{"apiserver-etcd-client", "kube-apiserver-etcd-client", "", nil}); err != nil {
		return err
	}
	// Of another authority: else any client certificate could pose as the proxy
	// that tells extension servers who a user is.
	if _, err := writeAuthority(dir, "front-proxy-ca",
		leaf{"front-proxy-client", "front-proxy-client", "", nil}); err != nil {
		return err
	}
	return writeServiceAccountKeys(dir)
}

// writeAuthority writes an authority, and certificates of it.
func writeAuthority(dir, name string, leaves ...leaf) (authority, error) {
	a, err := newAuthority(dir, name)
	if err != nil {
		return a, err
	}
	for _, l := range leaves {
		if _, _, err := a.issue(dir, l); err != nil {
			return a, err
		}
	}
	return a, nil
}

func writeServiceAccountKeys(dir string) error {
	key, _, err := newKey(dir, "sa")
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, "sa.pub"), "PUBLIC KEY", der, nil)
}

func newAuthority(dir, name string) (authority, error) {
	key, _, err := newKey(dir, name)
	if err != nil {
		return authority{}, err
	}
	template := certificate(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return authority{}, fmt.Errorf("certificate authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return authority{}, err
	}
	var text bytes.Buffer
	err = writePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", der, &text)
	return authority{cert, key, text.Bytes()}, err
}

// issue writes FILE.crt and FILE.key.
func (a authority) issue(dir string, l leaf) (certPEM, keyPEM []byte, err error) {
	key, keyPEM, err := newKey(dir, l.file)
	if err != nil {
		return nil, nil, err
	}
	template := certificate(l.user)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	if l.group != "" {
		template.Subject.Organization = []string{l.group}
	}
	for _, host := range l.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate %s: %w", l.file, err)
	}
	var text bytes.Buffer
	err = writePEM(filepath.Join(dir, l.file+".crt"), "CERTIFICATE", der, &text)
	return text.Bytes(), keyPEM, err
}

func (a authority) writeIdentity(dir, server string, who identity) error {
	cert, key, err := a.issue(dir, leaf{who.file, who.user, who.group, nil})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, who.file+".kubeconfig"), kubeconfig(server, a.pem, cert, key), 0o600)
}

// certificate holds for ten years, from an hour ago: clocks differ.
func certificate(user string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // cannot fail: rand.Reader does not
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: user},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(10, 0, 0),
	}
}

func newKey(dir, name string) (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	var text bytes.Buffer
	err = writePEM(filepath.Join(dir, name+".key"), "PRIVATE KEY", der, &text)
	return key, text.Bytes(), err
}

// writePEM writes a file that its owner alone can read, and a copy.
func writePEM(file, kind string, der []byte, into *bytes.Buffer) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if into != nil {
		into.Write(text)
	}
	return os.WriteFile(file, text, 0o600)
}

func kubeconfig(server string, ca, cert, key []byte) []byte {
	b := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: lab
clusters:
- name: lab
  cluster: {server: %q, certificate-authority-data: %s}
users:
- name: me
  user: {client-certificate-data: %s, client-key-data: %s}
contexts:
- name: lab
  context: {cluster: lab, user: me}
`, server, b(ca), b(cert), b(key))
}
