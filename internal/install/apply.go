package install

import (
	"bytes"
	"context"
	"io"

	"github.com/quorate-dev/quorate/internal/kubectl"
)

// applied has the person's own kubectl carry out the installation: kinds, then the rest, then it waits, and checks.
// Done again, it is the upgrade; done again with the same release and flags, nothing changes.
func (i *installation) applied(ctx context.Context, p *kubectl.Program, stdin io.Reader) error {
	to := p.Installer(kubectl.Place{Namespace: i.namespace, Metacontroller: i.metacontrollerNamespace, Own: i.own},
		i.toKubectl)
	found, err := to.Kept(ctx, forHooks)
	if err != nil {
		return err
	}
	if err := i.makeCredentials(found, stdin); err != nil {
		return err
	}
	kinds, err := i.kindObjects()
	if err != nil {
		return err
	}
	objects, err := i.objects()
	if err != nil {
		return err
	}
	if err := to.Alone(ctx, namesOf(objects, "CompositeController")); err != nil {
		return err
	}
	var all []kubectl.Kind
	for _, o := range kinds {
		all = append(all, kubectl.Kind{Name: at(o, "metadata")["name"].(string), Text: stream(o),
			Shared: isMetacontrollers(o)})
	}
	if err := to.Kinds(ctx, all); err != nil {
		return err
	}
	if err := to.Rest(ctx, stream(objects...)); err != nil {
		return err
	}
	if err := to.Outgrown(ctx, toMetacontroller+i.scope.suffix(), onlyNamespaces+i.scope.suffix(),
		i.scope.namespaces); err != nil {
		return err
	}
	i.advise(p.Err)
	return to.Check(ctx)
}

func namesOf(objects []object, kind string) []string {
	var names []string
	for _, o := range objects {
		if o["kind"] == kind {
			names = append(names, at(o, "metadata")["name"].(string))
		}
	}
	return names
}

func stream(objects ...object) []byte {
	var out bytes.Buffer
	_ = printAll(&out, objects) // nothing can go wrong: the objects were read from YAML, and a buffer takes all
	return out.Bytes()
}
