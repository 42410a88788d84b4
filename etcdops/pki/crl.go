package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// What a list of revoked certificates may have: etcd reads the whole of it at each handshake.
const (
	largestCRL  = 128 << 10 // bytes
	mostRevoked = 1000
)

// serialOf is a certificate's number as etcd compares it: without a sign.
func serialOf(n *big.Int) string { return hex.EncodeToString(n.Bytes()) }

// parseCRL reads a list in PEM or DER. The flaw says why etcd would not, in one of its releases; empty for nothing.
func parseCRL(text []byte) (list *x509.RevocationList, flaw string) {
	if len(text) > largestCRL {
		return nil, fmt.Sprintf("ca.crl has %d bytes, and %d are the most", len(text), largestCRL)
	}
	der := text
	if block, rest := pem.Decode(text); block != nil {
		if next, _ := pem.Decode(rest); next != nil || block.Type != "X509 CRL" {
			return nil, "ca.crl must have one list (X509 CRL) and nothing else: etcd takes one"
		}
		der = block.Bytes
	}
	list, err := x509.ParseRevocationList(der)
	if err != nil || len(list.Raw) != len(der) {
		return nil, "ca.crl is no list of revoked certificates (an X.509 CRL of version 2, for which openssl wants " +
			"crl_extensions) in PEM or DER"
	}
	if n := len(list.RevokedCertificateEntries); n > mostRevoked {
		return nil, fmt.Sprintf("ca.crl names %d certificates, and %d are the most: replace the authority instead", n,
			mostRevoked)
	}
	return list, ""
}

func readCRL(text []byte) *observation.CRL {
	list, flaw := parseCRL(text)
	if flaw != "" {
		return &observation.CRL{Flaw: flaw}
	}
	sum := sha256.Sum256(list.Raw)
	read := &observation.CRL{ID: hex.EncodeToString(sum[:])}
	for _, revoked := range list.RevokedCertificateEntries {
		read.Serials = append(read.Serials, serialOf(revoked.SerialNumber))
	}
	return read
}

// revoked is the list of another Secret as every etcd reads it.
func revoked(name string, from map[string][]byte) (map[string][]byte, error) {
	list, flaw := parseCRL(from[objects.KeyCRL])
	if flaw != "" {
		return nil, fmt.Errorf("the Secret %s: %s", name, flaw)
	}
	return map[string][]byte{objects.KeyCRL: list.Raw}, nil
}
