package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

// seal hashes a snapshot as it passes by. etcd ends the stream of Maintenance.Snapshot with the SHA-256 of all that
// came before (sendSnapshot in server/etcdserver/api/v3rpc/maintenance.go), etcdctl keeps it at the end of the file,
// and etcdutl checks it there.
type seal struct {
	hash hash.Hash // of all but held
	held []byte    // the last bytes so far, at most sha256.Size
	size int64
}

func newSeal() *seal { return &seal{hash: sha256.New(), held: make([]byte, 0, 2*sha256.Size)} }

// Write never fails.
func (s *seal) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	if len(p) >= sha256.Size {
		s.hash.Write(s.held)
		s.hash.Write(p[:len(p)-sha256.Size])
		s.held = append(s.held[:0], p[len(p)-sha256.Size:]...)
		return len(p), nil
	}
	s.held = append(s.held, p...)
	if excess := len(s.held) - sha256.Size; excess > 0 {
		s.hash.Write(s.held[:excess])
		s.held = append(s.held[:0], s.held[excess:]...)
	}
	return len(p), nil
}

// whole reports whether what passed by ends with the hash of what came before. It ends the hashing, together with sum.
func (s *seal) whole() bool {
	return s.size > sha256.Size && bytes.Equal(s.hash.Sum(nil), s.held)
}

// sum is the SHA-256 of all that passed by, the hash at its end included, as sha256sum prints that of the file.
func (s *seal) sum() string {
	s.hash.Write(s.held)
	s.held = s.held[:0]
	return hex.EncodeToString(s.hash.Sum(nil))
}
