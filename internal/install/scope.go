package install

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// toMetacontroller is the ClusterRole of Metacontroller's for Quorate, and what is added to it in single namespaces.
const toMetacontroller = "quorate-metacontroller"

// onlyNamespaces is the policy that refuses clusters in other namespaces.
const onlyNamespaces = "quorate-namespaces"

// scope says which objects of our kinds an installation looks after. Empty is all of them.
type scope struct {
	name     string // of this installation beside others: a suffix of the names that a Kubernetes has once
	only     string // as it was given
	selector string // as it was given

	namespaces []string
	matches    *metav1.LabelSelector
}

func (s *scope) flags(flags *flag.FlagSet) {
	flags.StringVar(&s.only, "namespaces", "",
		"`namespaces`, with commas between, that EtcdClusters may be in; Metacontroller may write in no other. Empty "+
			"for all")
	flags.StringVar(&s.name, "name", "",
		"`name` of this installation beside others, with --selector: it is added to the names of all that has no "+
			"namespace")
	flags.StringVar(&s.selector, "selector", "",
		"label `selector` of the EtcdClusters, snapshots and schedules that this installation looks after; empty for "+
			"all")
}

// check reads what was given, and refuses what would make two controllers answer for one cluster.
func (s *scope) check(c caller) error {
	var err error
	if s.namespaces, err = Namespaces(s.only); err != nil {
		return err
	}
	if s.name != "" && len(validation.IsDNS1123Label(s.name)) > 0 {
		return fmt.Errorf("--name must be lower-case letters, digits and dashes, not %q", s.name)
	}
	if s.name == "core" || s.name == "leader" {
		return fmt.Errorf("--name=%s would take the names of rights of an installation without a name: choose another "+
			"one", s.name)
	}
	if s.selector == "" && s.name != "" {
		return errors.New("--name needs --selector: without it, this installation and another would both answer for " +
			"every EtcdCluster")
	}
	if s.selector == "" {
		return nil
	}
	if s.matches, err = metav1.ParseToLabelSelector(s.selector); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	if c != bearer {
		return errors.New("--selector needs --metacontroller-version=4.16 or later: older ones may not know " +
			"spec.parentResource.labelSelector, and call the hooks for every EtcdCluster")
	}
	return nil
}

// Namespaces are the names in a list with commas between.
func Namespaces(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	all := strings.Split(list, ",")
	for _, name := range all {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return nil, fmt.Errorf("--namespaces must be names of namespaces with commas between, and %q is none",
				name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// env is what the server is told.
func (s *scope) env() []any {
	var all []any
	if len(s.namespaces) > 0 {
		all = append(all, object{"name": "QUORATE_NAMESPACES", "value": strings.Join(s.namespaces, ",")})
	}
	if s.selector != "" {
		all = append(all, object{"name": "QUORATE_SELECTOR", "value": s.selector})
	}
	return all
}

// selectParents makes Metacontroller ask about the parents that are looked after, and no others.
func (s *scope) selectParents(parent object) {
	if s.matches != nil {
		parent["labelSelector"] = selectorObject(s.matches)
	}
}

func selectorObject(m *metav1.LabelSelector) object {
	o := object{}
	if len(m.MatchLabels) > 0 {
		labels := object{}
		for key, value := range m.MatchLabels {
			labels[key] = value
		}
		o["matchLabels"] = labels
	}
	var expressions []any
	for _, e := range m.MatchExpressions {
		expression := object{"key": e.Key, "operator": string(e.Operator)}
		if len(e.Values) > 0 {
			expression["values"] = listOf(e.Values...)
		}
		expressions = append(expressions, expression)
	}
	if expressions != nil {
		o["matchExpressions"] = expressions
	}
	return o
}

func listOf(all ...string) []any {
	var list []any
	for _, s := range all {
		list = append(list, s)
	}
	return list
}

// suffix is what the name of the installation adds to the names that a Kubernetes has once.
func (s *scope) suffix() string {
	if s.name == "" {
		return ""
	}
	return "-" + s.name
}

// rename adds the name of the installation to that of an object without a namespace, and where others name it.
func (s *scope) rename(o object) {
	meta := at(o, "metadata")
	if s.name == "" || meta["namespace"] != nil || o["kind"] == "Namespace" || o["kind"] == "CustomResourceDefinition" {
		return
	}
	meta["name"] = meta["name"].(string) + s.suffix()
	switch o["kind"] {
	case "ClusterRoleBinding":
		ref := at(o, "roleRef")
		ref["name"] = ref["name"].(string) + s.suffix()
	case "ValidatingAdmissionPolicyBinding":
		spec := at(o, "spec")
		spec["policyName"] = spec["policyName"].(string) + s.suffix()
	}
}

// restrict leaves to Metacontroller's ClusterRole what Metacontroller can't do without: it watches all namespaces,
// whatever it is for.
func (s *scope) restrict(role object) {
	if len(s.namespaces) == 0 || at(role, "metadata")["name"] != toMetacontroller {
		return
	}
	role["rules"] = verbsOf(role["rules"].([]any), reads)
}

// reads reports whether a verb changes nothing.
func reads(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// verbsOf are the rules with some of their verbs.
func verbsOf(rules []any, which func(verb string) bool) []any {
	var all []any
	for _, rule := range rules {
		rule := rule.(object)
		var verbs []any
		for _, verb := range rule["verbs"].([]any) {
			if which(verb.(string)) {
				verbs = append(verbs, verb)
			}
		}
		if verbs != nil {
			all = append(all, object{"apiGroups": rule["apiGroups"], "resources": rule["resources"], "verbs": verbs})
		}
	}
	return all
}

// added are the objects for single namespaces: in each what Metacontroller may write there, and a policy that refuses
// clusters elsewhere.
func (s *scope) added(objects []object, metacontroller string) []object {
	if len(s.namespaces) == 0 {
		return nil
	}
	var writes []any
	for _, o := range objects {
		if o["kind"] == "ClusterRole" && at(o, "metadata")["name"] == toMetacontroller {
			writes = verbsOf(o["rules"].([]any), func(verb string) bool { return !reads(verb) })
		}
	}
	name := toMetacontroller + s.suffix()
	const group = "rbac.authorization.k8s.io"
	var all []object
	for _, namespace := range s.namespaces {
		all = append(all, object{
			"apiVersion": group + "/v1", "kind": "Role", "rules": writes,
			"metadata": object{"name": name, "namespace": namespace},
		}, object{
			"apiVersion": group + "/v1", "kind": "RoleBinding",
			"metadata": object{"name": name, "namespace": namespace},
			"roleRef":  object{"apiGroup": group, "kind": "Role", "name": name},
			"subjects": []any{metacontrollerIn(metacontroller)},
		})
	}
	all = append(all, s.policy()...)
	for _, o := range all {
		addLabels(o, map[string]string{"app.kubernetes.io/part-of": "quorate"})
	}
	return all
}

// policy refuses what Quorate would not look after, right away and in words. It is asked when an object is made and
// never again: one that is there can be changed and deleted, whatever became of the list since.
func (s *scope) policy() []object {
	const group, name = "admissionregistration.k8s.io/v1", onlyNamespaces
	match := object{"resourceRules": []any{object{
		"apiGroups": listOf("etcd.quorate.dev"), "apiVersions": listOf("*"), "operations": listOf("CREATE"),
		"resources": listOf("etcdclusters", "etcdsnapshots", "etcdsnapshotschedules", "etcdoperations",
			"etcdmirrors"),
	}}}
	if s.matches != nil {
		match["objectSelector"] = selectorObject(s.matches)
	}
	return []object{{
		"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": object{"name": name},
		"spec": object{
			"failurePolicy": "Fail", "matchConstraints": match,
			"validations": []any{object{
				"expression": "request.namespace in ['" + strings.Join(s.namespaces, "', '") + "']",
				"messageExpression": "'Quorate was installed for the namespaces " + strings.Join(s.namespaces, ", ") +
					" alone: it would not look after ' + request.kind.kind + ' ' + object.metadata.name + ' in " +
					"namespace ' + request.namespace",
			}},
		},
	}, {
		"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": object{"name": name},
		"spec": object{"policyName": name, "validationActions": listOf("Deny")},
	}}
}
