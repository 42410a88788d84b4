package wire

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"k8s.io/apimachinery/pkg/types"
)

// An Identity is the parent that a call is about, as far as that was found.
type Identity struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// String is how messages name it.
func (i Identity) String() string {
	if i.Name == "" {
		return "an object whose name is not among the first bytes of the call"
	}
	return i.Namespace + "/" + i.Name
}

// Identify finds the parent in the first bytes of a call; what it does not find is empty.
func Identify(prefix []byte) Identity {
	in := &source{}
	in.hold(bytes.NewBuffer(prefix))
	var i Identity
	_ = members(in, "", func(key string) error {
		if key != "parent" {
			return skip(in, "")
		}
		return members(in, "", func(key string) error {
			if key != "metadata" {
				return skip(in, "")
			}
			_ = json.UnmarshalDecode(&in.Decoder, &i)
			return errFound
		})
	})
	return i
}
