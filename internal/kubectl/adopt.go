package kubectl

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// adopting is what the command adopt is told besides names.
type adopting struct {
	selector, path, version string
	claims                  []string
}

func (a *invocation) adoptFlags(flags *flag.FlagSet) {
	d := &a.adopting
	flags.BoolVar(&a.dryRun, "dry-run", false, "print the EtcdCluster and change nothing")
	flags.StringVar(&d.selector, "l", "", "`selector` of the claims' labels, in place of their names")
	flags.StringVar(&d.path, "path", "", "`path` of etcd's data directory in each volume; empty for data")
	etcdVersion.flag(flags, &d.version, "etcd-version", "`version` of etcd that should run, such as 3.6.16")
}

// validAdopt says what is missing on the line, the claims, or a selector in place of these.
func (a *invocation) validAdopt() error {
	d := &a.adopting
	switch {
	case !a.dryRun:
		return misused("adopt changes nothing, and needs --dry-run: hand what it prints to `kubectl apply -f -`")
	case d.version == "":
		return misused("adopt needs --etcd-version, such as 3.6.16: at least the minor version of the data")
	case (len(d.claims) == 0) == (d.selector == ""):
		return misused("adopt needs either names of claims after NAME, or -l with a selector of their labels")
	}
	return nil
}

// adopt prints the EtcdCluster that would begin with claims that are there, and what is known of these.
func (a *invocation) adopt(ctx context.Context) error {
	claims, err := a.claimsToAdopt(ctx)
	if err != nil {
		return err
	}
	users, err := a.users(ctx)
	if err != nil {
		return err
	}
	c := a.adopted(claims)
	for i := range claims {
		fmt.Fprintln(a.Out, "# "+described(&claims[i], users[claims[i].Name]))
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": v1beta1.GroupVersion.String(), "kind": "EtcdCluster",
		"metadata": c.metadata, "spec": c.spec})
	if err != nil {
		return err
	}
	fmt.Fprint(a.Out, string(text))
	return nil
}

// claimsToAdopt are those that the line names, as the API server has them.
func (a *invocation) claimsToAdopt(ctx context.Context) ([]corev1.PersistentVolumeClaim, error) {
	call := a.in("get", "pvc", "-o", "json")
	if a.adopting.selector != "" {
		call = append(call, "-l", a.adopting.selector)
	}
	all, err := itemsOf[corev1.PersistentVolumeClaim](ctx, a, call)
	if err != nil || a.adopting.selector != "" && len(all) > 0 {
		return all, err
	}
	if a.adopting.selector != "" {
		return nil, fmt.Errorf("no claim in namespace %s has these labels: %s", a.where(ctx), a.adopting.selector)
	}
	var claims []corev1.PersistentVolumeClaim
	for _, name := range a.adopting.claims {
		i := slices.IndexFunc(all, func(c corev1.PersistentVolumeClaim) bool { return c.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("claim %s does not exist in namespace %s; `kubectl get pvc` lists all", name,
				a.where(ctx))
		}
		claims = append(claims, all[i])
	}
	return claims, nil
}

// users are the pods that have claims mounted and have not ended, by the claim's name.
func (a *invocation) users(ctx context.Context) (map[string][]string, error) {
	pods, err := itemsOf[corev1.Pod](ctx, a, a.in("get", "pods", "-o", "json"))
	users := map[string][]string{}
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, volume := range pod.Spec.Volumes {
			if claim := volume.PersistentVolumeClaim; claim != nil {
				users[claim.ClaimName] = append(users[claim.ClaimName], pod.Name)
			}
		}
	}
	return users, err
}

// itemsOf are the objects that a call of kubectl gets.
func itemsOf[T any](ctx context.Context, a *invocation, call []string) ([]T, error) {
	out, err := a.kube.run(ctx, call...)
	if err != nil {
		return nil, err
	}
	var list struct{ Items []T }
	if err := objects.Read(out, &list); err != nil {
		return nil, fmt.Errorf("what kubectl has answered can't be read: %w", err)
	}
	return list.Items, nil
}

// manifest is what an EtcdCluster is made of.
type manifest struct{ metadata, spec map[string]any }

// adopted is the EtcdCluster: as many members as there are claims, on volumes of the largest size, and of their class
// where all have the same.
func (a *invocation) adopted(claims []corev1.PersistentVolumeClaim) manifest {
	size := resource.Quantity{}
	class := claims[0].Spec.StorageClassName
	names := []string{}
	for i := range claims {
		names = append(names, claims[i].Name)
		if is := sizeOf(&claims[i]); is.Cmp(size) > 0 {
			size = is
		}
		if other := claims[i].Spec.StorageClassName; class == nil || other == nil || *other != *class {
			class = nil
		}
	}
	storage := map[string]any{"size": size.String()}
	if class != nil {
		storage["storageClassName"] = *class
	}
	former := map[string]any{"names": names}
	if a.adopting.path != "" {
		former["path"] = a.adopting.path
	}
	metadata := map[string]any{"name": a.cluster}
	if claims[0].Namespace != "" {
		metadata["namespace"] = claims[0].Namespace
	}
	return manifest{metadata, map[string]any{"replicas": len(claims), "version": a.adopting.version,
		"storage": storage, "bootstrap": map[string]any{"claims": former}}}
}

// sizeOf is what the claim's volume has, or what was asked for.
func sizeOf(c *corev1.PersistentVolumeClaim) resource.Quantity {
	if has, bound := c.Status.Capacity[corev1.ResourceStorage]; bound {
		return has
	}
	return c.Spec.Resources.Requests[corev1.ResourceStorage]
}

// described is a line about a claim, and who has it mounted.
func described(c *corev1.PersistentVolumeClaim, users []string) string {
	size := sizeOf(c)
	modes := []string{}
	for _, mode := range c.Spec.AccessModes {
		modes = append(modes, string(mode))
	}
	class := ""
	if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	line := fmt.Sprintf("%s: %s, %s, %s, %s", c.Name, cmp.Or(string(c.Status.Phase), "Unknown"), size.String(),
		cmp.Or(class, "no storage class"), strings.Join(modes, " "))
	if owner := metav1.GetControllerOf(c); owner != nil {
		line += fmt.Sprintf("; %s %s owns it, and it goes with that", owner.Kind, owner.Name)
	}
	if len(users) > 0 {
		slices.Sort(users)
		line += "; IN USE by pod " + strings.Join(users, ", ") + ": stop its etcd first"
	}
	return line
}
