package manifests

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
)

// object of a kind with this spec, in YAML's flow style.
func object(t *testing.T, kind, spec string) map[string]any {
	t.Helper()
	return parse(t, fmt.Sprintf("{apiVersion: etcd.quorate.dev/v1beta1, kind: %s, "+
		"metadata: {name: demo, namespace: default}, spec: %s}", kind, spec))
}

// refusal is what the API server says against an object, or against a change; empty when it takes it.
func (k kind) refusal(object, old map[string]any) string {
	if errs := k.admit(object, old); len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	return ""
}

// usual are the defaults of every EtcdCluster.
const usual = "{replicas: 3, deletionPolicy: Retain, snapshotBeforeUpgrade: IfScheduled, storage: {medium: Persistent, size: 2Gi}, " +
	"tls: {mode: Auto, clientAuth: Required, minVersion: TLS1.2}}"

// answer is a case of testdata/admission.txt, which says what its parts are.
type answer struct {
	kind, name, old, spec string
	stale                 bool // the old one would not be admitted today
	refused               string
	adds                  string // empty when the defaults are not looked at
	has                   string // what a spec of the kind has that does not say otherwise
}

// TestAdmission: what the API server says to objects, and to their changes.
func TestAdmission(t *testing.T) {
	judges := map[string]kind{}
	for _, name := range kinds {
		judges[name] = kindOf(t, name)
	}
	for _, c := range readAdmission(t) {
		t.Run(c.kind+" "+c.old+" "+c.spec, func(t *testing.T) { c.judge(t, judges[c.kind]) })
	}
}

func (c answer) judge(t *testing.T, k kind) {
	var before map[string]any
	if c.old != "" {
		before = c.object(t, c.old)
		if said := k.refusal(before, nil); (said != "") != c.stale {
			t.Fatalf("the old one: %q", said)
		}
	}
	is := c.object(t, c.spec)
	if fields := k.unknown(is); c.refused == "" && len(fields) > 0 {
		t.Errorf("unknown fields: %v", fields)
	}
	said := k.refusal(is, before)
	if (c.refused == "") != (said == "") || !strings.Contains(said, c.refused) {
		t.Fatalf("%q, and not %q", said, c.refused)
	}
	if c.adds == "" {
		return
	}
	want := parse(t, usual)
	overlay(want, parse(t, c.adds))
	overlay(want, c.object(t, c.spec)["spec"].(map[string]any))
	if !equality.Semantic.DeepEqual(is["spec"], any(want)) {
		t.Errorf("defaulted to\n\t%v\nwant\n\t%v", is["spec"], want)
	}
	if said := k.refusal(is, is); said != "" {
		t.Errorf("an update without a change is refused: %s", said)
	}
}

// object with this spec, and what all of its kind have. A null takes that away.
func (c answer) object(t *testing.T, spec string) map[string]any {
	t.Helper()
	o := object(t, c.kind, braces(spec))
	within(o, "metadata")["name"] = c.name
	all, own := parse(t, braces(c.has)), within(o, "spec")
	maps.DeleteFunc(own, func(field string, value any) bool {
		_, given := all[field]
		delete(all, field)
		return given && value == nil
	})
	maps.Copy(own, all)
	return o
}

func braces(fields string) string { return "{" + strings.TrimPrefix(fields, "{}") + "}" }

// overlay puts fields over those of an object; null is none.
func overlay(object, fields map[string]any) {
	for name, value := range fields {
		if deeper, is := value.(map[string]any); is && object[name] != nil {
			overlay(object[name].(map[string]any), deeper)
		} else if value != nil {
			object[name] = value
		}
	}
}

func readAdmission(t *testing.T) (all []answer) {
	t.Helper()
	text := fileOf(t, "testdata/admission.txt")
	var kind, has string
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\n  ", " ")) {
		line = strings.TrimSpace(line)
		rest, is := strings.CutPrefix(line, "kind ")
		switch {
		case is:
			kind, has, _ = strings.Cut(rest, " ")
			continue
		case line == "", strings.HasPrefix(line, "#"):
			continue
		}
		c := answer{kind: kind, name: "demo", has: has}
		if named, is := strings.CutPrefix(line, "("); is {
			c.name, line, _ = strings.Cut(named, ") ")
		}
		line, c.refused, _ = strings.Cut(line, " !! ")
		line, c.adds, _ = strings.Cut(line, " == ")
		for _, arrow := range []string{" => ", " ~> "} {
			if old, now, changed := strings.Cut(line, arrow); changed {
				c.old, line, c.stale = old, now, arrow == " ~> "
			}
		}
		c.spec = line
		if c.adds != "" {
			c.adds = braces(c.adds)
		}
		all = append(all, c)
	}
	return all
}

// TestTheLargestDeclaration of users and roles: the CEL rules stay within what the API server lets them cost.
func TestTheLargestDeclaration(t *testing.T) {
	k := kindOf(t, "EtcdCluster")
	var roles, users, names, permissions []string
	for i := range 64 {
		permissions = append(permissions, fmt.Sprintf("{access: Read, range: {from: %s%da, to: %s%db}}",
			strings.Repeat("k", 500), i, strings.Repeat("k", 500), i))
		names = append(names, fmt.Sprintf("%s%d", strings.Repeat("r", 38), i+10))
	}
	for i, name := range names {
		roles = append(roles, fmt.Sprintf("{name: %s, permissions: [%s]}", name, strings.Join(permissions, ", ")))
		users = append(users, fmt.Sprintf("{name: u%d, roles: [%s]}", i, strings.Join(names[48:], ", ")))
	}
	o := object(t, "EtcdCluster", fmt.Sprintf("{version: 3.6.16, auth: {enabled: true, roles: [%s], users: [%s]}}",
		strings.Join(roles, ", "), strings.Join(users, ", ")))
	if fields := k.unknown(o); len(fields) > 0 {
		t.Errorf("unknown fields: %v", fields)
	}
	if said := k.refusal(o, nil); said != "" {
		t.Errorf("%.1000s", said)
	}
}
