package manifests

import (
	"strings"
	"testing"
)

// TestMirrors: what the API server takes of an EtcdMirror, and of its change.
func TestMirrors(t *testing.T) {
	k := kindOf(t, "EtcdMirror")
	const from = `clusterRef: {name: spare}, source: {clusterRef: {name: demo}}`
	const outside = `clusterRef: {name: spare}, source: {external: {endpoints: ["https://10.1.2.3:2379"], `
	const kept = `clusterRef: {name: spare}, source: {stored: {store: {s3: {bucket: b}}, folder: `
	const one = "set exactly one of source.clusterRef, source.external and source.stored"
	const dollars, fixed = "spec.prefix", "can't be changed"
	admits := func(old, spec, refused string) {
		t.Helper()
		var before map[string]any
		if old != "" {
			before = object(t, "EtcdMirror", old)
			if errs := k.admit(before, nil); len(errs) > 0 {
				t.Fatalf("%s: %v", old, errs.ToAggregate())
			}
		}
		said := ""
		if errs := k.admit(object(t, "EtcdMirror", spec), before); len(errs) > 0 {
			said = errs.ToAggregate().Error()
		}
		if (refused == "") != (said == "") || !strings.Contains(said, refused) {
			t.Errorf("%s: %q, and not %q", spec, said, refused)
		}
	}
	for _, c := range []struct{ spec, refused string }{
		{`{` + from + `}`, ""},
		{`{` + outside + `authoritySecretRef: {name: a}, clientSecretRef: {name: a}}}}`, ""},
		{`{` + outside + `}}}`, "external.authoritySecretRef is for endpoints"},
		{`{clusterRef: {name: spare}, source: {external: {endpoints: ["http://a:2379"], userSecretRef: {name: a}}}}`,
			"nothing secret goes over plain text"},
		{`{clusterRef: {name: spare}, source: {}}`, one},
		{`{clusterRef: {name: spare}, source: {clusterRef: {name: a}, external: {endpoints: ["http://a:2379"]}}}`,
			one},
		{`{` + kept + `shop/orders}}}`, ""},
		{`{` + kept + `orders}}}`, "spec.source.stored.folder"},
		{`{` + kept + `shop/orders}, clusterRef: {name: a}}}`, one},
		{`{clusterRef: {name: demo}, source: {clusterRef: {name: demo}}}`, "source.clusterRef is the destination itself"},
		{`{source: {clusterRef: {name: demo}}}`, "spec.clusterRef: Required value"},
		{`{` + from + `, prefix: /a/, toPrefix: "", excludePrefixes: [/a/b]}`, ""},
		{`{` + from + `, prefix: "/a b\"#%&'()~"}`, ""},
		{`{` + from + `, prefix: "/$(KEY)/"}`, dollars},
		{`{` + from + `, prefix: "/é/"}`, dollars},
		{`{` + from + `, prefix: /a/, excludePrefixes: [/b]}`, "excludePrefixes must begin with prefix, and be longer"},
		{`{` + from + `, prefix: /a/, excludePrefixes: [/a/]}`, "excludePrefixes must begin with prefix, and be longer"},
		{`{` + from + `, excludePrefixes: [""]}`, "spec.excludePrefixes[0]"},
		{`{` + from + `, toPrefix: /quorate.dev/mirror/x}`, "are never mirrored"},
		{`{` + from + `, promote: {}}`, ""},
		{`{` + from + `, promote: {revision: 4711}}`, ""},
		{`{` + from + `, promote: {asIs: true}, suspend: true}`, ""},
		{`{` + from + `, promote: {asIs: true, revision: 4711}}`, "set one of them"},
		{`{` + from + `, promote: {revision: -1}}`, "greater than or equal to 1"},
		{`{` + from + `, promote: {}, suspend: true}`, "a promotion waits for the mirror"},
	} {
		admits("", c.spec, c.refused)
	}
	for _, c := range []struct{ old, spec, refused string }{
		{`{` + from + `}`, `{` + from + `, promote: {}}`, ""},
		{`{` + from + `, promote: {}}`, `{` + from + `, promote: {asIs: true}}`, ""},
		{`{` + from + `, promote: {}}`, `{` + from + `}`, "promote can be changed and not be taken back"},
		{`{` + from + `}`, `{clusterRef: {name: spare}, source: {clusterRef: {name: other}}}`, ""},
		{`{` + from + `}`, `{clusterRef: {name: other}, source: {clusterRef: {name: demo}}}`, fixed},
		{`{` + from + `}`, `{` + from + `, prefix: /a/}`, fixed},
		{`{` + from + `}`, `{` + from + `, toPrefix: /a/}`, fixed},
		{`{` + from + `, excludePrefixes: [/a, /b]}`, `{` + from + `, excludePrefixes: [/b, /a]}`, ""},
		{`{` + from + `, excludePrefixes: [/a, /b]}`, `{` + from + `, excludePrefixes: [/a]}`, fixed},
	} {
		admits(c.old, c.spec, c.refused)
	}
}
