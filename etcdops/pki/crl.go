package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// What a list of revoked certificates may have: etcd reads the whole of it at each handshake.
const (
	largestCRL  = 128 << 10 // bytes
	mostRevoked = 1000
)

// crlOf is a list of revoked certificates in DER: the first in a PEM text, or what is DER already.
func crlOf(text []byte) []byte {
	if block, _ := pem.Decode(text); block != nil {
		return block.Bytes
	}
	return text
}

func readCRL(text []byte) *observation.CRL {
	if len(text) > largestCRL {
		return &observation.CRL{Flaw: fmt.Sprintf("ca.crl has %d bytes, and %d are the most", len(text), largestCRL)}
	}
	list, err := x509.ParseRevocationList(crlOf(text))
	if err != nil {
		return &observation.CRL{Flaw: "ca.crl is no list of revoked certificates (X.509 CRL) in PEM or DER"}
	}
	if n := len(list.RevokedCertificateEntries); n > mostRevoked {
		return &observation.CRL{Flaw: fmt.Sprintf("ca.crl names %d certificates, and %d are the most: replace the "+
			"authority instead", n, mostRevoked)}
	}
	sum := sha256.Sum256(list.Raw)
	read := &observation.CRL{ID: hex.EncodeToString(sum[:])}
	for _, revoked := range list.RevokedCertificateEntries {
		read.Serials = append(read.Serials, revoked.SerialNumber.Text(16))
	}
	return read
}

// revoked is the list of another Secret as etcd reads it.
func revoked(from map[string][]byte) map[string][]byte {
	return map[string][]byte{objects.KeyCRL: crlOf(from[objects.KeyCRL])}
}
