package kubectl

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// lookEvery is how often a cluster is looked at with --wait.
const lookEvery = 2 * time.Second

// defrag asks for a run; the hooks do the rest.
func (a *ask) defrag(ctx context.Context) error {
	c, err := a.find(ctx)
	if err != nil {
		return err
	}
	if c.DeletionTimestamp != nil {
		return fmt.Errorf("EtcdCluster %s/%s is being deleted; nothing is defragmented any more", c.Namespace, c.Name)
	}
	request := a.now().UTC().Format(time.RFC3339)
	if _, err := a.kube.run(ctx, "annotate", clusters, c.Name, "-n", c.Namespace, "--overwrite",
		objects.AnnotationDefragment+"="+request); err != nil {
		return fmt.Errorf("EtcdCluster %s/%s was not asked to defragment: %w", c.Namespace, c.Name, err)
	}
	fmt.Fprintf(a.Out, "%s in namespace %s is asked to defragment its members (request %s)\n", c.Name, c.Namespace,
		request)
	if c.Spec.Suspend {
		fmt.Fprintln(a.Out, "spec.suspend is true: it begins when that is false")
	}
	if !a.wait {
		fmt.Fprintf(a.Out, "`kubectl quorate status -n %s %s` shows how it goes\n", c.Namespace, c.Name)
		return nil
	}
	a.namespace, a.name = c.Namespace, c.Name
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return a.await(ctx, request)
}

// await prints how the run goes until it is done.
func (a *ask) await(ctx context.Context, request string) error {
	said, last := "", ""
	for {
		c, err := a.find(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("the defragmentation of %s/%s is not finished%s; it continues without this command, "+
				"and `kubectl quorate status` shows it", a.namespace, a.name, last)
		}
		if err != nil {
			return err
		}
		if asked := c.Annotations[objects.AnnotationDefragment]; asked != request {
			return fmt.Errorf("another request has replaced this one on EtcdCluster %s/%s: %q", a.namespace, a.name,
				asked)
		}
		words, done := progress(c.EtcdCluster, request, a.now())
		if words != said {
			fmt.Fprintln(a.Out, words)
			said, last = words, " ("+words+")"
		}
		if done {
			return nil
		}
		a.pause(ctx, lookEvery)
	}
}

// progress is how the run that was asked for goes, in words that stay the same while nothing changes.
func progress(c *v1alpha1.EtcdCluster, request string, now time.Time) (words string, done bool) {
	d := c.Status.Defragmentation
	if d == nil || d.Request != request {
		words = "it has not begun"
		if p := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.Ready); p != nil {
			words += "; Quorate says " + p.Reason + ": " + p.Message
		}
		return words, false
	}
	if !d.CompletionTime.IsZero() {
		return "done: " + lastRun(d, now), true
	}
	return fmt.Sprintf("under way: %s done of %d", count(len(d.Done), "member"), len(c.Status.Members)), false
}
