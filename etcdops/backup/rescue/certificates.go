package rescue

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// valid is how long the certificates of a static pod are: it should be gone within hours.
const valid = 30 * 24 * time.Hour

// certify writes what the member shows and trusts beside its data, signed by its authority: the Secrets that it had are
// where no one can read them without an API server.
func (o order) certify(m member, at place) error {
	ca, key, text, err := authority(o.caCert, o.caKey)
	if err != nil {
		return err
	}
	files := map[string][]byte{"ca.crt": text}
	for file, name := range map[string]string{"server": "", "peer": cluster(m.name) + ":peers"} {
		certificate, private, err := issue(ca, key, name, at.address)
		if err != nil {
			return err
		}
		files[file+".crt"] = certificate
		files[file+".key"] = private
	}
	if err := deposit(m.dir, files); err != nil {
		return fmt.Errorf("certificates can't be written below %s: %w; run this as root", m.dir, cause(err))
	}
	return nil
}

// deposit writes files for etcd's user. The directory is that user's, and this is root: no link leads out of it.
func deposit(dir string, files map[string][]byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.RemoveAll(certificates); err != nil {
		return err
	}
	if err := root.Mkdir(certificates, 0o700); err != nil {
		return err
	}
	for file, content := range files {
		path := filepath.Join(certificates, file)
		if err := root.WriteFile(path, content, 0o600); err != nil {
			return err
		}
		if err := root.Lchown(path, objects.UserID, objects.UserID); err != nil {
			return err
		}
	}
	return root.Lchown(certificates, objects.UserID, objects.UserID)
}

// authority reads one from files, its key in any of the forms that OpenSSL and kubeadm write. No error holds what is in
// them.
func authority(certificate, private string) (*x509.Certificate, crypto.Signer, []byte, error) {
	text, err := os.ReadFile(certificate)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("the authority can't be read from %s: %w; name its file with --ca-cert",
			certificate, cause(err))
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, nil, nil, fmt.Errorf("%s holds no certificate", certificate)
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !ca.IsCA {
		return nil, nil, nil, fmt.Errorf("%s holds no authority's certificate", certificate)
	}
	secret, err := os.ReadFile(private)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("the authority's key can't be read from %s: %w; name its file with --ca-key",
			private, cause(err))
	}
	key, err := parseKey(secret)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s %w", private, err)
	}
	if public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(ca.PublicKey) {
		return nil, nil, nil, fmt.Errorf("the key in %s is not that of the authority in %s", private, certificate)
	}
	return ca, key, text, nil
}

func parseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("holds no key")
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	return nil, errors.New("holds no key that can be read: an encrypted one must be decrypted first")
}

// issue makes a certificate for servers and clients at this address.
func issue(ca *x509.Certificate, signer crypto.Signer, name, address string) (certificate, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	number, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{SerialNumber: number, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.ParseIP(address), net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, errors.New("the authority's key does not sign")
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), nil
}
