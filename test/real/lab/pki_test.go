package main

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPKI(t *testing.T) {
	dir := t.TempDir()
	nodes := map[string][]string{"node1": {"172.30.0.1"}, "node2": {"172.30.0.2", "fd00:172:30::2"}}
	must(t, writePKI(dir, "https://172.30.0.1:6443", dual.apiServiceIPs(), nodes, []string{"172.30.0.1"}))
	roots := x509.NewCertPool()
	roots.AddCert(readCert(t, dir, "ca"))
	for _, test := range []struct {
		file, user, group, host string
	}{
		{"apiserver", "kube-apiserver", "", "kubernetes.default.svc"},
		{"apiserver", "kube-apiserver", "", "10.96.0.1"},
		{"apiserver", "kube-apiserver", "", "fd00:96::1"},
		{"apiserver", "kube-apiserver", "", "127.0.0.1"},
		{"kubelet-serving-node2", "system:node:node2", "system:nodes", "172.30.0.2"},
		{"kubelet-serving-node2", "system:node:node2", "system:nodes", "fd00:172:30::2"},
		{"kubelet-node2", "system:node:node2", "system:nodes", ""},
		{"admin", "admin", "system:masters", ""},
		{"kube-scheduler", "system:kube-scheduler", "", ""},
	} {
		cert := readCert(t, dir, test.file)
		if cert.Subject.CommonName != test.user || strings.Join(cert.Subject.Organization, ",") != test.group {
			t.Errorf("%s is for %s", test.file, cert.Subject)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: test.host,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			t.Errorf("%s for %q: %v", test.file, test.host, err)
		}
	}
	if _, err := readCert(t, dir, "front-proxy-client").Verify(x509.VerifyOptions{Roots: roots}); err == nil {
		t.Error("the front proxy's certificate is of the same authority as all others")
	}
	for _, name := range []string{"sa.key", "admin.kubeconfig", "ca.key"} {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s can be read by others: %v", name, info.Mode())
		}
	}
}

func readCert(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name+".crt"))
	must(t, err)
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	return cert
}
