package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// policyRule, role and binding are what matters of RBAC. Reading it takes no right to act as somebody else, as `kubectl auth can-i --as` does.
type policyRule struct {
	APIGroups     []string `json:"apiGroups"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resourceNames"`
	Verbs         []string `json:"verbs"`
}

type role struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Rules    []policyRule      `json:"rules"`
}

type subject struct{ Kind, Name, Namespace string }

type binding struct {
	Metadata metav1.ObjectMeta     `json:"metadata"`
	RoleRef  struct{ Name string } `json:"roleRef"`
	Subjects []subject             `json:"subjects"`
}

// is reports whether a subject is this service account, by itself or as one of a group.
func (s subject) is(namespace, account string) bool {
	switch s.Kind {
	case "ServiceAccount":
		return s.Namespace == namespace && s.Name == account
	case "User":
		return s.Name == "system:serviceaccount:"+namespace+":"+account
	case "Group":
		return slices.Contains([]string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}, s.Name)
	}
	return false
}

// allows reports whether a rule allows one verb on all objects of a resource.
func (r policyRule) allows(group, resource, verb string) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, one) || slices.Contains(all, "*") }
	_, sub, divided := strings.Cut(resource, "/")
	return len(r.ResourceNames) == 0 && has(r.APIGroups, group) && has(r.Verbs, verb) &&
		(has(r.Resources, resource) || divided && slices.Contains(r.Resources, "*/"+sub))
}

func metacontrollerRights(s *Seen) Finding {
	w := s.metacontroller()
	if w == nil {
		return noMetacontroller()
	}
	account := cmp.Or(w.Spec.Template.Spec.ServiceAccountName, "default")
	who := "service account " + s.Metacontroller + "/" + account
	only := s.only()
	lacks := lacks(s.allowed(account), shippedRights(s.namesCertificates()), len(only) > 0)
	switch {
	case len(lacks) == 0 && len(only) > 0:
		return ok("%s may read all that is needed; its Roles in %s were not looked at", who, strings.Join(only, ", "))
	case len(lacks) == 0:
		return ok("%s may do all that Quorate's answers ask for", who)
	}
	words := strings.Join(lacks[:min(len(lacks), 3)], "; ")
	if len(lacks) > 3 {
		words += fmt.Sprintf("; and %d more", len(lacks)-3)
	}
	do := "apply the ClusterRole and ClusterRoleBinding quorate-metacontroller: " + s.install()
	if account != "metacontroller" {
		do = fmt.Sprintf("`kubectl create clusterrolebinding quorate-%s --clusterrole=quorate-metacontroller --serviceaccount=%s:%s`; what quorate install prints is for a service account named metacontroller",
			account, s.Metacontroller, account)
	}
	return fail(who+" may not, in all namespaces: "+words, do)
}

// allowed are the rules that a service account in Metacontroller's namespace has in all namespaces.
func (s *Seen) allowed(account string) []policyRule {
	var has []policyRule
	for _, b := range s.bindings {
		if slices.ContainsFunc(b.Subjects, func(o subject) bool { return o.is(s.Metacontroller, account) }) {
			has = append(has, s.roles[b.RoleRef.Name]...)
		}
	}
	return has
}

// lacks says what is wanted and not allowed, by verbs. Where Roles in single namespaces let it write, the rights to read are all that is wanted.
func lacks(has, wanted []policyRule, readOnly bool) []string {
	var all []string
	for _, want := range wanted {
		if readOnly {
			want.Verbs = slices.DeleteFunc(slices.Clone(want.Verbs), func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) })
		}
		before := ""
		for _, resource := range want.Resources {
			verbs, name := strings.Join(lacking(has, want.APIGroups[0], resource, want.Verbs), ", "), strings.TrimSuffix(resource+"."+want.APIGroups[0], ".")
			switch verbs {
			case "":
			case before:
				all[len(all)-1] += ", " + name
			default:
				all = append(all, verbs+" "+name)
			}
			before = verbs
		}
	}
	return all
}

// lacking are the verbs that none of the rules allows.
func lacking(has []policyRule, group, resource string, verbs []string) []string {
	return slices.DeleteFunc(slices.Clone(verbs), func(verb string) bool {
		return slices.ContainsFunc(has, func(r policyRule) bool { return r.allows(group, resource, verb) })
	})
}
