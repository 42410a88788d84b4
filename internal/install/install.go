// Package install makes an installation of Quorate from the manifests: the commands quorate install, which prints it or
// has kubectl apply it, and quorate images. What is said to them is told on to quorate serve, which reads it by this
// package too.
package install

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/internal/kubectl"
)

// Names of what quorate install adds to the manifests.
const (
	forHooks  = "quorate-hooks"   // the Secret that the server reads: tls.crt, tls.key, ca.crt, tokens, records
	forCaller = "quorate-caller"  // the Secret that Metacontroller 4.16 and later read: token
	callerCA  = "quorate-hook-ca" // the ConfigMap that older ones trust, in their own namespace: ca.crt
	mounted   = "/etc/quorate"    // where the server finds the first
)

// Names in the manifests: of the namespace, and of the label by which a Metacontroller finds the CompositeControllers
// of one Quorate.
const (
	defaultNamespace = "quorate-system"
	ofInstallation   = "quorate.dev/installation"
)

// usualMetacontroller is where Metacontroller is by its own manifests: where quorate check looks for it unless it is
// told. Ours have one with the same name.
const (
	usualMetacontroller = "metacontroller"
	metacontrollerName  = "metacontroller"
	nameLabel           = "app.kubernetes.io/name"
)

// installation is what the flags of quorate install say.
type installation struct {
	namespace, metacontrollerNamespace string
	own                                bool   // no other Metacontroller is named: one comes with it
	version                            string // of Metacontroller
	sizes                              sizes
	images                             images
	scope                              scope
	tenants                            Tenants
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
	flags.StringVar(&i.namespace, "namespace", defaultNamespace,
		"`namespace` of Quorate itself; with --name it is quorate- and that name")
	flags.StringVar(&i.metacontrollerNamespace, "metacontroller-namespace", "",
		"`namespace` of a Metacontroller that is there, and of its service account, metacontroller: use that one. Empty "+
			"installs one beside Quorate, which serves nothing else")
	flags.StringVar(&i.version, "metacontroller-version", "",
		"`version` of Metacontroller: what it can do to prove who it is depends on it ("+
			v1beta1.Docs+"explanation/security.md); empty "+
			"for the one that the tests run with")
	i.sizes.flags(flags)
	i.images.flags(flags)
	i.scope.flags(flags)
	i.tenants.Flags(flags)
	flags.BoolVar(&i.certManager, "cert-manager", false,
		"let EtcdClusters have certificates of cert-manager's, which must be there first")
	flags.StringVar(&i.keep, "keep", "",
		"`file` with the Secret "+forHooks+" of an earlier installation, as kubectl get -o yaml prints it, whose "+
			"certificate and token stay; - for standard input")
	flags.BoolVar(&i.kinds, "kinds", false,
		"the kinds alone (CustomResourceDefinitions), which must be there before the rest")
	flags.BoolVar(&i.noKinds, "no-kinds", false,
		"all but the kinds, as for kubectl delete -f -: EtcdClusters go with their kind")
	flags.BoolVar(&i.apply, "apply", false,
		"carry it out with your kubectl and your rights instead of printing it: also to upgrade, and to see that "+
			"nothing has changed; the Secret "+forHooks+" stays as it is")
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
	i.own = i.metacontrollerNamespace == ""
	if i.version == "" {
		i.version = shipped.version
	}
	if i.caller, err = callerOf(i.version); err != nil {
		return err
	}
	if err := i.images.check(); err != nil {
		return err
	}
	if err := i.tenants.Check(); err != nil {
		return err
	}
	if err := i.scope.check(i.caller); err != nil {
		return err
	}
	if err := i.sizes.check(i.own); err != nil {
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
	case i.own && i.caller != bearer:
		return fmt.Errorf("a Metacontroller that is installed needs --metacontroller-version=4.16.0 or later, not %s: "+
			"older ones can't prove who they are without a restart; for one that is there, add "+
			"--metacontroller-namespace", i.version)
	case i.own && strings.Count(i.version, ".") != 2:
		return fmt.Errorf("a Metacontroller that is installed needs a whole --metacontroller-version, such as %s, not "+
			"%q: it is the tag of an image; for one that is there, add --metacontroller-namespace", shipped, i.version)
	}
	return nil
}

// Run is the command quorate install. It prints all that Quorate needs in a Kubernetes as YAML, with a new certificate
// and a new token, or those of an earlier installation; or it has kubectl apply all of it.
func Run(ctx context.Context, p *kubectl.Program, args []string, stdin io.Reader) error {
	var i installation
	flags := i.flags()
	flags.SetOutput(p.Err)
	if err := command.Parse(flags, args); err != nil {
		return err
	}
	if err := i.check(); err != nil {
		return err
	}
	if i.apply {
		return i.applied(ctx, p, stdin)
	}
	return i.print(stdin, p.Out, p.Err)
}

// print writes the objects that were asked for as YAML, and on stderr what else there is to do.
func (i *installation) print(stdin io.Reader, stdout, stderr io.Writer) error {
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
	fmt.Fprintf(stderr, "quorate: when all of it has been applied, `quorate check%s` says whether it fits together\n",
		i.where())
	return printAll(stdout, append(kinds, objects...))
}

// advise says what else has to be done for a Metacontroller that can do less.
func (i *installation) advise(stderr io.Writer) {
	if i.caller != bearer {
		fmt.Fprintf(stderr, "quorate: %s\n",
			strings.ReplaceAll(i.caller.advice(), "NAMESPACE", i.metacontrollerNamespace))
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
