package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// policyRule, role and binding are what matters of RBAC. Reading it takes no right to act as another user, as `kubectl
// auth can-i --as` does.
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
	Metadata metav1.ObjectMeta           `json:"metadata"`
	RoleRef  struct{ Kind, Name string } `json:"roleRef"`
	Subjects []subject                   `json:"subjects"`
}

// binds reports whether this service account is among the subjects.
func (b binding) binds(namespace, account string) bool {
	return slices.ContainsFunc(b.Subjects, func(o subject) bool { return o.is(namespace, account) })
}

// is reports whether a subject is this service account, by itself or as one of a group.
func (s subject) is(namespace, account string) bool {
	switch s.Kind {
	case "ServiceAccount":
		return s.Namespace == namespace && s.Name == account
	case "User":
		return s.Name == "system:serviceaccount:"+namespace+":"+account
	case "Group":
		return slices.Contains([]string{"system:serviceaccounts", "system:serviceaccounts:" + namespace,
			"system:authenticated"}, s.Name)
	}
	return false
}

// allows reports whether a rule allows one verb on all objects of a resource, or on those of some names.
func (r policyRule) allows(group, resource, verb string, names []string) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, one) || slices.Contains(all, "*") }
	_, sub, divided := strings.Cut(resource, "/")
	named := len(r.ResourceNames) == 0
	if len(names) > 0 && !named {
		named = !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(r.ResourceNames, n) })
	}
	if !named || !has(r.APIGroups, group) || !has(r.Verbs, verb) {
		return false
	}
	return has(r.Resources, resource) || divided && slices.Contains(r.Resources, "*/"+sub)
}

func metacontrollerRights(s *Seen) Finding {
	w := s.metacontroller()
	account := cmp.Or(w.Spec.Template.Spec.ServiceAccountName, "default")
	who := "service account " + s.Metacontroller + "/" + account
	only := s.only()
	has := s.allowed(account)
	// One that does not tell it is taken for an old one: nothing is asked for that it may not need.
	version, _ := s.metacontrollerVersion()
	forOurs := lacks(has, shippedRights(s.namesCertificates()), len(only) > 0)
	itself := lacks(has, coreRights(version), false)
	var flaws []Finding
	var roles []string
	if len(forOurs) > 0 {
		roles = append(roles, forAnswers)
	}
	if len(itself) > 0 {
		roles = append(roles, forItself)
	}
	if all := slices.Concat(itself, forOurs); len(all) > 0 {
		flaws = append(flaws, fail(who+" may not, in all namespaces: "+few(all), s.grant(account, roles)))
	}
	if elects := flag(containerOf(w), "leader-election"); elects != "" && elects != "false" {
		if all := lacks(slices.Concat(has, s.allowedThere(account)), shipped().leader, false); len(all) > 0 {
			flaws = append(flaws, fail(who+" may not, in its namespace: "+few(all)+": no replica ever works",
				command("kubectl -n %s create role %s --verb=get,create,update --resource=leases.coordination.k8s.io",
					s.Metacontroller, forElection)+" and "+
					command("kubectl -n %s create rolebinding %s --role=%s --serviceaccount=%s:%s", s.Metacontroller,
						forElection,
						forElection, s.Metacontroller, account)))
		}
	}
	if len(only) > 0 {
		return together(ok("%s has the rights that it needs; its Roles in %s were not checked", who,
			strings.Join(only, ", ")), flaws)
	}
	return together(ok("%s may work, and do all that Quorate's answers ask for", who), flaws)
}

// few are the first of these, and how many there are besides.
func few(all []string) string {
	words := strings.Join(all[:min(len(all), 3)], "; ")
	if len(all) > 3 {
		words += fmt.Sprintf("; and %d more", len(all)-3)
	}
	return words
}

// grant is what gives these roles to a service account.
func (s *Seen) grant(account string, roles []string) string {
	if account == "metacontroller" {
		return "apply the ClusterRole and ClusterRoleBinding " + strings.Join(roles, " and ") + ": " + s.install()
	}
	var all []string
	for _, r := range roles {
		all = append(all, command("kubectl create clusterrolebinding %s-%s --clusterrole=%s --serviceaccount=%s:%s", r,
			account, r, s.Metacontroller, account))
	}
	return strings.Join(all, " and ") + "; what quorate install prints is for a service account named metacontroller"
}

// allowed are the rules that a service account in Metacontroller's namespace has in all namespaces.
func (s *Seen) allowed(account string) []policyRule {
	var has []policyRule
	for _, b := range s.bindings {
		if b.binds(s.Metacontroller, account) {
			has = append(has, s.roles[b.RoleRef.Name]...)
		}
	}
	return has
}

// allowedThere are those that it has in its own namespace besides.
func (s *Seen) allowedThere(account string) []policyRule {
	var has []policyRule
	for _, b := range s.bindingsThere {
		switch {
		case !b.binds(s.Metacontroller, account):
		case b.RoleRef.Kind == "ClusterRole":
			has = append(has, s.roles[b.RoleRef.Name]...)
		default:
			has = append(has, s.rolesThere[b.RoleRef.Name]...)
		}
	}
	return has
}

// lacks says what is wanted and not allowed, by verbs. Where Roles in single namespaces let it write, the rights to
// read are all that is wanted.
func lacks(has, wanted []policyRule, readOnly bool) []string {
	var all []string
	for _, want := range wanted {
		if readOnly {
			want.Verbs = slices.DeleteFunc(slices.Clone(want.Verbs),
				func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) })
		}
		before := ""
		for _, resource := range want.Resources {
			verbs := strings.Join(lacking(has, want, resource), ", ")
			name := strings.TrimSuffix(resource+"."+want.APIGroups[0], ".")
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

// lacking are the verbs of what is wanted that none of the rules allows.
func lacking(has []policyRule, want policyRule, resource string) []string {
	return slices.DeleteFunc(slices.Clone(want.Verbs), func(verb string) bool {
		return slices.ContainsFunc(has, func(r policyRule) bool {
			return r.allows(want.APIGroups[0], resource, verb, want.ResourceNames)
		})
	})
}
