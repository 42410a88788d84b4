package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/server/metrics"
	"github.com/quorate-dev/quorate/server/wire"
)

// edit changes a call in its generic form.
type edit = func(request map[string]any)

const (
	morning  = "2026-03-01T09:00:00Z" // of the calls about an EtcdSnapshot, an EtcdMirror and an EtcdOperation
	halfPast = "2026-11-22T03:30:00Z" // of that about an EtcdSnapshotSchedule
)

// parents are all kinds that are asked about, with a call about one of each.
var parents = []struct {
	kind, path, file, clock string
	child                   string   // a group of its children, and the call has one of them
	children, related       []string // the groups without which a call is refused
}{
	{v1beta1.Kind, "/", "sync", morning, groupPods, []string{groupPods, groupClaims, groupConfigMaps, groupServices,
		groupBudgets, groupSecrets, groupPolicies}, nil},
	{v1beta1.KindSnapshot, "/snapshots/", "snapshot", morning, groupJobs, []string{groupJobs},
		[]string{groupPods, groupClusters}},
	{v1beta1.KindSchedule, "/schedules/", "schedule", halfPast, groupSnapshots, []string{groupSnapshots}, nil},
	{v1beta1.KindMirror, "/mirrors/", "mirror", morning, "", []string{groupPods}, []string{groupClusters}},
	{v1beta1.KindOperation, "/operations/", "operation", morning, "", nil, []string{groupClusters}},
}

// callOf is the call in a file of testdata, with changes.
func callOf(t testing.TB, file string, edits ...edit) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file + ".json")
	require.NoError(t, err)
	var r map[string]any
	require.NoError(t, json.Unmarshal(text, &r))
	for _, change := range edits {
		change(r)
	}
	return raw(t, r)
}

// aSnapshotCall is the call in which the Job's report is first seen.
func aSnapshotCall(t testing.TB, edits ...edit) []byte { return callOf(t, "snapshot", edits...) }

// aScheduleCall is a call at half past three, while the snapshot of three o'clock is being taken.
func aScheduleCall(t testing.TB, edits ...edit) []byte { return callOf(t, "schedule", edits...) }

// aMirrorCall is a call about an EtcdMirror from orders to spare, both of which serve.
func aMirrorCall(t testing.TB, edits ...edit) []byte { return callOf(t, "mirror", edits...) }

// serverAt is a server at a time.
func serverAt(clock string) (*Server, *bytes.Buffer) {
	s, log := testServer(Options{Metrics: metrics.New("v1.2.3", "0123abc")})
	now, err := time.Parse(time.RFC3339, clock)
	if err != nil {
		panic(err)
	}
	s.now = func() time.Time { return now }
	return s, log
}

// being is a call about a parent that is being deleted, by the hook finalize, or about one that is not.
func being(deleted bool) edit {
	return func(r map[string]any) {
		r["finalizing"] = deleted
		if deleted {
			at(r, "parent", "metadata")["deletionTimestamp"] = "2026-03-01T09:00:00Z"
		}
	}
}

func labelled(value string) edit {
	return func(r map[string]any) { at(r, "parent", "metadata")["labels"] = map[string]any{"by": value} }
}

// without takes a field out of an object of the call.
func without(field string, path ...string) edit {
	return func(r map[string]any) { delete(at(r, path...), field) }
}

// set gives a field of an object of the call a value.
func set(value any, field string, path ...string) edit {
	return func(r map[string]any) { at(r, path...)[field] = value }
}

func raw(t testing.TB, o any) []byte {
	t.Helper()
	b, err := json.Marshal(o)
	require.NoError(t, err)
	return b
}

// toldOf are the children of an answer by name.
func toldOf(t testing.TB, body []byte) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, c := range generic(t, body)["children"].([]any) {
		child := c.(map[string]any)
		all[at(child, "metadata")["name"].(string)] = child
	}
	return all
}

// runningPod has a call hold the pod as the answer before it made it, and ready.
func runningPod(t testing.TB, made map[string]any) edit {
	return func(r map[string]any) {
		there := generic(t, raw(t, made))
		at(there, "metadata")["uid"] = "uid-pod"
		at(there, "metadata", "annotations")[lastApplied] = string(raw(t, made))
		there["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
		at(r, "children", groupPods)[at(made, "metadata")["name"].(string)] = there
	}
}

// TestRefusedCalls: what can't be whole is refused about every kind, since Metacontroller deletes what an answer omits
// (S13).
func TestRefusedCalls(t *testing.T) {
	type refusal struct {
		says string
		hook string // else sync
		edit edit
	}
	always := []refusal{
		{"parent is missing", "", without("parent")},
		{"parent is missing", "customize", without("parent")},
		{"parent.kind must be ", "", set("Deployment", "kind", "parent")},
		{"parent.apiVersion must be etcd.quorate.dev/v1beta1", "", set("etcd.quorate.dev/v2", "apiVersion", "parent")},
		{"parent.metadata.name is missing", "", without("name", "parent", "metadata")},
		{"parent.metadata.namespace is missing", "", without("namespace", "parent", "metadata")},
		{"parent.metadata.uid is missing", "", without("uid", "parent", "metadata")},
		{"parent.metadata.uid is missing", "customize", without("uid", "parent", "metadata")},
		{"parent.metadata.creationTimestamp can't be", "", set("yesterday", "creationTimestamp", "parent", "metadata")},
		{`children["StatefulSet.apps/v1"] is a group that this version does not know`, "",
			set(map[string]any{}, "StatefulSet.apps/v1", "children")},
		{"finalizing is true, and the parent is being deleted: true", "", being(true)},
		{"finalizing is true, and the parent is being deleted: false", "finalize", set(true, "finalizing")},
		{"finalizing is false", "finalize", being(false)},
	}
	only := map[string][]refusal{
		v1beta1.KindSchedule: {
			{"parent.spec.retention.last can't be", "", set("two", "last", "parent", "spec", "retention")},
			{"status.verificationTime can't be", "",
				set("no", "verificationTime", "children", groupSnapshots, running, "status")},
			{"spec.stream needs the CompositeController of this version", "", func(r map[string]any) {
				streams(r)
				delete(at(r, "children"), groupPods)
			}},
		},
	}
	for _, p := range parents {
		all := slices.Concat(always, only[p.kind])
		for _, group := range p.children {
			says := fmt.Sprintf("children[%q] is missing: the CompositeController has no such rule", group)
			all = append(all, refusal{says, "", without(group, "children")})
		}
		for _, group := range p.related {
			says := fmt.Sprintf("related[%q] is missing: the CompositeController must have the hook customize", group)
			all = append(all, refusal{says, "", without(group, "related")})
		}
		if p.child != "" {
			one := func(change func(child map[string]any)) edit {
				return func(r map[string]any) {
					group := at(r, "children", p.child)
					change(group[slices.Sorted(maps.Keys(group))[0]].(map[string]any))
				}
			}
			all = append(all,
				refusal{"metadata.namespace is not the parent's", "", one(set("kube-system", "namespace", "metadata"))},
				refusal{"].kind must be ", "", one(set("Secret", "kind"))},
				refusal{"].apiVersion must be ", "", one(set("v9", "apiVersion"))},
				refusal{"].metadata.uid is missing", "", one(without("uid", "metadata"))},
				refusal{"].metadata.name is missing", "", one(without("name", "metadata"))},
			)
		}
		s, log := serverAt(p.clock)
		h := s.Handler()
		for _, c := range all {
			log.Reset()
			path := p.path + "sync"
			if c.hook != "" {
				path = p.path + c.hook
			}
			w := post(h, path, callOf(t, p.file, c.edit))
			require.Equal(t, 400, w.Code, "%s: %s: %s", path, c.says, w.Body)
			require.Contains(t, errorOf(t, w), c.says, path)
			require.Contains(t, log.String(), `"msg":"refused"`)
		}
		whole := callOf(t, p.file)
		require.Equal(t, 200, post(h, p.path+"sync", whole).Code, p.kind)
		require.Equal(t, 400, post(h, p.path+"sync", append(slices.Clone(whole), '{')).Code, "a second request")
		require.Equal(t, 400, post(h, p.path+"sync", whole[:len(whole)/2]).Code, "half of a request")
	}
}

// scoped is a server that looks after these namespaces and the label by=blue.
func scoped(t *testing.T, namespaces []string, selector string) http.Handler {
	t.Helper()
	s, _ := serverAt(halfPast)
	s.options.Scope.Namespaces = namespaces
	if selector != "" {
		parsed, err := labels.Parse(selector)
		require.NoError(t, err)
		s.options.Scope.Selector = parsed
	}
	return s.Handler()
}

// calls are one to this hook of each kind, by its path.
func calls(t *testing.T, hook string, edits ...edit) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, p := range parents {
		all[p.path+hook] = callOf(t, p.file, edits...)
	}
	return all
}

// TestOtherNamespacesAreRefused: nothing is answered about them, so that Metacontroller changes nothing there.
func TestOtherNamespacesAreRefused(t *testing.T) {
	for _, hook := range []string{"sync", "customize", "finalize"} {
		for path, body := range calls(t, hook, being(hook == "finalize")) {
			require.Equal(t, http.StatusOK, post(scoped(t, []string{"shop", "b"}, ""), path, body).Code, path)
			w := post(scoped(t, []string{"b", "c"}, ""), path, body)
			require.Equal(t, http.StatusForbidden, w.Code, path)
			require.Contains(t, errorOf(t, w), "is in a namespace that this Quorate does not look after, so nothing is "+
				"changed: it was installed with --namespaces=b,c")
			require.Contains(t, errorOf(t, w), " shop/")
		}
	}
}

// TestOtherLabelsAreRefused: also when Metacontroller does not know the selector and asks about everything.
func TestOtherLabelsAreRefused(t *testing.T) {
	for path, body := range calls(t, "customize", labelled("green")) {
		w := post(scoped(t, nil, "by=blue"), path, body)
		require.Equal(t, http.StatusOK, w.Code, "%s only says what to send along", path)
	}
	for path, body := range calls(t, "sync", labelled("green")) {
		w := post(scoped(t, nil, "by=blue"), path, body)
		require.Equal(t, http.StatusForbidden, w.Code, path)
		require.Contains(t, errorOf(t, w), "so nothing is changed: it was installed with --selector=by=blue")
	}
}

// TestNotSelected: what has other labels now is left to the Quorate they belong to: nothing is changed, the finalizer
// goes, whether or not it is being deleted. What has ours stays until it has been finalized.
func TestNotSelected(t *testing.T) {
	protected := set(true, "deletionProtection", "parent", "spec")
	finalizing := set(true, "finalizing")
	for _, deleted := range []bool{false, true} {
		for path, body := range calls(t, "finalize", being(deleted), finalizing, labelled("green"), protected) {
			w := post(scoped(t, nil, "by=blue"), path, body)
			require.Equal(t, http.StatusOK, w.Code, "%s: %s", path, w.Body.String())
			answer := generic(t, w.Body.Bytes())
			require.Equal(t, true, answer["finalized"], path)
			given := 0
			for _, group := range at(generic(t, body), "children") {
				given += len(group.(map[string]any))
			}
			require.Len(t, answer["children"], given, "%s: all children stay", path)
			sent := at(generic(t, body), "parent")["status"]
			require.JSONEq(t, string(raw(t, sent)), string(raw(t, answer["status"])), path)
		}
	}
	w := post(scoped(t, nil, "by=blue"), "/finalize", edited(t, being(true), labelled("blue"), protected))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Equal(t, false, generic(t, w.Body.Bytes())["finalized"])
	w = post(scoped(t, nil, "by=blue"), "/finalize", edited(t, finalizing, labelled("blue")))
	require.Equal(t, http.StatusBadRequest, w.Code, "ours, and not being deleted")
}

// TestWhatIsWrongFirst: of all that is wrong with a call the same is said for each kind: that its namespace is
// another's, then that it came to the wrong hook, then that its labels are another's, and last that its parent is not
// being deleted. None of these is answered.
func TestWhatIsWrongFirst(t *testing.T) {
	const elsewhere, misplaced, labels = "does not look after, so nothing is changed", "finaliz", "lacks the labels"
	for _, c := range []struct {
		namespace, by, hook string
		finalizing, deleted bool
		code                int
		says                string
	}{
		{namespace: "bank", by: "green", hook: "sync", finalizing: true, code: 403, says: elsewhere},
		{namespace: "bank", by: "green", hook: "finalize", code: 403, says: elsewhere},
		{namespace: "shop", by: "green", hook: "sync", finalizing: true, deleted: true, code: 400, says: misplaced},
		{namespace: "shop", by: "green", hook: "finalize", code: 400, says: misplaced},
		{namespace: "shop", by: "green", hook: "sync", code: 403, says: labels},
		{namespace: "shop", by: "blue", hook: "finalize", finalizing: true, code: 400, says: misplaced},
		{namespace: "shop", by: "blue", hook: "sync", code: 200},
		{namespace: "shop", by: "blue", hook: "finalize", finalizing: true, deleted: true, code: 200},
		{namespace: "shop", by: "green", hook: "finalize", finalizing: true, code: 200},
	} {
		for path, body := range calls(t, c.hook, being(c.deleted), set(c.finalizing, "finalizing"), labelled(c.by)) {
			w := post(scoped(t, []string{c.namespace}, "by=blue"), path, body)
			require.Equal(t, c.code, w.Code, "%s %+v: %s", path, c, w.Body.String())
			require.Contains(t, w.Body.String(), c.says, path)
		}
	}
}

// relatedRule is one of what the hook customize answers.
type relatedRule struct {
	APIVersion, Resource string
	LabelSelector        *metav1.LabelSelector
	Namespace            string
	Names                []string
}

// related is what the hook customize answers to a call.
func related(t *testing.T, byUID bool, path string, body []byte) []relatedRule {
	t.Helper()
	s, _ := testServer(Options{RelatedByUID: byUID})
	w := post(s.Handler(), path+"customize", body)
	require.Equal(t, 200, w.Code, w.Body.String())
	var answer struct{ RelatedResources []relatedRule }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	require.NotNil(t, answer.RelatedResources, w.Body.String())
	return answer.RelatedResources
}

// TestRelated: which objects Metacontroller is asked to send besides the children. Asked by the name alone, all of a
// kind in the namespace; else those that matter.
func TestRelated(t *testing.T) {
	ours := v1beta1.GroupVersion.String()
	in := func(resource, namespace string, names ...string) relatedRule {
		return relatedRule{APIVersion: ours, Resource: resource, Namespace: namespace, Names: names}
	}
	by := func(apiVersion, resource string, labels map[string]string) relatedRule {
		return relatedRule{APIVersion: apiVersion, Resource: resource,
			LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}
	}
	ofCluster := map[string]string{"etcd.quorate.dev/cluster": "orders"}
	secrets := by("v1", "secrets", ofCluster)
	secrets.LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "controller-uid",
		Operator: metav1.LabelSelectorOpDoesNotExist}}
	remains := func(resource string, byUID bool) relatedRule {
		rule := by("v1", resource, ofCluster)
		rule.LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "controller-uid",
			Operator: metav1.LabelSelectorOpExists}}
		if byUID {
			rule.LabelSelector.MatchExpressions = append(rule.LabelSelector.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: "controller-uid", Operator: metav1.LabelSelectorOpNotIn,
					Values: []string{"12c500ed-0b78-7910-5fb4-6af0f246be87"}})
		}
		return rule
	}
	operations, all := in("etcdoperations", ""), in("etcdclusters", "")
	labelled := relatedRule{APIVersion: "v1", Resource: "secrets", LabelSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "etcd.quorate.dev/external",
			Operator: metav1.LabelSelectorOpExists}}}}
	pods := by("v1", "pods", map[string]string{"etcd.quorate.dev/snapshot": "nightly"})
	named := set(map[string]any{"snapshot": map[string]any{"snapshotRef": map[string]any{"name": "monday"}}},
		"bootstrap", "parent", "spec")
	outside := set(map[string]any{"external": map[string]any{"endpoints": []any{"http://a:2379"},
		"userSecretRef": map[string]any{"name": "old"}}}, "source", "parent", "spec")
	for _, c := range []struct {
		reason, path string
		body         []byte
		byName       []relatedRule
		byUID        []relatedRule
	}{
		{"a cluster's Secrets, operations and snapshots", "/", edited(t),
			[]relatedRule{secrets, labelled, operations, remains("persistentvolumeclaims", false), remains("configmaps", false),
				in("etcdsnapshots", "")},
			[]relatedRule{secrets, labelled, operations, remains("persistentvolumeclaims", true), remains("configmaps", true),
				by(ours, "etcdsnapshots", ofCluster)}},
		{"one that it names: without the namespace Metacontroller goes through those of all", "/", edited(t, named),
			[]relatedRule{secrets, labelled, operations, remains("persistentvolumeclaims", false), remains("configmaps", false),
				in("etcdsnapshots", "")},
			[]relatedRule{secrets, labelled, operations, remains("persistentvolumeclaims", true), remains("configmaps", true),
				by(ours, "etcdsnapshots", ofCluster), in("etcdsnapshots", "shop", "monday")}},
		{"a snapshot's pods and its cluster", "/snapshots/", aSnapshotCall(t),
			[]relatedRule{pods, all, labelled}, []relatedRule{pods, in("etcdclusters", "shop", "orders"), labelled}},
		{"any cluster may restore a snapshot that is being deleted", "/snapshots/", aSnapshotCall(t, being(true)),
			[]relatedRule{pods, all, labelled}, []relatedRule{pods, in("etcdclusters", "shop"), labelled}},
		{"the cluster whose upgrade may wait for a snapshot", "/schedules/", aScheduleCall(t),
			[]relatedRule{all, labelled}, []relatedRule{in("etcdclusters", "shop", "orders")}},
		{"the cluster whose changes are stored", "/schedules/", aScheduleCall(t, streams),
			[]relatedRule{all, labelled}, []relatedRule{in("etcdclusters", "shop", "orders"), labelled}},
		{"both clusters of a mirror", "/mirrors/", aMirrorCall(t),
			[]relatedRule{all, labelled}, []relatedRule{in("etcdclusters", "shop", "spare", "orders")}},
		{"the one of a mirror from elsewhere, and Secrets whose owners agree", "/mirrors/", aMirrorCall(t, outside),
			[]relatedRule{all, labelled}, []relatedRule{in("etcdclusters", "shop", "spare"), labelled}},
		{"the cluster of an operation", "/operations/", callOf(t, "operation"),
			[]relatedRule{all}, []relatedRule{in("etcdclusters", "shop", "orders")}},
	} {
		require.Equal(t, c.byName, related(t, false, c.path, c.body), c.reason)
		require.Equal(t, c.byUID, related(t, true, c.path, c.body), c.reason)
	}
}

// TestWhatIsRememberedByNameDependsOnTheNameAlone: Metacontroller before 4.16 keeps the answer of the hook customize
// by the name and generation of the parent, for all namespaces together. A parent of another tenant with the same name
// would be answered what was asked for by this one.
func TestWhatIsRememberedByNameDependsOnTheNameAlone(t *testing.T) {
	snapshot := func(name string) map[string]any {
		return map[string]any{"snapshot": map[string]any{"snapshotRef": map[string]any{"name": name}}}
	}
	elsewhere := func(r map[string]any) {
		at(r, "parent", "metadata")["namespace"] = "bank"
		at(r, "parent", "spec")["clusterRef"] = map[string]any{"name": "another"}
		at(r, "parent", "spec")["bootstrap"] = snapshot("tuesday")
	}
	for _, p := range parents {
		one, other := callOf(t, p.file), callOf(t, p.file, elsewhere)
		require.Equal(t, related(t, false, p.path, one), related(t, false, p.path, other), p.kind)
		if p.kind != v1beta1.KindSchedule { // without a stream it asks for nothing
			require.NotEqual(t, related(t, true, p.path, one), related(t, true, p.path, other), p.kind)
		}
	}
}

// TestWhatAWriteOfAClusterAsksAbout counts the EtcdSnapshots that Metacontroller asks about when one EtcdCluster is
// written: it matches the rules that each of them has been answered (matchesRelatedRule in
// pkg/controller/common/customize, 1.5.20 and 4.17.2).
func TestWhatAWriteOfAClusterAsksAbout(t *testing.T) {
	for name, given := range map[string]struct {
		byUID, namespaced bool // namespaced: a rule by labels matches in the parent's namespace alone
		want              int
	}{
		"1.5.20":                  {false, false, 60},
		"4.17.2, not told of it":  {false, true, 30},
		"4.17.2, as it is told":   {true, true, 10},
		"and in no more than one": {true, false, 10},
	} {
		written := &metav1.ObjectMeta{Namespace: "shop", Name: "orders", Labels: map[string]string{}}
		asked := 0
		for _, namespace := range []string{"shop", "bank"} {
			for _, cluster := range []string{"orders", "users", "carts"} {
				for n := range 10 {
					parent := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", cluster, n)}
					rules := related(t, given.byUID, "/snapshots/", aSnapshotCall(t,
						set(parent.Namespace, "namespace", "parent", "metadata"),
						set(parent.Name, "name", "parent", "metadata"),
						set(map[string]any{"name": cluster}, "clusterRef", "parent", "spec")))
					if slices.ContainsFunc(rules, func(rule relatedRule) bool {
						return rule.Resource == "etcdclusters" && matches(t, rule, &parent, written, given.namespaced)
					}) {
						asked++
					}
				}
			}
		}
		require.Equal(t, given.want, asked, name)
	}
}

func matches(t *testing.T, rule relatedRule, parent, object *metav1.ObjectMeta, namespaced bool) bool {
	t.Helper()
	if rule.Namespace != "" || len(rule.Names) > 0 {
		require.Contains(t, []string{"", parent.Namespace}, rule.Namespace, "Metacontroller refuses another namespace")
		return parent.Namespace == object.Namespace &&
			(len(rule.Names) == 0 || slices.Contains(rule.Names, object.Name))
	}
	selector := labels.Everything()
	if rule.LabelSelector != nil {
		var err error
		selector, err = metav1.LabelSelectorAsSelector(rule.LabelSelector)
		require.NoError(t, err)
	}
	return selector.Matches(labels.Set(object.Labels)) && (!namespaced || parent.Namespace == object.Namespace)
}

// FuzzParent: whatever JSON the wire takes about a parent that is no EtcdCluster is decided without a panic, twice
// alike, and the status that is answered comes to rest. No deletion of a snapshot comes from the hook finalize of its
// schedule.
func FuzzParent(f *testing.F) {
	for kind, p := range parents[1:] {
		for way := range byte(24) {
			edits := []byte{way, way / 2, way, 1, 0, way, 2, way, way, 1, 0, 2, way, 0, 0, way + 3}
			f.Add(callOf(f, p.file), edits, byte(kind))
		}
		f.Add(callOf(f, p.file, being(true)), []byte{}, byte(kind))
	}
	f.Fuzz(func(t *testing.T, body, edits []byte, kind byte) {
		p := parents[1+int(kind)%(len(parents)-1)]
		clock := p.clock
		if p.kind == v1beta1.KindSchedule {
			clock = "2026-11-22T04:00:00Z"
		}
		s, _ := serverAt(clock)
		s.log = slog.New(slog.DiscardHandler)
		h, path, request := s.Handler(), p.path+"sync", nonsensical(body, edits)
		if bytes.Contains(request, []byte(`"finalizing":true`)) {
			path = p.path + "finalize"
		}
		answered := ask(t, h, path, request)
		if answered == nil {
			return
		}
		require.Equal(t, string(answered), string(ask(t, h, path, request)), "the same again")
		for range 10 {
			next := generic(t, request)
			at(next, "parent")["status"] = generic(t, answered)["status"]
			again := ask(t, h, path, raw(t, next))
			require.NotNil(t, again, "an answer that is sent back is refused: %s", answered)
			if !bytes.Equal(again, answered) {
				answered = again
				continue
			}
			deleted := generic(t, request)
			being(true)(deleted)
			left := ask(t, h, p.path+"finalize", raw(t, deleted))
			require.NotNil(t, left, "what the hook sync takes, finalize takes")
			if p.kind == v1beta1.KindSchedule {
				require.Len(t, toldOf(t, left), len(at(deleted, "children", groupSnapshots)))
			}
			return
		}
		t.Fatalf("never at rest: %s", answered)
	})
}

// TestLabelledSecretsAreRead: of a mirror's related Secrets those of its namespace that have the label, and nothing
// that they hold.
func TestLabelledSecretsAreRead(t *testing.T) {
	secret := func(namespace string, labels map[string]any) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"password": "c2VjcmV0"},
			"metadata": map[string]any{"name": "old", "namespace": namespace, "uid": "u", "labels": labels}}
	}
	agreed := map[string]any{"etcd.quorate.dev/external": ""}
	for name, c := range map[string]struct {
		secret map[string]any
		want   map[string]bool
	}{
		"labelled":  {secret("shop", agreed), map[string]bool{"old": true}},
		"elsewhere": {secret("bank", agreed), map[string]bool{}},
		"unasked":   {secret("shop", map[string]any{"etcd.quorate.dev/cluster": "spare"}), map[string]bool{}},
	} {
		body := aMirrorCall(t, set(map[string]any{"old": c.secret}, "Secret.v1", "related"))
		r, err := wire.ReadMirror(bytes.NewReader(body))
		require.NoError(t, err)
		require.Equal(t, c.want, r.Observation.Labelled, name)
	}
	// A cluster may name any of them, and takes for its own only those that have its label.
	body := edited(t, set(map[string]any{"old": secret("shop", agreed)}, "Secret.v1", "related"),
		set(map[string]any{"rootPasswordSecretRef": map[string]any{"name": "old"}}, "auth", "parent", "spec"))
	r, err := wire.ReadCluster(t.Context(), bytes.NewReader(body))
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"old": true}, r.Related.Labelled)
	require.Empty(t, r.Related.Secrets)
	require.Nil(t, r.Secret("old"))

}
