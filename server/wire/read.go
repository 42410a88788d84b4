package wire

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// asObjects reads quantities as a tenant may write them, and leaves metadata.managedFields out, which are a third of an
// object's size; asObjectsWithTimes reads of them when the API server wrote the object.
var (
	asObjects = json.WithUnmarshalers(json.JoinUnmarshalers(objects.Quantities, json.UnmarshalFromFunc(
		func(in *jsontext.Decoder, _ *[]metav1.ManagedFieldsEntry) error { return in.SkipValue() })))
	asObjectsWithTimes = json.WithUnmarshalers(json.JoinUnmarshalers(objects.Quantities, json.UnmarshalFromFunc(
		func(in *jsontext.Decoder, all *[]metav1.ManagedFieldsEntry) error {
			var times []struct {
				Time *metav1.Time `json:"time"`
			}
			if err := json.UnmarshalDecode(in, &times); err != nil {
				return err
			}
			for _, one := range times {
				*all = append(*all, metav1.ManagedFieldsEntry{Time: one.Time})
			}
			return nil
		})))
)

// theParent is the field of a call that has the object which it is about.
const theParent = "parent"

// asObjectsOf is how the objects in a field of a call are read: the times are of use in the parent alone
// (facts.ReadClock).
func asObjectsOf(field string) json.Options {
	if field == theParent {
		return asObjectsWithTimes
	}
	return asObjects
}

// members reads a JSON object and calls member for each of its keys; member reads the value.
func members(in *source, field string, member func(key string) error) error {
	seen := map[string]bool{}
	return membersOf(in, field, func(key []byte) error {
		if seen[string(key)] {
			return twice(field, string(key))
		}
		name := string(key)
		seen[name] = true
		return member(name)
	})
}

// membersOf is members for keys that are not kept, and may be there twice: their bytes are those of now.
func membersOf(in *source, field string, member func(key []byte) error) error {
	token, err := in.ReadToken()
	if err != nil {
		return unreadable(field, err)
	}
	if token.Kind() != jsontext.KindBeginObject {
		return Bad("%s must be an object", field)
	}
	for in.PeekKind() != jsontext.KindEndObject {
		quoted, err := in.ReadValue()
		if err != nil {
			return unreadable(field, err)
		}
		key := []byte(quoted[1 : len(quoted)-1])
		if bytes.IndexByte(key, '\\') >= 0 {
			if key, err = jsontext.AppendUnquote(nil, quoted); err != nil {
				return unreadable(field, err)
			}
		}
		if err := member(key); err != nil {
			return err
		}
	}
	if _, err := in.ReadToken(); err != nil {
		return unreadable(field, err)
	}
	return nil
}

// twice is the error of a key that an object has twice.
func twice(field, key string) error {
	switch {
	case field == "the request":
		return Bad("%s is there twice", key)
	case field == "children", strings.HasSuffix(field, `"]`) && strings.Count(field, "[") == 1:
		return Bad("%s[%q] is there twice", field, key)
	}
	return Bad("%s.%s is there twice", field, key)
}

// value reads one JSON value into v.
func value(in *source, field string, v any) error {
	text, err := in.ReadValue()
	if err != nil {
		return unreadable(field, err)
	}
	if err := in.charge(field, text); err != nil {
		return err
	}
	if err := json.Unmarshal(text, v, asObjectsOf(field)); err != nil {
		return unreadable(field, err)
	}
	return nil
}

// skip reads over one JSON value of any kind.
func skip(in *source, field string) error {
	if _, err := in.ReadValue(); err != nil {
		return unreadable(field, err)
	}
	return nil
}

// unreadable says why a field can't be read, without repeating what is in it.
func unreadable(field string, err error) error {
	if size := (*http.MaxBytesError)(nil); errors.As(err, &size) {
		return Refuse(http.StatusRequestEntityTooLarge, "the request is larger than %d bytes; raise --max-body", size.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return Refuse(http.StatusRequestTimeout, "the request did not arrive in time")
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return Bad("%s can't be read: the request ends in the middle", field)
	}
	if syntax := (*jsontext.SyntacticError)(nil); errors.As(err, &syntax) {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return Bad("%s is there twice", within(field, syntax.JSONPointer))
		}
		return Bad("%s can't be read: %v", field, syntax.Err)
	}
	if meaning := (*json.SemanticError)(nil); errors.As(err, &meaning) {
		if meaning.Err == nil {
			return Bad("%s can't be %s", within(field, meaning.JSONPointer), aKind(meaning.JSONKind))
		}
		return Bad("%s can't be read: %v", within(field, meaning.JSONPointer), meaning.Err)
	}
	return Bad("%s can't be read: %v", field, err)
}

// within names what is in a field as all sentences do, such as children["Pod.v1"]["orders-0"].spec.containers.0.name.
func within(field string, pointer jsontext.Pointer) string {
	for key := range pointer.Tokens() {
		field += "." + key
	}
	return field
}

// aKind is a kind of JSON value with its article.
func aKind(k jsontext.Kind) string {
	switch k {
	case jsontext.KindBeginObject:
		return "an object"
	case jsontext.KindBeginArray:
		return "an array"
	default:
		return "a " + k.String()
	}
}

// Unreadable is the refusal of a call whose body can't be read.
func Unreadable(err error) error { return unreadable("the request", err) }
