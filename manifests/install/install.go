package install

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/manifests"
	"github.com/quorate-dev/quorate/server/kubectl"
)

// Names of what quorate install adds to the manifests.
const (
	forHooks  = "quorate-hooks"   // the Secret that the server reads: tls.crt, tls.key, ca.crt, tokens
	forCaller = "quorate-caller"  // the Secret that Metacontroller 4.16 and later read: token
	callerCA  = "quorate-hook-ca" // the ConfigMap that older ones trust, in their own namespace: ca.crt
	mounted   = "/etc/quorate"    // where the server finds the first
)

// Names in the manifests: of the namespace, and of the label by which a Metacontroller finds the CompositeControllers of one Quorate.
const (
	defaultNamespace = "quorate-system"
	ofInstallation   = "quorate.dev/installation"
)

// usualMetacontroller is where Metacontroller is by its own manifests; ours have one with the same name.
const (
	usualMetacontroller = "metacontroller"
	metacontrollerName  = "metacontroller"
	nameLabel           = "app.kubernetes.io/name"
)

// validity of the certificate of the hooks. Nobody renews it: installing again makes another.
const validity = 10 * 365 * 24 * time.Hour

// installation is what the flags of quorate install say.
type installation struct {
	namespace, metacontrollerNamespace string
	own                                bool   // with a Metacontroller of its own
	version                            string // of Metacontroller
	images                             images
	scope                              scope
	tenants                            tenants
	caller                             caller
	credentials                        credentials
	certManager                        bool

	keep           string
	kinds, noKinds bool
	apply          bool
	toKubectl      []string
}

func (i *installation) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("quorate install", flag.ContinueOnError)
	flags.StringVar(&i.namespace, "namespace", defaultNamespace, "`namespace` of Quorate itself; with --name it is quorate- and that name")
	flags.BoolVar(&i.own, "with-metacontroller", false, "a Metacontroller of its own beside Quorate, which serves nothing else")
	flags.StringVar(&i.metacontrollerNamespace, "metacontroller-namespace", usualMetacontroller, "`namespace` of a Metacontroller that is there, and of its service account, metacontroller")
	flags.StringVar(&i.version, "metacontroller", "", "`version` of Metacontroller: what it can do to prove who it is depends on it (docs/security.md); empty for the one that the tests run with")
	i.images.flags(flags)
	flags.StringVar(&i.images.allowed, "allowed-image-repositories", "", allowedUsage)
	i.scope.flags(flags)
	i.tenants.flags(flags)
	flags.BoolVar(&i.certManager, "cert-manager", false, "let EtcdClusters have certificates of cert-manager's, which must be there first")
	flags.StringVar(&i.keep, "keep", "", "`file` with the Secret "+forHooks+" of an earlier installation, as kubectl get -o yaml prints it, whose certificate and token stay; - for standard input")
	flags.BoolVar(&i.kinds, "kinds", false, "the kinds alone (CustomResourceDefinitions), which must be there before the rest")
	flags.BoolVar(&i.noKinds, "no-kinds", false, "all but the kinds, as for kubectl delete -f -: EtcdClusters go with their kind")
	flags.BoolVar(&i.apply, "apply", false, "carry it out with your kubectl and your rights instead of printing it: also to upgrade, and to see that nothing has changed; the Secret "+forHooks+" stays as it is")
	for _, name := range kubectl.Passed {
		flags.Func(name, "with --apply: kubectl's own `value`", func(value string) error {
			i.toKubectl = append(i.toKubectl, "--"+name+"="+value)
			return nil
		})
	}
	return flags
}

// check finds flags that can't be installed by, and completes them.
func (i *installation) check() error {
	shipped, err := shippedMetacontroller()
	if err != nil {
		return err
	}
	if i.version == "" {
		i.version = shipped.version
	}
	if i.caller, err = callerOf(i.version); err != nil {
		return err
	}
	if err := i.images.check(); err != nil {
		return err
	}
	if err := i.tenants.check(); err != nil {
		return err
	}
	if err := i.scope.check(i.caller); err != nil {
		return err
	}
	if err := i.fit(shipped.version); err != nil {
		return err
	}
	if i.scope.name != "" && i.namespace == defaultNamespace {
		i.namespace = "quorate-" + i.scope.name
	}
	if i.own {
		i.metacontrollerNamespace = i.namespace
	}
	return nil
}

// fit finds flags that do not go together.
func (i *installation) fit(shipped string) error {
	switch {
	case i.kinds && i.noKinds:
		return errors.New("--kinds and --no-kinds leave nothing")
	case i.apply && (i.kinds || i.noKinds):
		return errors.New("--apply applies the kinds and the rest, in this order: leave out --kinds and --no-kinds")
	case !i.apply && len(i.toKubectl) > 0:
		return fmt.Errorf("%s is for kubectl, which is called with --apply only", i.toKubectl[0])
	case i.own && i.metacontrollerNamespace != usualMetacontroller:
		return errors.New("--with-metacontroller has it in the namespace of Quorate: leave out --metacontroller-namespace")
	case i.own && i.caller != bearer:
		return errors.New("--with-metacontroller needs --metacontroller=4.16.0 or later: older ones can't prove who they are without a restart")
	case i.own && strings.Count(i.version, ".") != 2:
		return fmt.Errorf("--with-metacontroller needs a whole version, such as %s, not %q: it is the tag of an image", shipped, i.version)
	}
	return nil
}

// install prints all that quorate needs in a cluster as YAML, with a new certificate and a new token, or those of an
// earlier installation; or it has kubectl apply all of it.
func install(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	var i installation
	flags := i.flags()
	flags.SetOutput(stderr)
	if err := command.Parse(flags, args); err != nil {
		return err
	}
	if err := i.check(); err != nil {
		return err
	}
	if i.apply {
		return i.applied(ctx, stdin, stdout, stderr)
	}
	kinds, err := i.kindObjects()
	if err != nil || i.kinds {
		return errors.Join(err, printAll(stdout, kinds))
	}
	if i.noKinds {
		kinds = nil
	}
	if err := i.makeCredentials(nil, stdin); err != nil {
		return err
	}
	objects, err := i.objects()
	if err != nil {
		return err
	}
	i.advise(stderr)
	fmt.Fprintf(stderr, "quorate: when all of it has been applied, `quorate check%s` says whether it fits together\n", i.where())
	return printAll(stdout, append(kinds, objects...))
}

// makeCredentials makes them, or takes those of --keep, or else those that were found.
func (i *installation) makeCredentials(found []byte, stdin io.Reader) (err error) {
	switch {
	case i.keep != "":
		i.credentials, err = keptCredentials(i.keep, stdin, i.host())
	case len(bytes.TrimSpace(found)) > 0:
		if i.credentials, err = credentialsIn(found, i.host()); err != nil {
			return fmt.Errorf("the Secret %s/%s, which is there, can't be kept: %w; delete it, and others are made: kubectl -n %s delete secret %s",
				i.namespace, forHooks, err, i.namespace, forHooks)
		}
	default:
		i.credentials, err = newCredentials(i.host(), time.Now())
	}
	return err
}

// advise says what else has to be done for a Metacontroller that can do less.
func (i *installation) advise(stderr io.Writer) {
	if i.caller != bearer {
		fmt.Fprintf(stderr, "quorate: %s\n", strings.ReplaceAll(i.caller.advice(), "NAMESPACE", i.metacontrollerNamespace))
	}
}

// where are the flags that lead others to this installation; none for the usual ones.
func (i *installation) where() string {
	flags := ""
	if i.namespace != defaultNamespace {
		flags += " --namespace=" + i.namespace
	}
	if !i.own && i.metacontrollerNamespace != usualMetacontroller {
		flags += " --metacontroller-namespace=" + i.metacontrollerNamespace
	}
	return flags
}

// host is the name under which Metacontroller reaches the hooks.
func (i *installation) host() string { return "quorate." + i.namespace + ".svc" }

// caller is what Metacontroller can do to prove who it is.
type caller int

const (
	bearer   caller = iota // 4.16 and later read a CA and a token from the CompositeController and a Secret
	noToken                // 2.0 to 4.15 make the URL a label of their metrics: it must hold no token
	oldToken               // 1.5 sends the password of the URL, and shows it nowhere
)

// callerOf says what a version such as 4.16, 4.16.1 or v1.5.20 can do.
func callerOf(version string) (caller, error) {
	var major, minor int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &major, &minor); n != 2 {
		return 0, fmt.Errorf("--metacontroller must be a version such as 4.16 or 1.5.20, not %q", version)
	}
	switch {
	case major > 4 || major == 4 && minor >= 16:
		return bearer, nil
	case major >= 2:
		return noToken, nil
	}
	return oldToken, nil
}

// advice is what else has to be done for a Metacontroller that can do less.
func (c caller) advice() string {
	trust := "this Metacontroller trusts the hooks' certificate only if its container has the ConfigMap NAMESPACE/" + callerCA +
		" mounted and SSL_CERT_DIR set to that folder (docs/security.md); it reads it once, so restart it now: " +
		"kubectl -n NAMESPACE rollout restart statefulset/metacontroller"
	if c == noToken {
		return trust + "\nquorate: it can't send a token without showing it in its metrics, so none is asked for: only the " +
			"NetworkPolicy keeps others away from the hooks; upgrade Metacontroller to 4.16 or later"
	}
	return trust + "\nquorate: the token is in the URLs of the CompositeController: let nobody read compositecontrollers who " +
		"may not call the hooks"
}

// credentials are by what the hooks and their callers know each other.
type credentials struct {
	ca, certificate, key []byte // PEM
	tokens               []byte // a line each; the last is what the caller sends
}

func (c credentials) token() string {
	lines := strings.Fields(string(c.tokens))
	return lines[len(lines)-1]
}

// newCredentials makes them. The authority signs for this one host, once: its key is forgotten, and nobody who trusts the
// authority trusts more by it than this certificate.
func newCredentials(host string, now time.Time) (credentials, error) {
	none := credentials{}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return none, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return none, err
	}
	authority, certificate := templates(host, now)
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return none, err
	}
	certificateDER, err := x509.CreateCertificate(rand.Reader, certificate, authority, key.Public(), authorityKey)
	if err != nil {
		return none, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return none, err
	}
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return none, err
	}
	return credentials{
		ca:          pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityDER}),
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificateDER}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		tokens:      []byte(base64.RawURLEncoding.EncodeToString(random) + "\n"),
	}, nil
}

func templates(host string, now time.Time) (authority, certificate *x509.Certificate) {
	from, to := now.Add(-time.Hour), now.Add(validity) // an hour for clocks that are late
	serial := new(big.Int).SetInt64(now.UnixNano())
	authority = &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "quorate hooks " + now.UTC().Format(time.DateTime)},
		NotBefore: from, NotAfter: to, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign, PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{host},
	}
	certificate = &x509.Certificate{
		SerialNumber: new(big.Int).Add(serial, big.NewInt(1)), DNSNames: []string{host},
		NotBefore: from, NotAfter: to, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	return authority, certificate
}

// keptCredentials reads them from the Secret of an earlier installation.
func keptCredentials(file string, stdin io.Reader, host string) (credentials, error) {
	text, err := os.ReadFile(file)
	if file == "-" {
		text, err = io.ReadAll(stdin)
	}
	if err != nil {
		return credentials{}, fmt.Errorf("--keep: %w", err)
	}
	var s corev1.Secret
	if err := yaml.Unmarshal(text, &s); err != nil || s.Kind != "Secret" {
		return credentials{}, fmt.Errorf("--keep: %s holds no Secret: kubectl -n NAMESPACE get secret %s -o yaml prints one", file, forHooks)
	}
	c, err := credentialsIn(text, host)
	if err != nil {
		return credentials{}, fmt.Errorf("--keep: the Secret in %s can't be kept: %w; without --keep, new ones are made", file, err)
	}
	return c, nil
}

// credentialsIn are those of a Secret, if they are good for this host.
func credentialsIn(text []byte, host string) (credentials, error) {
	var s corev1.Secret
	if err := yaml.Unmarshal(text, &s); err != nil {
		return credentials{}, errors.New("it is no Secret in YAML")
	}
	c := credentials{ca: s.Data["ca.crt"], certificate: s.Data["tls.crt"], key: s.Data["tls.key"], tokens: s.Data["tokens"]}
	return c, c.fit(host, time.Now())
}

// fit reports what keeps callers from knowing the hooks at this host by these credentials.
func (c credentials) fit(host string, now time.Time) error {
	if len(strings.Fields(string(c.tokens))) == 0 {
		return errors.New("it holds no tokens")
	}
	pair, err := tls.X509KeyPair(c.certificate, c.key)
	if err != nil {
		return errors.New("its tls.crt and tls.key are no certificate and its private key")
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.ca) {
		return errors.New("its ca.crt holds no certificate")
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now})
	return err
}

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
		at(o, "metadata")["labels"] = object{"app.kubernetes.io/name": "quorate", "app.kubernetes.io/part-of": "quorate"}
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
			i.adaptMetacontroller(at(o, "spec", "template", "spec"))
			return
		}
	case labels[ofInstallation] != nil:
		labels[ofInstallation] = i.namespace
	}
	switch o["kind"] {
	case "Namespace":
		meta["name"] = i.namespace
	case "Deployment":
		i.adaptPods(at(o, "spec", "template"))
	case "Service":
		port := at(o, "spec")["ports"].([]any)[0].(object)
		port["name"], port["port"] = "https", 443
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
		i.scope.selectParents(at(o, "spec", "parentResource"))
		// Metacontroller reads the token again only when this object changes. Without the key nobody guesses by it.
		sum := sha256.Sum256(append(slices.Clone(i.credentials.key), i.credentials.tokens...))
		meta["annotations"] = object{"quorate.dev/credentials": fmt.Sprintf("%x", sum[:8])}
		for _, hook := range at(o, "spec", "hooks") {
			i.adaptWebhook(at(hook.(object), "webhook"))
		}
	}
}

// letIn changes who may call the hooks: the pods of the own Metacontroller, or all pods of the namespace that another one is in, whose labels
// are not known.
func (i *installation) letIn(from object) {
	at(from, "namespaceSelector", "matchLabels")["kubernetes.io/metadata.name"] = i.metacontrollerNamespace
	if !i.own {
		delete(from, "podSelector")
	}
}

// adaptMetacontroller makes the own Metacontroller one of this version, for the CompositeControllers of this installation.
func (i *installation) adaptMetacontroller(pod object) {
	c := pod["containers"].([]any)[0].(object)
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
	if i.caller != noToken {
		set("QUORATE_TOKEN_FILE", "tokens")
	}
	if i.caller == bearer {
		env = append(env, object{"name": "QUORATE_METACONTROLLER", "value": "4.16"})
	}
	c["env"] = slices.Concat(env, i.images.env(), i.scope.env(), i.tenants.env())
	c["volumeMounts"] = []any{object{"name": "hooks", "mountPath": mounted, "readOnly": true}}
	spec["volumes"] = []any{object{"name": "hooks", "secret": object{"secretName": forHooks, "defaultMode": 0o440}}}
	at(spec, "securityContext")["fsGroup"] = at(spec, "securityContext")["runAsGroup"]
}

// adaptWebhook makes Metacontroller call over HTTPS, and say who it is as well as it can.
func (i *installation) adaptWebhook(webhook object) {
	u, err := url.Parse(webhook["url"].(string))
	if err != nil { // the manifests are ours
		panic(err)
	}
	u.Scheme, u.Host = "https", i.host()
	switch i.caller {
	case bearer:
		webhook["caBundle"] = object{"inline": string(i.credentials.ca)}
		webhook["authorization"] = object{"secretRef": object{"name": forCaller, "namespace": i.namespace, "key": "token"}}
	case oldToken:
		u.User = url.UserPassword("quorate", i.credentials.token())
	case noToken:
	}
	webhook["url"] = u.String()
}

// serverReads is what the server reads.
func (i *installation) serverReads() object {
	return secret(i.namespace, forHooks, map[string][]byte{
		"ca.crt": i.credentials.ca, corev1.TLSCertKey: i.credentials.certificate, corev1.TLSPrivateKeyKey: i.credentials.key,
		"tokens": i.credentials.tokens,
	})
}

// callerReads is what Metacontroller reads, with the right to read it, or what it mounts.
func (i *installation) callerReads() []object {
	if i.caller != bearer {
		return []object{{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": callerCA, "namespace": i.metacontrollerNamespace},
			"data": object{"ca.crt": string(i.credentials.ca)},
		}}
	}
	meta := func() object { return object{"name": forCaller, "namespace": i.namespace} }
	return []object{
		secret(i.namespace, forCaller, map[string][]byte{"token": []byte(i.credentials.token())}),
		{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta(),
			"rules": []any{object{
				"apiGroups": []any{""}, "resources": []any{"secrets"}, "resourceNames": []any{forCaller}, "verbs": []any{"get", "list", "watch"},
			}},
		},
		{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta(),
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": forCaller},
			"subjects": []any{object{"kind": "ServiceAccount", "name": "metacontroller", "namespace": i.metacontrollerNamespace}},
		},
	}
}

func secret(namespace, name string, data map[string][]byte) object {
	encoded := object{}
	for key, value := range data {
		encoded[key] = base64.StdEncoding.EncodeToString(value)
	}
	return object{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": object{"name": name, "namespace": namespace}, "data": encoded,
	}
}

// kustomization is what kustomizations here say, besides patches.
type kustomization struct {
	Resources []string
	Labels    []struct{ Pairs map[string]string }
	Images    []struct{ Name, NewTag string }
}

func readKustomization(folder string) (kustomization, error) {
	var k kustomization
	text, err := fs.ReadFile(manifests.Files, folder+"/kustomization.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &k)
	}
	if err != nil {
		return k, fmt.Errorf("manifests/%s/kustomization.yaml: %w", folder, err)
	}
	return k, nil
}

// manifestObjects are the objects of some folders, with the labels and images that their kustomizations add.
func manifestObjects(folders ...string) ([]object, error) {
	var all []object
	for _, folder := range folders {
		k, err := readKustomization(folder)
		if err != nil {
			return nil, err
		}
		for _, file := range k.Resources {
			objects, err := readObjects(folder + "/" + file)
			if err != nil {
				return nil, fmt.Errorf("manifests/%s/%s: %w", folder, file, err)
			}
			for _, o := range objects {
				for _, l := range k.Labels {
					addLabels(o, l.Pairs)
				}
				for _, image := range k.Images {
					addTag(o, image.Name, image.NewTag)
				}
			}
			all = append(all, objects...)
		}
	}
	return all, nil
}

func addTag(o object, name, tag string) {
	if o["kind"] != "Deployment" {
		return
	}
	for _, c := range at(o, "spec", "template", "spec")["containers"].([]any) {
		if c := c.(object); c["image"] == name {
			c["image"] = name + ":" + tag
		}
	}
}

func readObjects(file string) ([]object, error) {
	text, err := fs.ReadFile(manifests.Files, file)
	if err != nil {
		return nil, err
	}
	var all []object
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var o object
		if err := yaml.UnmarshalStrict(document, &o); err != nil {
			return nil, err
		}
		if o != nil {
			all = append(all, o)
		}
	}
	return all, nil
}

// addComponent carries out the patches of a kustomize component. Each adds a value to the end of a list, which must be there.
func addComponent(objects []object, folder string) error {
	var k struct {
		Patches []struct {
			Target struct{ Kind, Name string }
			Path   string
		}
	}
	text, err := fs.ReadFile(manifests.Files, folder+"/kustomization.yaml")
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, &k); err != nil {
		return fmt.Errorf("manifests/%s/kustomization.yaml: %w", folder, err)
	}
	for _, p := range k.Patches {
		var additions []struct {
			Path  string
			Value any
		}
		text, err := fs.ReadFile(manifests.Files, folder+"/"+p.Path)
		if err != nil {
			return err
		}
		if err := yaml.Unmarshal(text, &additions); err != nil {
			return fmt.Errorf("manifests/%s/%s: %w", folder, p.Path, err)
		}
		for _, o := range objects {
			if o["kind"] != p.Target.Kind || at(o, "metadata")["name"] != p.Target.Name {
				continue
			}
			for _, a := range additions {
				path := strings.Split(strings.Trim(a.Path, "/-"), "/")
				last := len(path) - 1
				within := at(o, path[:last]...)
				within[path[last]] = append(within[path[last]].([]any), a.Value)
			}
		}
	}
	return nil
}

func addLabels(o object, pairs map[string]string) {
	meta := at(o, "metadata")
	labels, ok := meta["labels"].(object)
	if !ok {
		labels = object{}
		meta["labels"] = labels
	}
	for key, value := range pairs {
		labels[key] = value
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
