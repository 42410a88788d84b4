package kubectl

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// versions prints that of this plugin, and the image of the Quorate that runs: its tag is the version, if it is a
// release.
func (a *invocation) versions(ctx context.Context) error {
	fmt.Fprintf(a.Out, "kubectl quorate %s\n", a.Version)
	if a.client {
		return nil
	}
	c, err := a.server(ctx)
	if err != nil {
		return fmt.Errorf("the running version of Quorate can't be read: %w; --quorate-namespace names another "+
			"namespace, and --client shows only the plugin's version", err)
	}
	fmt.Fprintf(a.Out, "Quorate's image %s, in namespace %s\n", c.Image, a.quorate)
	return nil
}

// server is the container of Quorate itself.
func (a *invocation) server(ctx context.Context) (*corev1.Container, error) {
	out, err := a.kube.run(ctx, "get", "deployment", "quorate", "-n", a.quorate, "-o", "json")
	if err != nil {
		return nil, err
	}
	var deployment struct {
		Spec struct{ Template struct{ Spec corev1.PodSpec } }
	}
	if err := objects.Read(out, &deployment); err != nil {
		return nil, fmt.Errorf("the Deployment %s/quorate can't be read: %w", a.quorate, err)
	}
	if len(deployment.Spec.Template.Spec.Containers) == 0 {
		return nil, fmt.Errorf("the Deployment %s/quorate has no containers", a.quorate)
	}
	return &deployment.Spec.Template.Spec.Containers[0], nil
}
