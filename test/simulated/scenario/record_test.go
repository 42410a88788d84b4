package scenario

import (
	"encoding/json"
	"os"
	"sync"
	"testing"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// recorded is an object as it is after a verb of a story.
type recorded struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// At is the verb's place: file, line of its block, and verb.
	At string `json:"at"`
	// Lacks is what was missing for it to be what its spec asks for, by what was there when its status was decided;
	// empty for nothing.
	Lacks string `json:"lacks"`
	// Object with its metadata, spec and status.
	Object any `json:"object"`
}

var recording sync.Mutex

// record appends objects to the file that QUORATE_RECORD names, one JSON object a line: what the tools of others make
// of our statuses is tested in test/tools/manifests, with modules that the product does not have.
func record(t *testing.T, at string, all ...recorded) {
	path := os.Getenv("QUORATE_RECORD")
	if path == "" {
		return
	}
	recording.Lock()
	defer recording.Unlock()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, r := range all {
		r.APIVersion, r.At = v1beta1.GroupVersion.String(), at
		if err := json.NewEncoder(file).Encode(r); err != nil {
			t.Fatal(err)
		}
	}
}
