package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/etcdops/pki"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// Metacontroller notes on each child the answer that it applied last, and who sees annotations sees that: kubectl
// describe prints those of Secrets. By its merge (mergeObject in pkg/dynamic/apply), a field that was answered and is
// answered no more is taken off the object, and one that was never answered is left alone. What is answered as
// stringData never stands in the object: the API server puts it into data and drops it. So a Secret is told what it
// is to hold once, as stringData; from the next answer on nothing of it is told, the note has nothing of it any more,
// and data stays.

// secret is one in an answer.
func (r *ClusterCall) secret(o *decision.DesiredSecret) (answerChild, error) {
	if o.Make == (decision.StreamKeys{}) {
		return streamKeys(r.Keys, r.Cluster.Namespace, sumOf(r.secrets[o.Name][objects.KeyStream])), nil
	}
	data, err := pki.Make(o.Name, o.Make, r.sources(o.Make))
	if err != nil {
		return answerChild{}, err
	}
	observed := r.Children.Secrets[o.Name]
	content := answerChild{Type: o.Type}
	switch {
	case o.Make == nil && !notesData(observed.Annotations[lastApplied]):
	case inText(data):
		content.StringData = map[string]string{}
		for key, value := range data {
			content.StringData[key] = string(value)
		}
		for _, key := range []string{objects.KeyPreviousCertificate, objects.KeyPreviousPrivate} {
			if _, stays := data[key]; !stays && len(r.secrets[o.Name][key]) > 0 {
				content.StringData[key] = "" // what is only left out stays in data
			}
		}
	default: // another key was put beside it by hand
		content.Data = data
	}
	return content, nil
}

// streamKeys is a Secret with the keys of a namespace's streams, which it is told where it has others, by their sum.
func streamKeys(keys [][]byte, namespace, sum string) answerChild {
	content := answerChild{Type: corev1.SecretTypeOpaque}
	if now := record.StreamKeys(keys, namespace); now != "" && sumOf([]byte(now)) != sum {
		content.StringData = map[string]string{objects.KeyStream: now}
	}
	return content
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// notesData reports whether what was applied last has data, which would be taken off the object if the next answer
// had none: a value was no text then. What can't be read is taken for such a note.
func notesData(annotation string) bool {
	if annotation == "" {
		return false
	}
	var last struct {
		Data jsontext.Value `json:"data"`
	}
	return json.Unmarshal([]byte(annotation), &last, asObjects) != nil || len(last.Data) > 0
}

func inText(data map[string][]byte) bool {
	for _, value := range data {
		if !utf8.Valid(value) {
			return false
		}
	}
	return true
}
