package stream

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

// Keys are by what a stream signs what it stores: who can write to the store and does not know them can't add to it.
// The first signs, and what any has signed is believed. None sign nothing, and believe all.
type Keys [][]byte

// leastKey is the fewest characters of a key: a seal can be seen by all who may read the store.
const leastKey = 32

// ReadKeys reads a file with a key on a line; none for no name.
func ReadKeys(file string) (Keys, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, failure(archive.WrongKey, err, "the keys of the stream can't be read: check the Secret and its key")
	}
	var all Keys
	for _, line := range strings.Fields(string(text)) {
		if len(line) < leastKey {
			return nil, failure(archive.WrongKey, nil, "a key of the stream has fewer than %d characters", leastKey)
		}
		all = append(all, []byte(line))
	}
	if len(all) == 0 {
		return nil, failure(archive.WrongKey, nil, "there are no keys of the stream in the Secret")
	}
	return all, nil
}

// A segment and a head are never taken for each other.
const (
	ofSegment = "segment\n"
	ofHead    = "head\n"
)

func mac(key []byte, kind string, content []byte) []byte {
	m := hmac.New(sha256.New, key)
	_, _ = m.Write([]byte(kind)) // never fails
	_, _ = m.Write(content)
	return m.Sum(nil)
}

// sign is the MAC of the content; empty without keys.
func (k Keys) sign(kind string, content []byte) []byte {
	if len(k) == 0 {
		return nil
	}
	return mac(k[0], kind, content)
}

// signed reports whether one of the keys has signed the content.
func (k Keys) signed(kind string, content, is []byte) bool {
	return len(k) == 0 || slices.ContainsFunc(k, func(key []byte) bool { return hmac.Equal(mac(key, kind, content), is) })
}

// signed is the head with its MAC.
func (h Head) signed(by Keys) Head {
	h.MAC = hex.EncodeToString(by.sign(ofHead, h.content()))
	return h
}

func (h Head) signedBy(one Keys) bool {
	is, err := hex.DecodeString(h.MAC)
	return err == nil && one.signed(ofHead, h.content(), is)
}

// content is all that the MAC of a head is of.
func (h Head) content() []byte {
	h.MAC = ""
	text, _ := json.Marshal(h) // can't fail
	return text
}
