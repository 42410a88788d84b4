package kubectl

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// Place says where an installation is.
type Place struct {
	// Namespace is Quorate's, and Metacontroller that of Metacontroller.
	Namespace, Metacontroller string
	// Own: Metacontroller is a part of the installation.
	Own bool
}

// Installer has kubectl carry out an installation, step by step.
type Installer struct {
	Place
	*invocation
}

// Installer is one for this place. What is passed are kubectl's own flags.
func (p *Program) Installer(at Place, passed []string) *Installer {
	return &Installer{at, &invocation{Program: p, command: commandNamed("check"), kube: p.kubectl(passed), namespace: at.Namespace,
		metacontroller: at.Metacontroller, format: "text"}}
}

const (
	partOf      = "app.kubernetes.io/part-of"
	established = time.Minute
	rolledOut   = 5 * time.Minute
	// tries is how often objects are applied whose kind the API server has just learned, and from then on serves at any
	// moment.
	tries = 10
)

// Kept is the Secret of an earlier installation; empty when there is none. It refuses to take over what helm looks
// after, and to cut an installation off from a Metacontroller of its own.
func (i *Installer) Kept(ctx context.Context, secret string) ([]byte, error) {
	out, err := i.kube.run(ctx, "get", "deployments", "-n", i.Namespace, "-l", partOf+"=quorate", "-o", "json")
	if err != nil {
		return nil, err
	}
	var there struct {
		Items []struct{ Metadata metav1.ObjectMeta }
	}
	if err := objects.Read(out, &there); err != nil {
		return nil, fmt.Errorf("what kubectl printed of the deployments in namespace %s can't be read: %w", i.Namespace,
			err)
	}
	for _, d := range there.Items {
		switch m := d.Metadata; {
		case m.Labels["app.kubernetes.io/managed-by"] == "Helm":
			return nil, fmt.Errorf("deployment %s/%s belongs to the helm release %s: upgrade that with helm; or `helm "+
				"uninstall` it first, which leaves kinds and clusters alone",
				i.Namespace, m.Name, m.Annotations["meta.helm.sh/release-name"])
		case m.Name == "metacontroller" && !i.Own:
			return nil, fmt.Errorf("the Quorate in namespace %s has its own Metacontroller, which could no longer "+
				"call it: leave out --metacontroller-namespace=%s; or to use that one, delete its own first: kubectl "+
				"-n %s delete deployment metacontroller", i.Namespace, i.Metacontroller, i.Namespace)
		}
	}
	return i.kube.run(ctx, "get", "secret", secret, "-n", i.Namespace, "--ignore-not-found", "-o", "yaml")
}

// Kind is a CustomResourceDefinition, as YAML.
type Kind struct {
	Name string
	Text []byte
	// Shared: others may use it too, and have their own. One that is there and not ours stays as it is.
	Shared bool
}

// Kinds applies the kinds, and waits until the API server serves them.
func (i *Installer) Kinds(ctx context.Context, kinds []Kind) error {
	external, err := i.external(ctx, kinds)
	if err != nil {
		return err
	}
	var text []byte
	wait := []string{"wait", "--for=condition=Established", fmt.Sprintf("--timeout=%s", established)}
	for _, k := range kinds {
		wait = append(wait, "crd/"+k.Name)
		if slices.Contains(external, k.Name) {
			fmt.Fprintf(i.Out, "the kind %s exists and is not Quorate's: it stays as it is\n", k.Name)
			continue
		}
		text = append(text, k.Text...)
	}
	if err := i.apply(ctx, "the kinds", text); err != nil {
		return err
	}
	_, err = i.kube.run(ctx, wait...)
	return err
}

// external are those that are shared and there without our label. It refuses kinds of a Metacontroller that is too old
// for the own one: the API server drops or refuses what they do not know, and Quorate would not be called.
func (i *Installer) external(ctx context.Context, kinds []Kind) ([]string, error) {
	args := []string{"get", "customresourcedefinitions"}
	for _, k := range kinds {
		if k.Shared {
			args = append(args, k.Name)
		}
	}
	if len(args) == 2 {
		return nil, nil
	}
	out, err := i.kube.run(ctx, append(args, "--ignore-not-found", "-o", "json")...)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	var external []string
	for _, m := range metadataIn(out) {
		if m.Labels[partOf] != "quorate" {
			external = append(external, m.Name)
		}
	}
	if i.Own && len(external) > 0 && !bytes.Contains(out, []byte(`"caBundle"`)) {
		return nil, fmt.Errorf("the kinds %s are of a Metacontroller before 4.16 and do not support Quorate's own "+
			"Metacontroller: replace them first, which also works for the older one: kubectl apply --server-side "+
			"--force-conflicts -f manifests/crds/metacontroller.yaml", strings.Join(external, ", "))
	}
	return external, nil
}

// Rest applies everything else, and waits until all pods are those of the newest templates.
func (i *Installer) Rest(ctx context.Context, text []byte) error {
	if err := i.apply(ctx, "Quorate", text); err != nil {
		return err
	}
	deployments := []string{"quorate"}
	if i.Own {
		deployments = append(deployments, "metacontroller")
	}
	for _, name := range deployments {
		fmt.Fprintf(i.Out, "waiting for the pods of deployment/%s in namespace %s\n", name, i.Namespace)
		if _, err := i.kube.run(ctx, "rollout", "status", "deployment/"+name, "-n", i.Namespace,
			fmt.Sprintf("--timeout=%s", rolledOut)); err != nil {
			return fmt.Errorf("%w; `kubectl -n %s describe pods` shows why; all has been applied, and to apply it "+
				"again does no harm", err, i.Namespace)
		}
	}
	return nil
}

// apply has kubectl apply objects, and takes fields over that others have set: an installation says what is right.
func (i *Installer) apply(ctx context.Context, what string, text []byte) error {
	fmt.Fprintf(i.Out, "applying %s\n", what)
	for n := range tries {
		out, err := i.kube.apply(ctx, text)
		if err == nil {
			i.changes(out)
			return nil
		}
		if !strings.Contains(err.Error(), "no matches for kind") || n == tries-1 || ctx.Err() != nil {
			return err
		}
		i.pause(ctx, time.Second)
	}
	return nil
}

// changes prints what kubectl has done, each line once.
func (i *Installer) changes(out []byte) {
	for line := range strings.Lines(string(out)) {
		fmt.Fprintf(i.Out, "  %s\n", strings.TrimRight(line, "\n"))
	}
}

// Check makes the checks of quorate check, and prints them.
func (i *Installer) Check(ctx context.Context) error {
	fmt.Fprintln(i.Out)
	return i.check(ctx)
}
