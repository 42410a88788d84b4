package install

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/manifests"
)

// object is a Kubernetes object as its YAML has it.
type object = map[string]any

// at walks to an object within an object, which must be there: the manifests are ours.
func at(o object, path ...string) object {
	for _, name := range path {
		o = o[name].(object)
	}
	return o
}

// kindObjects are Quorate's kinds and, with a Metacontroller of its own, Metacontroller's.
func (i *installation) kindObjects() ([]object, error) {
	all, err := manifestObjects(manifests.Kinds)
	return slices.DeleteFunc(all, func(o object) bool { return !i.own && isMetacontrollers(o) }), err
}

// isMetacontrollers reports whether a kind is one of Metacontroller's.
func isMetacontrollers(kind object) bool { return at(kind, "spec")["group"] == "metacontroller.k8s.io" }

// objects are the manifests' but the kinds, with what this installation changes and adds.
func (i *installation) objects() ([]object, error) {
	folders := []string{manifests.Base}
	if i.own {
		folders = append(folders, manifests.Metacontroller)
	}
	objects, err := manifestObjects(folders...)
	if err != nil {
		return nil, err
	}
	if i.certManager {
		if err := addComponent(objects, manifests.CertManager); err != nil {
			return nil, err
		}
	}
	scoped := i.scope.added(objects, i.metacontrollerNamespace)
	objects = slices.DeleteFunc(objects, func(o object) bool { return !i.tenants.isFor(o) })
	for _, o := range objects {
		i.adapt(o)
	}
	objects = append(objects, scoped...)
	for _, o := range objects {
		i.scope.rename(o)
	}
	secrets := append([]object{i.serverReads()}, i.callerReads()...)
	for _, o := range secrets {
		at(o, "metadata")["labels"] = object{
			"app.kubernetes.io/name": "quorate", "app.kubernetes.io/part-of": "quorate",
		}
	}
	for n, o := range objects { // behind the namespace, and before the pods that mount them
		if o["kind"] == "Namespace" {
			return slices.Insert(objects, n+1, secrets...), nil
		}
	}
	return nil, errors.New("the manifests have no Namespace")
}

// adapt changes one object of the manifests.
func (i *installation) adapt(o object) {
	meta := at(o, "metadata")
	if meta["namespace"] != nil {
		meta["namespace"] = i.namespace
	}
	switch labels, _ := meta["labels"].(object); {
	case labels[nameLabel] == metacontrollerName:
		labels["app.kubernetes.io/version"] = strings.TrimPrefix(i.version, "v")
		if o["kind"] == "Deployment" {
			i.adaptMetacontroller(at(o, "spec"))
			return
		}
	case labels[ofInstallation] != nil:
		labels[ofInstallation] = i.namespace
	}
	switch o["kind"] {
	case "Namespace":
		meta["name"] = i.namespace
	case "Deployment":
		i.sizes.adapt(at(o, "spec"))
		i.adaptPods(at(o, "spec", "template"))
	case "Service":
		port := at(o, "spec")["ports"].([]any)[0].(object)
		port["name"] = "https"
		port["port"] = 443
	case "ClusterRoleBinding", "RoleBinding":
		o["subjects"].([]any)[0].(object)["namespace"] = i.metacontrollerNamespace
	case "NetworkPolicy":
		if meta["name"] == "quorate" {
			i.letIn(at(o, "spec")["ingress"].([]any)[0].(object)["from"].([]any)[0].(object))
		}
	case "ClusterRole":
		i.scope.restrict(o)
	case "ValidatingAdmissionPolicy":
		i.tenants.adapt(o, &i.scope)
	case "CompositeController":
		i.adaptController(o)
	}
}

// adaptController changes a CompositeController: what it asks about, and how it calls.
func (i *installation) adaptController(o object) {
	i.scope.selectParents(at(o, "spec", "parentResource"))
	// Metacontroller reads the token again only when this object changes. The key is in the sum so that no one
	// can check guesses of the token by it.
	sum := sha256.Sum256(append(slices.Clone(i.credentials.key), i.credentials.tokens...))
	at(o, "metadata")["annotations"] = object{"quorate.dev/credentials": fmt.Sprintf("%x", sum[:8])}
	for _, hook := range at(o, "spec", "hooks") {
		i.adaptWebhook(at(hook.(object), "webhook"))
	}
}

// letIn changes who may call the hooks: the pods of the own Metacontroller, or all pods of the namespace that another
// one is in, whose labels are not known.
func (i *installation) letIn(from object) {
	at(from, "namespaceSelector", "matchLabels")["kubernetes.io/metadata.name"] = i.metacontrollerNamespace
	if !i.own {
		delete(from, "podSelector")
	}
}

// adaptMetacontroller makes the own Metacontroller one of this version, for the CompositeControllers of this
// installation.
func (i *installation) adaptMetacontroller(spec object) {
	i.sizes.adaptMetacontroller(spec)
	c := containerOf(spec)
	repository, _, _ := strings.Cut(c["image"].(string), ":")
	c["image"] = i.images.mirrored(repository) + ":v" + strings.TrimPrefix(i.version, "v")
	args := c["args"].([]any)
	for n, arg := range args {
		args[n] = strings.ReplaceAll(arg.(string), ofInstallation+"="+defaultNamespace, ofInstallation+"="+i.namespace)
	}
}

// adaptPods makes the server's pods read the Secret. Their annotation makes the Deployment roll when the certificate is
// another one, which is quicker than waiting until kubelets have replaced the files.
func (i *installation) adaptPods(template object) {
	sum := sha256.Sum256(i.credentials.certificate)
	at(template, "metadata")["annotations"] = object{"quorate.dev/certificate": fmt.Sprintf("%x", sum[:8])}
	spec := at(template, "spec")
	c := spec["containers"].([]any)[0].(object)
	c["image"] = i.images.ofQuorate(c["image"].(string))
	env := c["env"].([]any)
	for _, e := range env {
		switch e := e.(object); e["name"] {
		case "QUORATE_IMAGE":
			e["value"] = c["image"]
		case "QUORATE_ETCD_REPOSITORY":
			e["value"] = i.images.ofEtcd(e["value"].(string))
		}
	}
	set := func(name, file string) { env = append(env, object{"name": name, "value": mounted + "/" + file}) }
	set("QUORATE_TLS_CERT", corev1.TLSCertKey)
	set("QUORATE_TLS_KEY", corev1.TLSPrivateKeyKey)
	set("QUORATE_RECORD_KEYS", "records")
	if i.caller != noToken {
		set("QUORATE_TOKEN_FILE", "tokens")
	}
	if i.caller == bearer {
		env = append(env, object{"name": "QUORATE_METACONTROLLER_VERSION", "value": "4.16"})
	}
	c["env"] = slices.Concat(env, i.tenants.repositoriesEnv(), i.scope.env(), i.tenants.env())
	c["volumeMounts"] = slices.Insert(c["volumeMounts"].([]any), 0,
		any(object{"name": "hooks", "mountPath": mounted, "readOnly": true}))
	spec["volumes"] = slices.Insert(spec["volumes"].([]any), 0,
		any(object{"name": "hooks", "secret": object{"secretName": forHooks, "defaultMode": 0o440}}))
	at(spec, "securityContext")["fsGroup"] = at(spec, "securityContext")["runAsGroup"]
}

// adaptWebhook makes Metacontroller call over HTTPS, and say who it is as well as it can.
func (i *installation) adaptWebhook(webhook object) {
	u, err := url.Parse(webhook["url"].(string))
	if err != nil { // the manifests are ours
		panic(err)
	}
	u.Scheme = "https"
	u.Host = i.host()
	switch i.caller {
	case bearer:
		webhook["caBundle"] = object{"inline": string(i.credentials.ca)}
		webhook["authorization"] = object{
			"secretRef": object{"name": forCaller, "namespace": i.namespace, "key": "token"},
		}
	case oldToken:
		u.User = url.UserPassword("quorate", i.credentials.token())
	case noToken:
	}
	webhook["url"] = u.String()
}

// serverReads is what the server reads.
func (i *installation) serverReads() object {
	return secret(i.namespace, forHooks, map[string][]byte{
		"ca.crt": i.credentials.ca, "tokens": i.credentials.tokens,
		"records":         i.credentials.records,
		corev1.TLSCertKey: i.credentials.certificate, corev1.TLSPrivateKeyKey: i.credentials.key,
	})
}

// callerReads is what Metacontroller reads, with the right to read it, or what it mounts.
func (i *installation) callerReads() []object {
	if i.caller != bearer {
		return []object{{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": object{"name": callerCA, "namespace": i.metacontrollerNamespace},
			"data":     object{"ca.crt": string(i.credentials.ca)},
		}}
	}
	meta := func() object { return object{"name": forCaller, "namespace": i.namespace} }
	return []object{
		secret(i.namespace, forCaller, map[string][]byte{"token": []byte(i.credentials.token())}),
		{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta(),
			"rules": []any{object{
				"apiGroups": listOf(""), "resources": listOf("secrets"), "resourceNames": listOf(forCaller),
				"verbs": listOf("get", "list", "watch"),
			}},
		},
		{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta(),
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": forCaller},
			"subjects": []any{metacontrollerIn(i.metacontrollerNamespace)},
		},
	}
}

// metacontrollerIn is Metacontroller's service account, as a binding names it.
func metacontrollerIn(namespace string) object {
	return object{"kind": "ServiceAccount", "name": "metacontroller", "namespace": namespace}
}

func secret(namespace, name string, data map[string][]byte) object {
	encoded := object{}
	for key, value := range data {
		encoded[key] = base64.StdEncoding.EncodeToString(value)
	}
	return object{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"metadata": object{"name": name, "namespace": namespace}, "data": encoded,
	}
}

// printAll writes the objects as one YAML stream.
func printAll(w io.Writer, objects []object) error {
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}
