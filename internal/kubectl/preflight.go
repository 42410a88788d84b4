package kubectl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/internal/kubectl/check"
)

// ofInstallation is the label of a CompositeController with the namespace of its Quorate.
const ofInstallation = "quorate.dev/installation"

// Alone refuses to install where another would be disturbed, before anything is changed: another Quorate that has these
// CompositeControllers, or a Metacontroller that would serve them beside the one that is installed.
func (i *Installer) Alone(ctx context.Context, controllers []string) error {
	out, err := i.kube.run(ctx,
		append([]string{"get", "compositecontrollers.metacontroller.k8s.io", "--ignore-not-found",
			"-o", "json"}, controllers...)...)
	if err != nil && !noKind(err) {
		return err
	}
	for _, m := range metadataIn(out) {
		if at := m.Labels[ofInstallation]; at != "" && at != i.Namespace {
			return fmt.Errorf("CompositeController %s is that of the Quorate in namespace %s: say --namespace=%s to "+
				"change "+
				"that one; "+
				"or give this one a --name and a --selector, and it runs beside it", m.Name, at, at)
		}
	}
	if !i.Own {
		return nil
	}
	out, err = i.kube.run(ctx, "get", "statefulsets,deployments", "-A", "-l", check.MetacontrollersLabels, "-o", "json")
	if err != nil {
		return err
	}
	others, namespaces := check.Others(out, i.Namespace)
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("a Metacontroller that is there would call Quorate, beside the one that is installed with it: %s; "+
		"add --metacontroller-namespace=%s to use it, and none is installed; or start it with "+
		"--target-label-selector=!%s (Metacontroller 4), so that it serves others alone; or scale it to 0",
		strings.Join(others, " and "), namespaces[0], ofInstallation)
}

// metadataIn is that of one object or of a List, as kubectl prints them for one name or several.
func metadataIn(out []byte) []metav1.ObjectMeta {
	var o struct {
		Metadata metav1.ObjectMeta
		Items    []struct{ Metadata metav1.ObjectMeta }
	}
	if objects.Read(out, &o) != nil {
		return nil
	}
	if o.Items == nil && o.Metadata.Name != "" {
		return []metav1.ObjectMeta{o.Metadata}
	}
	var all []metav1.ObjectMeta
	for _, item := range o.Items {
		all = append(all, item.Metadata)
	}
	return all
}

// Outgrown takes away what an earlier installation with other --namespaces has left: rights in namespaces that are
// not in the list now, by the name of their Role, and without a list the policy that refuses EtcdClusters elsewhere.
func (i *Installer) Outgrown(ctx context.Context, role, policy string, only []string) error {
	out, err := i.kube.run(ctx, "get", "roles,rolebindings", "-A", "-l", partOf+"=quorate",
		"--field-selector=metadata.name="+role, "-o", "json")
	if err != nil {
		return err
	}
	var gone []string
	for _, m := range metadataIn(out) {
		if !slices.Contains(only, m.Namespace) && !slices.Contains(gone, m.Namespace) {
			gone = append(gone, m.Namespace)
		}
	}
	for _, namespace := range gone {
		if err := i.delete(ctx, "rolebindings,roles", role, "-n", namespace); err != nil {
			return err
		}
	}
	if len(only) > 0 {
		return nil
	}
	return i.delete(ctx, "validatingadmissionpolicybindings,validatingadmissionpolicies", policy)
}

func (i *Installer) delete(ctx context.Context, kinds, name string, more ...string) error {
	out, err := i.kube.run(ctx, append([]string{"delete", kinds, name, "--ignore-not-found"}, more...)...)
	i.changes(out)
	return err
}
