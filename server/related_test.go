package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

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
		t.Run(name, func(t *testing.T) {
			s, _ := testServer(Options{RelatedByUID: given.byUID})
			h := s.Handler()
			written := &metav1.ObjectMeta{Namespace: "shop", Name: "orders", Labels: map[string]string{}}
			asked := 0
			for _, namespace := range []string{"shop", "bank"} {
				for _, cluster := range []string{"orders", "users", "carts"} {
					for n := range 10 {
						parent := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", cluster, n)}
						rules := related(t, post(h, "/snapshots/customize", aSnapshotCall(t, func(r map[string]any) {
							with(at(r, "parent", "metadata"), "namespace", parent.Namespace)["name"] = parent.Name
							at(r, "parent", "spec")["clusterRef"] = map[string]any{"name": cluster}
						})).Body.Bytes())
						if slices.ContainsFunc(rules, func(rule relatedRule) bool {
							return rule.Resource == "etcdclusters" &&
								matches(t, rule, &parent, written, given.namespaced)
						}) {
							asked++
						}
					}
				}
			}
			require.Equal(t, given.want, asked)
		})
	}
}

// TestNamedSnapshotsAreLookedForInTheNamespace: without it Metacontroller goes through those of all namespaces.
func TestNamedSnapshotsAreLookedForInTheNamespace(t *testing.T) {
	for byUID, want := range map[bool][]relatedRule{false: {{}}, true: {
		{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"etcd.quorate.dev/cluster": "orders"}}},
		{Namespace: "shop", Names: []string{"monday"}},
	}} {
		s, _ := testServer(Options{RelatedByUID: byUID})
		rules := related(t, post(s.Handler(), "/customize", edited(t, func(r map[string]any) {
			at(r, "parent", "spec")["bootstrap"] = map[string]any{"snapshot": map[string]any{
				"snapshotRef": map[string]any{"name": "monday"}}}
		})).Body.Bytes())
		for i := range want {
			want[i].APIVersion, want[i].Resource = v1alpha1.GroupVersion.String(), "etcdsnapshots"
		}
		require.Equal(t, "etcdoperations", rules[1].Resource)
		require.Equal(t, want, rules[2:])
	}
}

// relatedRule is one of what the hook customize answers.
type relatedRule struct {
	APIVersion, Resource string
	LabelSelector        *metav1.LabelSelector
	Namespace            string
	Names                []string
}

func related(t *testing.T, body []byte) []relatedRule {
	t.Helper()
	var answer struct{ RelatedResources []relatedRule }
	require.NoError(t, json.Unmarshal(body, &answer))
	require.NotEmpty(t, answer.RelatedResources, string(body))
	return answer.RelatedResources
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

// TestADeletedSnapshotAsksAboutAllClusters: any of the namespace may restore it, and not only its own.
func TestADeletedSnapshotAsksAboutAllClusters(t *testing.T) {
	for deleted, names := range map[bool][]string{false: {"orders"}, true: nil} {
		s, _ := testServer(Options{RelatedByUID: true})
		rules := related(t, post(s.Handler(), "/snapshots/customize", aSnapshotCall(t, being(deleted))).Body.Bytes())
		require.Contains(t, rules, relatedRule{APIVersion: v1alpha1.GroupVersion.String(), Resource: "etcdclusters",
			Namespace: "shop", Names: names})
	}
}
