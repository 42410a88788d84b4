package objects

import (
	"errors"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Read reads the JSON of a Kubernetes object, which a tenant may have written, into v. All that has a quantity in it
// is read by this, or with [Quantities]: its own parser computes for minutes with an exponent of ten digits. A field
// is found by its name in any case.
func Read(text []byte, v any) error {
	return json.Unmarshal(text, v, json.WithUnmarshalers(Quantities), json.MatchCaseInsensitiveNames(true),
		jsontext.AllowDuplicateNames(true))
}

// Quantities reads quantities, and refuses long ones before they are parsed.
var Quantities = json.UnmarshalFromFunc(func(in *jsontext.Decoder, q *resource.Quantity) error {
	text, err := in.ReadValue()
	if err != nil {
		return err
	}
	if err := quantityFlaw(strings.Trim(string(text), `" `)); err != nil {
		return err
	}
	return q.UnmarshalJSON(text)
})

// longestQuantity is in bytes. The schemas of our kinds say the same (test/tools/generate.sh).
const longestQuantity = 32

var errLongQuantity = errors.New("a quantity has at most 32 characters, and two digits behind its e")

func quantityFlaw(text string) error {
	if len(text) > longestQuantity {
		return errLongQuantity
	}
	if at := strings.LastIndexAny(text, "eE"); at >= 0 && len(strings.TrimLeft(text[at+1:], "+-")) > 2 {
		return errLongQuantity
	}
	return nil
}
