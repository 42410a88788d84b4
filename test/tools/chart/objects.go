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
	metaWorkers   = `int .Values.metacontroller.workers`
	metaQPS       = `int .Values.metacontroller.qps`
	isOwn         = `.Values.metacontroller.enabled`
	ofCaller      = `include "quorate.caller" .`
	isBearer      = `eq (include "quorate.caller" .) "bearer"`
)

// templates are the objects of some installations, which together have all that values choose among.
type templates struct {
	texts
	plain, external, certManager, only, old installed // plain has a Metacontroller of its own
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
			first = append(first, t.yaml(t.labelled(o)))
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
	if !t.external.has(o) {
		return when(isOwn, t.always(o)) + "\n"
	}
	return t.always(o)
}

func (t *templates) always(o object) string {
	meta := at(o, "metadata")
	name := fmt.Sprint(meta["name"])
	t.labelled(o)
	if meta["namespace"] != nil {
		t.set(meta, "namespace", release)
	} else {
		t.suffixed(meta, "name", suffix)
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
		t.suffixed(at(o, "roleRef"), "name", suffix)
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
		t.suffixed(at(o, "spec"), "policyName", suffix)
	case "CompositeController":
		t.controller(o, name)
	}
	if name == sharedIssuers {
		return when("not .Values.sharedIssuers", t.yaml(o)) + "\n"
	}
	return t.yaml(o)
}

// labelled gives an object the labels of the release: beside what it is a part of, what it is, of which version, and who
// keeps it. No selector has these.
func (t *templates) labelled(o object) object {
	labels := at(o, "metadata", "labels")
	if labels["app.kubernetes.io/name"] == nil {
		labels["app.kubernetes.io/name"] = "quorate"
	}
	version := "$.Chart.AppVersion"
	if labels["app.kubernetes.io/version"] != nil {
		version = metaVersion
	}
	labels["app.kubernetes.io/version"] = t.value(version + " | quote")
	t.add(labels, "helm.sh/chart", `{{- include "quorate.labels" $ | nindent INDENT }}`)
	return o
}

// suffixed puts the installation's suffix behind a name, by which two of them are told apart.
func (t *templates) suffixed(o object, key, suffix string) {
	o[key] = fmt.Sprint(o[key]) + t.value(suffix)
}

// image is the expression for an image whose parts the user may name. Of ours a release has the digest, which that of
// another repository may not have.
func image(values, repository, tag, digest string) string {
	return fmt.Sprintf(`include "quorate.image" (dict "own" %s.image "registry" .Values.registry `+
		`"default" %q "tag" (%s) "digest" (%s))`, values, repository, tag, digest)
}

// container is the one of a Deployment, with what values say about it and its pod.
func (t *templates) container(spec object, values string) object {
	pod := at(spec, "template", "spec")
	lines := func(field string) []string {
		return []string{"{{- with .Values." + field + " }}", field + ": {{- toYaml . | nindent INDENT+2 }}", "{{- end }}"}
	}
	for _, field := range []string{"imagePullSecrets", "nodeSelector", "priorityClassName"} {
		t.add(pod, field, lines(field)...)
	}
	t.put(pod, "tolerations", lines("tolerations")...)
	c := at(pod, "containers", 0)
	t.put(c, "resources", "resources: {{- toYaml "+values+".resources | nindent INDENT+2 }}")
	t.add(c, "imagePullPolicy", "{{- with "+values+".image.pullPolicy }}", "imagePullPolicy: {{ . }}", "{{- end }}")
	return c
}

// selector has the API server look at the objects of this installation alone.
func (t *templates) selector(o object, key string) {
	t.add(o, key, "{{- with .Values.selector }}", key+":", "  matchLabels: {{- toYaml . | nindent INDENT+4 }}",
		"{{- end }}")
}

// within puts a text in the place of a part of a value, which is there once.
func within(o object, key, part, text string) {
	old, _ := o[key].(string)
	if strings.Count(old, part) != 1 {
		panic(missing(part + " in " + key))
	}
	o[key] = strings.ReplaceAll(old, part, text)
}

func (t *templates) deployment(spec object) {
	t.set(spec, "replicas", ".Values.replicas")
	t.set(at(spec, "template", "metadata", "annotations"), "quorate.dev/certificate",
		`include "quorate.certificateSum" . | quote`)
	pod := at(spec, "template", "spec")
	t.put(pod, "affinity", "{{- with .Values.affinity }}", "affinity: {{- toYaml . | nindent INDENT+2 }}", "{{- end }}")
	t.set(at(pod, "volumes", 0, "secret"), "secretName", `include "quorate.hooksSecret" .`)
	c := t.container(spec, ".Values")
	repository, _, _ := strings.Cut(fmt.Sprint(c["image"]), ":")
	const digest = `ternary "" (index .Chart.Annotations "quorate.dev/image-digest") (not (empty .Values.image.repository))`
	own := image(".Values", repository, ".Chart.AppVersion", digest)
	t.set(c, "image", own)
	t.set(envOf(c, "QUORATE_IMAGE"), "value", own)
	etcd := envOf(c, "QUORATE_ETCD_REPOSITORY")
	t.set(etcd, "value", fmt.Sprintf(
		`include "quorate.repository" (dict "own" .Values.etcdRepository "registry" .Values.registry "default" %q)`,
		etcd["value"]))
	list := c["env"].([]any)
	for n, e := range list {
		if at(e)["name"] == "QUORATE_TOKEN_FILE" {
			list[n] = t.line(when(`ne (`+ofCaller+`) "none"`, t.yaml([]any{e})))
		}
		if at(e)["name"] == "QUORATE_METACONTROLLER_VERSION" {
			list[n] = t.line(when(`eq (`+ofCaller+`) "bearer"`, t.yaml([]any{e})))
		}
	}
	for _, setting := range []struct{ value, env, expression string }{
		{".Values.allowedImageRepositories", "QUORATE_ALLOWED_IMAGE_REPOSITORIES",
			`.Values.allowedImageRepositories | uniq | sortAlpha | join "," | quote`},
		{".Values.namespaces", "QUORATE_NAMESPACES",
			`.Values.namespaces | uniq | sortAlpha | join "," | quote`},
		{".Values.selector", "QUORATE_SELECTOR", `include "quorate.selector" . | quote`},
		{".Values.allowedEtcdEndpoints", "QUORATE_ALLOWED_ETCD_ENDPOINTS",
			`.Values.allowedEtcdEndpoints | uniq | sortAlpha | join "," | quote`},
		{".Values.sharedIssuers", "QUORATE_SHARED_ISSUERS", ".Values.sharedIssuers | quote"},
		{".Values.logLevel", "QUORATE_LOG_LEVEL", ".Values.logLevel | quote"},
		{".Values.verify", "QUORATE_VERIFY", ".Values.verify | quote"},
		{".Values.journal.volume", "QUORATE_JOURNAL_DIR", `"/journal"`},
		{".Values.journal.volume", "QUORATE_JOURNAL_BYTES", ".Values.journal.bytes | int64 | quote"},
	} {
		list = append(list, t.line(when(setting.value, "- name: "+setting.env+"\n  value: {{ "+setting.expression+
			" }}")))
	}
	c["env"] = list
	for _, add := range []struct {
		to   object
		key  string
		what string
	}{
		{c, "volumeMounts", "- mountPath: /journal\n  name: journal"},
		{pod, "volumes", "- name: journal\n  {{- toYaml .Values.journal.volume | nindent INDENT+2 }}"},
	} {
		all, _ := add.to[add.key].([]any)
		add.to[add.key] = append(all, t.line(when(".Values.journal.volume", add.what)))
	}
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
	t.put(role, "rules", "rules:", "{{- if .Values.namespaces }}", t.optionalLast(all(t.only)),
		"{{- else }}", t.optionalLast(all(t.certManager)), "{{- end }}")
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
	c := t.container(spec, ".Values.metacontroller")
	repository, _, tagged := strings.Cut(fmt.Sprint(c["image"]), ":v")
	if !tagged {
		panic(missing("the version in the image of Metacontroller"))
	}
	c["image"] = t.value(image(".Values.metacontroller", repository, `printf "v%s" (`+metaVersion+")", `""`))
	args, _ := c["args"].([]any)
	for flag, expression := range map[string]string{
		"--target-label-selector=quorate.dev/installation": release,
		"--workers":         metaWorkers,
		"--client-go-qps":   metaQPS,
		"--client-go-burst": "mul 2 (" + metaQPS + ")",
	} {
		n := slices.IndexFunc(args, func(arg any) bool { return strings.HasPrefix(fmt.Sprint(arg), flag+"=") })
		if n < 0 {
			panic(missing(flag + " of Metacontroller"))
		}
		args[n] = flag + "=" + t.value(expression)
	}
}

func (t *templates) controller(o object, name string) {
	t.set(at(o, "metadata", "labels"), "quorate.dev/installation", release)
	t.set(at(o, "metadata", "annotations"), "quorate.dev/credentials", `include "quorate.credentialsSum" . | quote`)
	spec := at(o, "spec")
	t.selector(at(spec, "parentResource"), "labelSelector")
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
	return when("not ("+isBearer+")", t.yaml(t.labelled(o))) + "\n"
}

// forNamespaces are Metacontroller's rights to write in each of some namespaces.
func (t *templates) forNamespaces() string {
	role, binding := t.only.get("Role", "quorate-metacontroller"), t.only.get("RoleBinding", "quorate-metacontroller")
	const suffix = `include "quorate.suffix" $`
	for _, o := range []object{role, binding} {
		t.labelled(o)
		t.suffixed(at(o, "metadata"), "name", suffix)
		t.set(at(o, "metadata"), "namespace", ".")
	}
	t.suffixed(at(binding, "roleRef"), "name", suffix)
	t.set(at(binding, "subjects", 0), "namespace", `include "quorate.metacontrollerNamespace" $`)
	rules := role["rules"].([]any)
	t.put(role, "rules", "rules:", strings.ReplaceAll(t.optionalLast(rules), ".Values", "$.Values"))
	return "{{- range .Values.namespaces | uniq | sortAlpha }}\n---\n" + t.yaml(role) + "---\n" + t.yaml(binding) +
		"{{- end }}\n"
}

// The policies that refuse what the values do not allow.
const (
	allowedEtcdEndpoints = "quorate-allowed-etcd-endpoints"
	sharedIssuers        = "quorate-shared-issuers"
)

// tenants makes those look at the objects of this release alone, and at what it allows.
func (t *templates) tenants(policy object, name string) {
	if name != allowedEtcdEndpoints && name != sharedIssuers {
		return
	}
	t.selector(at(policy, "spec", "matchConstraints"), "objectSelector")
	if name == sharedIssuers {
		return
	}
	validation := at(policy, "spec", "validations", 0)
	within(validation, "expression", "|| false)", "|| "+t.value(`include "quorate.allowedEndpoints" .`)+")")
	within(validation, "message", "nowhere", t.value(`include "quorate.allowedPlaces" .`))
}

// policy refuses objects in other namespaces.
func (t *templates) policy() string {
	policy := t.only.get("ValidatingAdmissionPolicy", "quorate-namespaces")
	binding := t.only.get("ValidatingAdmissionPolicyBinding", "quorate-namespaces")
	t.suffixed(at(t.labelled(policy), "metadata"), "name", suffix)
	t.suffixed(at(t.labelled(binding), "metadata"), "name", suffix)
	t.suffixed(at(binding, "spec"), "policyName", suffix)
	t.selector(at(policy, "spec", "matchConstraints"), "objectSelector")
	validation := at(policy, "spec", "validations", 0)
	within(validation, "expression", "only-this", t.value(`.Values.namespaces | uniq | sortAlpha | join "', '"`))
	within(validation, "messageExpression", "only-this",
		t.value(`.Values.namespaces | uniq | sortAlpha | join ", "`))
	return when(".Values.namespaces", "---\n"+t.yaml(policy)+"---\n"+t.yaml(binding)) + "\n"
}
