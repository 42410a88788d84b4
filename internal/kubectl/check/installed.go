package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// facts are what matters of an object, in words, with what each is. Two objects are compared by them: one that is
// installed, and the one that this release installs.
type facts map[string]string

// apart are the facts that one has and another lacks, in order; of those within one that lacks, the outermost alone.
func apart(one, other facts) []string {
	var all []string
	for _, f := range slices.Sorted(maps.Keys(one)) {
		within := func(outer string) bool { return strings.HasPrefix(f, outer+".") || strings.HasPrefix(f, outer+"[]") }
		if _, has := other[f]; !has && !slices.ContainsFunc(all, within) {
			all = append(all, f)
		}
	}
	return all
}

// otherwise are the facts that both have and that are not the same, in order.
func otherwise(one, other facts) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(one)), func(f string) bool {
		is, has := other[f]
		return !has || is == one[f]
	})
}

func some(names []string) string {
	if len(names) > 2 {
		return fmt.Sprintf("%s, %s and %d more", names[0], names[1], len(names)-2)
	}
	return strings.Join(names, " and ")
}

// installed compares what is there with what this release installs.
func installed(s *Seen) Finding {
	var flaws []Finding
	for _, part := range []struct {
		reading string
		differs func() []Finding
	}{
		{kinds, s.kindsDiffer}, {controllers, s.controllersDiffer}, {policies, s.policiesDiffer},
	} {
		if f := s.without([]string{part.reading}); f.State != OK {
			flaws = append(flaws, f)
			continue
		}
		flaws = append(flaws, part.differs()...)
	}
	var names []string
	for _, c := range s.ours() {
		names = append(names, c.Metadata.Name)
	}
	return together(ok("%d kinds and the admission policies, as in this release; %s",
		len(shipped().kinds), strings.Join(names, ", ")), flaws)
}

// kind is a CustomResourceDefinition.
type kind struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Versions []struct {
			Name   string `json:"name"`
			Schema struct {
				OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

func (k *kind) established() bool {
	return slices.ContainsFunc(k.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == "Established" && c.Status == metav1.ConditionTrue
	})
}

// facts of a kind are the fields of a version, such as spec.storage.size, and the rules for each; nil when there is no
// such version.
func (k *kind) facts(version string) facts {
	for _, v := range k.Spec.Versions {
		if v.Name == version {
			all := facts{}
			all.schema("", v.Schema.OpenAPIV3Schema)
			return all
		}
	}
	return nil
}

// schema notes the fields within a field, and its own rules, which are all but its words.
func (all facts) schema(path string, schema map[string]any) {
	rules := maps.Clone(schema)
	for _, apart := range []string{"description", "properties", "items", "additionalProperties"} {
		if !reflect.DeepEqual(schema[apart], true) { // additionalProperties may say just that
			delete(rules, apart)
		}
	}
	text, err := json.Marshal(rules)
	must(err) // it was read from JSON
	all[path] = string(text)
	properties, _ := schema["properties"].(map[string]any)
	for name, of := range properties {
		inner, _ := of.(map[string]any)
		all.schema(strings.TrimPrefix(path+"."+name, "."), inner)
	}
	for _, of := range []string{"items", "additionalProperties"} {
		if inner, is := schema[of].(map[string]any); is {
			all.schema(path+"[]", inner)
		}
	}
}

func (s *Seen) kindsDiffer() []Finding {
	const apply = "apply those of this release: `quorate install --kinds | kubectl apply --server-side " +
		"--force-conflicts -f -`, or all of it: "
	var flaws []Finding
	var itsLack, oursLack []string
	for _, name := range shipped().itsKinds {
		if _, there := s.kinds[name]; !there {
			itsLack = append(itsLack, name)
		}
	}
	for _, want := range shipped().kinds {
		is, there := s.kinds[want.Metadata.Name]
		if !there {
			oursLack = append(oursLack, want.Metadata.Name)
			continue
		}
		flaws = append(flaws, compared(&is, &want, apply+s.install()))
	}
	if len(itsLack) > 0 {
		flaws = append(flaws, fail("there is no "+some(itsLack), s.itsKinds()))
	}
	if len(oursLack) > 0 {
		flaws = append(flaws, fail("there is no "+some(oursLack), "install Quorate: "+s.install()))
	}
	for _, name := range slices.Sorted(maps.Keys(s.kinds)) {
		if k := s.kinds[name]; name != certificatesCRD && !k.established() {
			flaws = append(flaws, fail(name+" is not established", command("kubectl describe crd %s", name)+
				" shows why"))
		}
	}
	return flaws
}

// compared says how a kind differs from that of this release. A field that the API server does not know is dropped by
// it without a word, from the status too, which Quorate reads again.
func compared(is, want *kind, apply string) Finding {
	name := want.Metadata.Name
	v := want.Spec.Versions[0].Name
	has := is.facts(v)
	wanted := want.facts(v)
	if has == nil {
		return fail(name+" has no version "+v, apply)
	}
	lacks := apart(wanted, has)
	more := apart(has, wanted)
	other := otherwise(wanted, has)
	switch {
	case len(lacks) > 0 && len(more) > 0:
		return fail(fmt.Sprintf("%s is of another release: it does not have %s, and has %s", name, some(lacks),
			some(more)), apply)
	case len(lacks) > 0:
		return fail(fmt.Sprintf("%s is older than this release: it does not have %s", name, some(lacks)), apply)
	case len(more) > 0:
		return warn(fmt.Sprintf("%s is newer than this quorate: it has %s", name, some(more)),
			"use the quorate of the release that is installed")
	case len(other) > 0:
		return warn(fmt.Sprintf("%s has the fields of this release and other rules for %s", name, some(other)), apply)
	}
	return ok("")
}

// itsKinds is what installs Metacontroller's kinds: with one of Quorate's own, or for the one that is there.
func (s *Seen) itsKinds() string {
	if s.metacontroller() == nil || s.own() {
		return s.install()
	}
	return "apply those of the Metacontroller that is there; these serve it too: `kubectl apply --server-side -f " +
		"manifests/crds/metacontroller.yaml`"
}

func (s *Seen) controllersDiffer() []Finding {
	var flaws []Finding
	for _, want := range shipped().controllers {
		all := s.of(want.Spec.ParentResource.resourceRule)
		i := slices.IndexFunc(all, func(c controller) bool { return c.calls(s.Namespace) })
		switch kind := want.Spec.ParentResource.Resource; {
		case len(all) == 0:
			flaws = append(flaws, fail("no CompositeController exists for "+kind, s.install()))
		case i < 0:
			flaws = append(flaws, fail(fmt.Sprintf("CompositeController %s for %s calls %s, not quorate.%s.svc",
				all[0].Metadata.Name, kind, host(all[0]), s.Namespace),
				"say with --namespace where that Quorate is; or install one here: "+s.install()))
		default:
			flaws = append(flaws, s.differs(&all[i], &want)...)
		}
	}
	return flaws
}

// differs says how a controller differs from that of this release. A rule for children that this release does not know
// makes it refuse every call.
func (s *Seen) differs(is, want *controller) []Finding {
	has := is.facts(want)
	wanted := want.facts(want)
	for name := range want.Spec.Hooks {
		wanted["hook "+name] = "quorate." + s.Namespace + ".svc" + want.hook(name).address().Path
	}
	delete(has, "rule for its children "+certificatesCRD) // it is there with cert-manager
	var flaws []Finding
	for _, f := range apart(wanted, has) {
		flaws = append(flaws, fail(fmt.Sprintf("%s has no %s", is.Metadata.Name, f), s.install()))
	}
	for _, f := range apart(has, wanted) {
		flaws = append(flaws, fail(fmt.Sprintf("%s has a %s, which this release does not know: every call is refused",
			is.Metadata.Name, f), s.install()))
	}
	for _, f := range otherwise(wanted, has) {
		differs := fail
		if strings.HasPrefix(f, "time ") { // it works, later
			differs = warn
		}
		flaws = append(flaws, differs(fmt.Sprintf("%s: %s is %s, not %s", is.Metadata.Name, f, has[f], wanted[f]),
			s.install()))
	}
	return flaws
}

// facts of a controller are its rules for children, its hooks and its settings. Of a time that is as good as the wanted
// one, the fact is that one.
func (c *controller) facts(want *controller) facts {
	all := facts{
		"generateSelector":       fmt.Sprint(c.Spec.GenerateSelector),
		"time between two calls": fmt.Sprintf("%d s", c.Spec.ResyncPeriodSeconds),
	}
	if n := c.Spec.ResyncPeriodSeconds; n > 0 && n <= want.Spec.ResyncPeriodSeconds {
		all["time between two calls"] = fmt.Sprintf("%d s", want.Spec.ResyncPeriodSeconds)
	}
	for _, child := range c.Spec.ChildResources {
		all["rule for its children "+child.full()] = child.UpdateStrategy.Method
	}
	for name, hook := range c.Spec.Hooks {
		w := c.hook(name)
		wanted := want.hook(name)
		u := w.address()
		if u == nil || wanted == nil {
			continue
		}
		all["hook "+name] = u.Host + u.Path
		if service, namespace := leads(u); service == "quorate" { // by whichever of its names, and at a port
			all["hook "+name] = "quorate." + namespace + ".svc" + u.Path
		}
		all["version of the hook "+name] = cmp.Or(hook.Version, "v1")
		all["time for the hook "+name] = fmt.Sprintf("%q", w.Timeout)
		timeout, err := time.ParseDuration(w.Timeout)
		if least, wrong := time.ParseDuration(wanted.Timeout); err == nil && wrong == nil && timeout >= least {
			all["time for the hook "+name] = fmt.Sprintf("%q", wanted.Timeout)
		}
	}
	return all
}

// policiesDiffer finds the policies that are not there. One of several installations adds its name to theirs.
func (s *Seen) policiesDiffer() []Finding {
	is := facts{}
	want := facts{}
	for _, name := range shipped().policies {
		if strings.HasSuffix(name, "/"+sharedIssuers) && s.sharesIssuers() {
			continue // this installation allows what it refuses
		}
		want[name] = ""
		for there := range s.policies {
			if there == name || strings.HasPrefix(there, name+"-") {
				is[name] = ""
			}
		}
	}
	lacks := apart(want, is)
	if len(lacks) == 0 {
		return nil
	}
	return []Finding{warn("there is no "+some(lacks)+
		": protected or forbidden changes are held back later instead of refused at once; deleting in the "+
		"foreground takes claims and snapshots along that should stay, and deleting a kind deletes all clusters", "apply them, which "+
		"takes Kubernetes 1.30: "+s.install())}
}

// sharedIssuers is the policy that an installation with --shared-issuers has not.
const sharedIssuers = "quorate-shared-issuers"
