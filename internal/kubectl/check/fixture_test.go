package check

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/test/certtest"
)

// noon is when everything here happens: an hour after the lab's answers were recorded.
var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// installation is what kubectl answers, by the name of the reading. A test changes it before it is looked at.
type installation struct {
	t       *testing.T
	answers map[string]map[string]any
	refused map[string]Answer
	log     string
	options Options
}

// good is an installation in which everything fits: what kubectl said in the lab (testdata, except objects and
// fields that are not looked at), with certificates that are made here.
func good(t *testing.T) *installation {
	t.Helper()
	w := &installation{t: t, answers: map[string]map[string]any{}, refused: map[string]Answer{},
		options: Options{Namespace: "quorate-system", Metacontroller: "metacontroller", Version: "v0.1.0", Now: noon}}
	for _, r := range append(w.options.Readings(), w.options.First()) {
		if r.Name == kinds {
			continue
		}
		raw, err := os.ReadFile("testdata/" + r.Name + ".json")
		require.NoError(t, err)
		var tree map[string]any
		require.NoError(t, json.Unmarshal(raw, &tree), r.Name)
		w.answers[r.Name] = tree
	}
	w.answers[kinds] = w.established()
	w.certify("quorate.quorate-system.svc", noon.AddDate(10, 0, 0))
	return w
}

// kindsAsJSON is made once: the schemas are large.
var kindsAsJSON = sync.OnceValue(func() []byte {
	raw, err := json.Marshal(shipped().kinds)
	must(err)
	return raw
})

// established are the kinds of this release and Metacontroller's, as an API server has them.
func (w *installation) established() map[string]any {
	var items []any
	require.NoError(w.t, json.Unmarshal(kindsAsJSON(), &items))
	for _, name := range shipped().itsKinds {
		items = append(items, map[string]any{"metadata": map[string]any{"name": name},
			"spec": map[string]any{"versions": []any{}}})
	}
	for _, o := range items {
		o.(map[string]any)["kind"] = "CustomResourceDefinition"
		o.(map[string]any)["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established",
			"status": "True"}}}
	}
	return map[string]any{"kind": "List", "items": items}
}

// certify puts a new certificate for this name into the Secret, and its authority into the ConfigMap.
func (w *installation) certify(name string, until time.Time) {
	w.t.Helper()
	from := noon.AddDate(-1, 0, 0)
	authority := certtest.New(w.t, x509.Certificate{Subject: pkix.Name{CommonName: "a"}, NotBefore: from,
		NotAfter: until, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	leaf := certtest.New(w.t, x509.Certificate{DNSNames: []string{name}, NotBefore: from, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, authority)
	w.answers[secrets] = map[string]any{"kind": "List",
		"items": []any{map[string]any{"kind": "Secret", "metadata": map[string]any{"name": forHooks},
			"data": encoded(map[string]string{"tls.crt": string(leaf.PEM()), "tls.key": string(leaf.KeyPEM()),
				"tokens": "older\nTOKEN\n"})}}}
	within(w.answers[trusted], "data")["ca.crt"] = string(authority.PEM())
}

func encoded(data map[string]string) map[string]any {
	all := map[string]any{}
	for key, value := range data {
		all[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	return all
}

// within walks to an object within an object.
func within(o map[string]any, path ...string) map[string]any {
	for _, name := range path {
		next, is := o[name].(map[string]any)
		if !is {
			next = map[string]any{}
			o[name] = next
		}
		o = next
	}
	return o
}

// object is one of an answer, by kind and name; lose takes it out.
func (w *installation) object(reading, kind, name string) map[string]any {
	w.t.Helper()
	for _, item := range w.answers[reading]["items"].([]any) {
		if o := item.(map[string]any); o["kind"] == kind && (name == "" || within(o, "metadata")["name"] == name) {
			return o
		}
	}
	w.t.Fatalf("there is no %s %s among the %s", kind, name, reading)
	return nil
}

func (w *installation) lose(reading, kind, name string) {
	w.t.Helper()
	gone := w.object(reading, kind, name)
	left := []any{}
	for _, item := range w.answers[reading]["items"].([]any) {
		if within(item.(map[string]any), "metadata")["name"] != within(gone, "metadata")["name"] ||
			item.(map[string]any)["kind"] != kind {
			left = append(left, item)
		}
	}
	w.answers[reading]["items"] = left
}

// add puts a copy of an object in, and returns it.
func (w *installation) add(reading string, o map[string]any) map[string]any {
	w.t.Helper()
	raw, err := json.Marshal(o)
	require.NoError(w.t, err)
	var again map[string]any
	require.NoError(w.t, json.Unmarshal(raw, &again))
	w.answers[reading]["items"] = append(w.answers[reading]["items"].([]any), again)
	return again
}

// Objects that many tests change.
func (w *installation) controller() map[string]any {
	return w.object(controllers, "CompositeController", "quorate-etcdcluster")
}

// hooked are the webhooks of all CompositeControllers.
func (w *installation) hooked(edit func(webhook map[string]any)) {
	for _, item := range w.answers[controllers]["items"].([]any) {
		for _, hook := range within(item.(map[string]any), "spec", "hooks") {
			edit(within(hook.(map[string]any), "webhook"))
		}
	}
}

func (w *installation) runs() map[string]any {
	return w.object(metacontroller, "StatefulSet", "metacontroller")
}

func (w *installation) deployment() map[string]any { return w.object(quorate, "Deployment", "quorate") }

// container is the one of a workload.
func container(workload map[string]any) map[string]any {
	return within(workload, "spec", "template", "spec")["containers"].([]any)[0].(map[string]any)
}

// said is what kubectl answers.
func (w *installation) said() map[string]Answer {
	w.t.Helper()
	answers := map[string]Answer{}
	for name, tree := range w.answers {
		raw, err := json.Marshal(tree)
		require.NoError(w.t, err)
		answers[name] = Answer{Out: raw}
	}
	answers[log] = Answer{Out: []byte(w.log)}
	for name, a := range w.refused {
		answers[name] = a
	}
	return answers
}

// judged is what the checks say, by name.
func (w *installation) judged() map[string]Finding {
	w.t.Helper()
	all := map[string]Finding{}
	for _, f := range Judge(See(w.options, w.said())) {
		all[f.Name] = f
	}
	return all
}
