package main

import (
	"fmt"
	"slices"
	"strings"
)

// What the templates ask; manifests/chart/templates/_helpers.tpl has the definitions.
const (
	suffix        = `include "quorate.suffix" .`
	release       = `.Release.Namespace`
	metaNamespace = `include "quorate.metacontrollerNamespace" .`
	metaVersion   = `.Values.metacontroller.version | trimPrefix "v"`
	isOwn         = `.Values.metacontroller.enabled`
	ofCaller      = `include "quorate.caller" .`
	isBearer      = `eq (include "quorate.caller" .) "bearer"`
)

// templates are the objects of some installations, which together have all that values choose among.
type templates struct {
	texts
	plain, foreign, certManager, only, old installed // plain has a Metacontroller of its own
}

// write makes the two files: the kinds, and all the rest.
func (t *templates) write() (kinds, rest string) {
	var first, second []string
	for _, o := range t.plain {
		switch o["kind"] {
		case "Namespace": // helm install --create-namespace
		case "CustomResourceDefinition":
			if isShared(o) { // helm installs what is in crds where it is not there, and never touches it again
				continue
			}
			annotations := at(o, "metadata", "annotations")
			annotations["helm.sh/resource-policy"] = "keep"
			first = append(first, t.yaml(o))
		case "Secret": // credentials.yaml: they are made where they are not there yet
		default:
			second = append(second, t.template(o))
		}
	}
	second = append(second, t.forOld(), t.forNamespaces(), t.policy())
	return "{{- if .Values.crds.install }}\n---\n" + strings.Join(first, "---\n") + "{{- end }}\n",
		"---\n" + strings.Join(second, "---\n")
}

func isShared(kind object) bool { return at(kind, "spec")["group"] == "metacontroller.k8s.io" }

// shared are the kinds of Metacontroller, which others may use too.
func (t *templates) shared() string {
	var all []string
	for _, o := range t.plain {
		if o["kind"] == "CustomResourceDefinition" && isShared(o) {
			all = append(all, t.yaml(o))
		}
	}
	if len(all) == 0 {
		panic(missing("a kind of Metacontroller"))
	}
	return strings.Join(all, "---\n")
}

// template is one object as a template. Those that other installations lack belong to the own Metacontroller.
func (t *templates) template(o object) string {
	if !t.foreign.has(o) {
		return when(isOwn, t.always(o)) + "\n"
	}
	return t.always(o)
}

func (t *templates) always(o object) string {
	meta := at(o, "metadata")
	name := fmt.Sprint(meta["name"])
	if labels, _ := meta["labels"].(object); labels["app.kubernetes.io/version"] != nil {
		t.set(labels, "app.kubernetes.io/version", metaVersion+" | quote")
	}
	if meta["namespace"] != nil {
		t.set(meta, "namespace", release)
	} else {
		meta["name"] = name + t.suffix()
	}
	switch o["kind"] {
	case "Deployment":
		if name == "metacontroller" {
			t.metacontroller(at(o, "spec"))
		} else {
			t.deployment(at(o, "spec"))
		}
	case "ClusterRole":
		if name == "quorate-metacontroller" {
			t.rights(o)
		}
	case "ClusterRoleBinding":
		ref := at(o, "roleRef")
		ref["name"] = fmt.Sprint(ref["name"]) + t.suffix()
		t.set(at(o, "subjects", 0), "namespace", metaNamespace)
	case "Role", "RoleBinding": // of Metacontroller's
		if name != "quorate-caller" {
			if o["kind"] == "RoleBinding" {
				t.set(at(o, "subjects", 0), "namespace", release)
			}
			break
		}
		if o["kind"] == "RoleBinding" {
			t.set(at(o, "subjects", 0), "namespace", metaNamespace)
		} else {
			at(o, "rules", 0)["resourceNames"] = []any{t.value(`include "quorate.callerSecret" .`)}
		}
		return when(isBearer, t.yaml(o)) + "\n"
	case "NetworkPolicy":
		if name == "quorate" {
			from := at(o, "spec", "ingress", 0, "from", 0)
			t.set(at(from, "namespaceSelector", "matchLabels"), "kubernetes.io/metadata.name", metaNamespace)
			t.put(from, "podSelector", when(isOwn, t.yaml(object{"podSelector": from["podSelector"]})))
		}
	case "ValidatingAdmissionPolicy":
		t.tenants(o, name)
	case "ValidatingAdmissionPolicyBinding":
		spec := at(o, "spec")
		spec["policyName"] = fmt.Sprint(spec["policyName"]) + t.suffix()
	case "CompositeController":
		t.controller(o, name)
	}
	if name == sharedIssuers {
		return when("not .Values.sharedIssuers", t.yaml(o)) + "\n"
	}
	return t.yaml(o)
}

func (t *templates) suffix() string { return t.value(suffix) }

func (t *templates) deployment(spec object) {
	t.set(spec, "replicas", ".Values.replicas")
	t.set(at(spec, "template", "metadata", "annotations"), "quorate.dev/certificate",
		`include "quorate.certificateSum" . | quote`)
	pod := at(spec, "template", "spec")
	t.put(pod, "affinity", "{{- with .Values.affinity }}", "affinity: {{- toYaml . | nindent INDENT+2 }}", "{{- end }}")
	for _, field := range []string{"imagePullSecrets", "nodeSelector", "tolerations", "priorityClassName"} {
		t.add(pod, field, "{{- with .Values."+field+" }}", field+": {{- toYaml . | nindent INDENT+2 }}", "{{- end }}")
	}
	t.set(at(pod, "volumes", 0, "secret"), "secretName", `include "quorate.hooksSecret" .`)
	c := at(pod, "containers", 0)
	t.put(c, "resources", "resources: {{- toYaml .Values.resources | nindent INDENT+2 }}")
	image, is := c["image"].(string)
	if !is {
		panic(missing("the image of the container"))
	}
	own := fmt.Sprintf(`include "quorate.image" (dict "own" .Values.image "registry" .Values.registry "default" %q)`,
		image)
	c["image"] = t.value(own)
	env := map[string]string{
		"QUORATE_IMAGE": own,
		"QUORATE_ETCD_REPOSITORY": fmt.Sprintf(`include "quorate.image" (dict "own" .Values.etcdRepository "registry" .Values.registry "default" %q)`,
			envOf(c, "QUORATE_ETCD_REPOSITORY")["value"]),
		"GOMEMLIMIT": ".Values.goMemoryLimit",
	}
	for name, expression := range env {
		t.set(envOf(c, name), "value", expression)
	}
	list := c["env"].([]any)
	for n, e := range list {
		if at(e)["name"] == "QUORATE_TOKEN_FILE" {
			list[n] = t.line(when(`ne (`+ofCaller+`) "none"`, t.yaml([]any{e})))
		}
		if at(e)["name"] == "QUORATE_METACONTROLLER" {
			list[n] = t.line(when(`eq (`+ofCaller+`) "bearer"`, t.yaml([]any{e})))
		}
	}
	for _, setting := range []struct{ value, env, expression string }{
		{".Values.allowedImageRepositories", "QUORATE_ALLOWED_IMAGE_REPOSITORIES",
			`.Values.allowedImageRepositories | uniq | sortAlpha | join "," | quote`},
		{".Values.onlyNamespaces", "QUORATE_ONLY_NAMESPACES",
			`.Values.onlyNamespaces | uniq | sortAlpha | join "," | quote`},
		{".Values.selector", "QUORATE_SELECTOR", `include "quorate.selector" . | quote`},
		{".Values.existingEndpoints", "QUORATE_EXISTING_ENDPOINTS",
			`.Values.existingEndpoints | uniq | sortAlpha | join "," | quote`},
		{".Values.sharedIssuers", "QUORATE_SHARED_ISSUERS", ".Values.sharedIssuers | quote"},
		{".Values.logLevel", "QUORATE_LOG_LEVEL", ".Values.logLevel | quote"},
		{".Values.verify", "QUORATE_VERIFY", ".Values.verify | quote"},
	} {
		list = append(list, t.line(when(setting.value, "- name: "+setting.env+"\n  value: {{ "+setting.expression+
			" }}")))
	}
	c["env"] = list
}

func envOf(container object, name string) object {
	list, _ := container["env"].([]any)
	for _, e := range list {
		if at(e)["name"] == name {
			return at(e)
		}
	}
	panic(missing("the variable " + name))
}

// rights are Metacontroller's: everything everywhere, or reading where it may write in some namespaces only.
func (t *templates) rights(role object) {
	all := func(from installed) []any { return from.get("ClusterRole", "quorate-metacontroller")["rules"].([]any) }
	t.put(role, "rules",
		"rules:",
		"{{- if .Values.onlyNamespaces }}", t.optionalLast(all(t.only)),
		"{{- else }}", t.optionalLast(all(t.certManager)),
		"{{- end }}")
}

// optionalLast is a list in YAML whose last element is there with cert-manager only.
func (t *templates) optionalLast(list []any) string {
	last := len(list) - 1
	if last < 1 || !strings.Contains(t.yaml(list[last]), "cert-manager.io") {
		panic(missing("cert-manager at the end of a list"))
	}
	return strings.TrimRight(t.yaml(list[:last]), "\n") + "\n" + when(".Values.certManager", t.yaml(list[last:]))
}

// metacontroller is the own one.
func (t *templates) metacontroller(spec object) {
	pod := at(spec, "template", "spec")
	for _, field := range []string{"imagePullSecrets", "nodeSelector", "tolerations", "priorityClassName"} {
		t.add(pod, field, "{{- with .Values."+field+" }}", field+": {{- toYaml . | nindent INDENT+2 }}", "{{- end }}")
	}
	c := at(pod, "containers", 0)
	t.put(c, "resources", "resources: {{- toYaml .Values.metacontroller.resources | nindent INDENT+2 }}")
	image, _ := c["image"].(string)
	repository, _, tagged := strings.Cut(image, ":v")
	if !tagged {
		panic(missing("the version in the image of Metacontroller"))
	}
	c["image"] = t.value(fmt.Sprintf(`include "quorate.image" (dict "own" .Values.metacontroller.image "registry" .Values.registry "default" %q)`, repository)) +
		":v" + t.value(metaVersion)
	args, _ := c["args"].([]any)
	n := slices.Index(args, any("--target-label-selector=quorate.dev/installation=quorate-system"))
	if n < 0 {
		panic(missing("the label that Metacontroller is restricted to"))
	}
	args[n] = "--target-label-selector=quorate.dev/installation=" + t.value(release)
	t.set(envOf(c, "GOMEMLIMIT"), "value", ".Values.metacontroller.goMemoryLimit")
}

func (t *templates) controller(o object, name string) {
	t.set(at(o, "metadata", "labels"), "quorate.dev/installation", release)
	t.set(at(o, "metadata", "annotations"), "quorate.dev/credentials", `include "quorate.credentialsSum" . | quote`)
	spec := at(o, "spec")
	t.add(at(spec, "parentResource"), "labelSelector",
		"{{- with .Values.selector }}", "labelSelector:", "  matchLabels: {{- toYaml . | nindent INDENT+4 }}",
		"{{- end }}")
	if name == "quorate-etcdcluster" {
		t.set(spec, "resyncPeriodSeconds", ".Values.resyncPeriodSeconds")
		children := t.certManager.get("CompositeController", name)["spec"].(object)["childResources"].([]any)
		t.put(spec, "childResources", "childResources:", t.optionalLast(children))
	}
	for _, hook := range at(spec, "hooks") {
		webhook := at(hook, "webhook")
		address, _ := webhook["url"].(string)
		path, is := strings.CutPrefix(address, "https://quorate.quorate-system.svc/")
		if !is {
			panic(missing("the URL of a hook"))
		}
		webhook["url"] = "https://" + t.value(`include "quorate.user" .`) + "quorate." + t.value(release) + ".svc/" +
			path
		t.put(webhook, "caBundle", when(isBearer, "caBundle:\n  inline: {{ include \"quorate.ca\" . | toJson }}"))
		t.set(at(webhook, "authorization", "secretRef"), "name", `include "quorate.callerSecret" .`)
		t.set(at(webhook, "authorization", "secretRef"), "namespace", release)
		t.put(webhook, "authorization", when(isBearer, t.yaml(object{"authorization": webhook["authorization"]})))
	}
}

// forOld is what a Metacontroller before 4.16 mounts.
func (t *templates) forOld() string {
	o := t.old.get("ConfigMap", "quorate-hook-ca")
	t.set(at(o, "metadata"), "namespace", metaNamespace)
	t.set(at(o, "data"), "ca.crt", `include "quorate.ca" . | toJson`)
	return when("not ("+isBearer+")", t.yaml(o)) + "\n"
}

// forNamespaces are Metacontroller's rights to write in each of some namespaces.
func (t *templates) forNamespaces() string {
	role, binding := t.only.get("Role", "quorate-metacontroller"), t.only.get("RoleBinding", "quorate-metacontroller")
	for _, o := range []object{role, binding} {
		meta := at(o, "metadata")
		meta["name"] = fmt.Sprint(meta["name"]) + t.value(`include "quorate.suffix" $`)
		t.set(meta, "namespace", ".")
	}
	ref := at(binding, "roleRef")
	ref["name"] = fmt.Sprint(ref["name"]) + t.value(`include "quorate.suffix" $`)
	t.set(at(binding, "subjects", 0), "namespace", `include "quorate.metacontrollerNamespace" $`)
	rules := role["rules"].([]any)
	t.put(role, "rules", "rules:", strings.ReplaceAll(t.optionalLast(rules), ".Values", "$.Values"))
	return "{{- range .Values.onlyNamespaces | uniq | sortAlpha }}\n---\n" + t.yaml(role) + "---\n" + t.yaml(binding) +
		"{{- end }}\n"
}

// The policies that refuse what the values do not allow.
const (
	existingEndpoints = "quorate-existing-endpoints"
	sharedIssuers     = "quorate-shared-issuers"
)

// tenants makes those look at the objects of this release alone, and at what it allows.
func (t *templates) tenants(policy object, name string) {
	if name != existingEndpoints && name != sharedIssuers {
		return
	}
	t.add(at(policy, "spec", "matchConstraints"), "objectSelector",
		"{{- with .Values.selector }}", "objectSelector:", "  matchLabels: {{- toYaml . | nindent INDENT+4 }}",
		"{{- end }}")
	if name == sharedIssuers {
		return
	}
	validation := at(policy, "spec", "validations", 0)
	for key, place := range map[string]struct{ text, value string }{
		"expression": {"|| false)", "|| " + t.value(`include "quorate.allowedEndpoints" .`) + ")"},
		"message":    {"nowhere", t.value(`include "quorate.allowedPlaces" .`)},
	} {
		text, _ := validation[key].(string)
		if strings.Count(text, place.text) != 1 {
			panic(missing("what is allowed in the policy's " + key))
		}
		validation[key] = strings.ReplaceAll(text, place.text, place.value)
	}
}

// policy refuses objects in other namespaces.
func (t *templates) policy() string {
	policy := t.only.get("ValidatingAdmissionPolicy", "quorate-only-namespaces")
	binding := t.only.get("ValidatingAdmissionPolicyBinding", "quorate-only-namespaces")
	for _, o := range []object{policy, binding} {
		meta := at(o, "metadata")
		meta["name"] = fmt.Sprint(meta["name"]) + t.suffix()
	}
	spec := at(binding, "spec")
	spec["policyName"] = fmt.Sprint(spec["policyName"]) + t.suffix()
	t.add(at(policy, "spec", "matchConstraints"), "objectSelector",
		"{{- with .Values.selector }}", "objectSelector:", "  matchLabels: {{- toYaml . | nindent INDENT+4 }}",
		"{{- end }}")
	validation := at(policy, "spec", "validations", 0)
	for key, name := range map[string]string{
		"expression":        `.Values.onlyNamespaces | uniq | sortAlpha | join "', '"`,
		"messageExpression": `.Values.onlyNamespaces | uniq | sortAlpha | join ", "`,
	} {
		text, _ := validation[key].(string)
		if strings.Count(text, "only-this") != 1 {
			panic(missing("the namespace in the policy's " + key))
		}
		validation[key] = strings.ReplaceAll(text, "only-this", t.value(name))
	}
	return when(".Values.onlyNamespaces", "---\n"+t.yaml(policy)+"---\n"+t.yaml(binding)) + "\n"
}
