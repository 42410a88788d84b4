package kubectl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// request is an object that a command creates, by which Quorate is asked to do something once.
type request struct {
	kind, resource, short string
	of                    *v1beta1.EtcdCluster
	labels                map[string]string
	spec                  any
}

// remark says something beside what is created; what --dry-run prints can be applied with it.
func (a *invocation) remark(format string, args ...any) {
	if a.dryRun {
		format = "# " + format
	}
	fmt.Fprintf(a.Out, format+"\n", args...)
}

// request creates the object, under a name that sorts by time, and waits for its end if that is asked for.
func (a *invocation) request(ctx context.Context, r request) error {
	name := fmt.Sprintf("%s-%s-%s", r.of.Name, a.name, a.now().UTC().Format("20060102-150405"))
	manifest := map[string]any{"apiVersion": v1beta1.GroupVersion.String(), "kind": r.kind, "spec": r.spec,
		"metadata": map[string]any{"name": name, "namespace": r.of.Namespace, "labels": r.labels}}
	if a.dryRun {
		text, err := yaml.Marshal(manifest)
		fmt.Fprintf(a.Out, "%s", text)
		return err
	}
	raw, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	if err := a.kube.create(ctx, r.resource, r.of.Namespace, raw); err != nil {
		return fmt.Errorf("no %s was created for EtcdCluster %s/%s: %w", r.kind, r.of.Namespace, r.of.Name, err)
	}
	fmt.Fprintf(a.Out, "%s %s/%s created\n", r.kind, r.of.Namespace, name)
	if !a.wait {
		fmt.Fprintf(a.Out, "`kubectl get -n %s %s %s -o wide` shows how it goes\n", r.of.Namespace, r.short, name)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(a.timeout, waitsFor))
	defer cancel()
	return a.await(ctx, r, name)
}

// With --wait, lookEvery is how often it is looked at, and waitsFor how long where --timeout does not say.
const lookEvery, waitsFor = 2 * time.Second, time.Hour

// Phases in which an operation or a snapshot has ended. A snapshot that is Unverified has its condition Failed.
const (
	succeeded  = string(v1beta1.OperationSucceeded)
	failed     = string(v1beta1.OperationFailed)
	unverified = string(v1beta1.SnapshotUnverified)
)

// await prints how it goes until it has ended.
func (a *invocation) await(ctx context.Context, r request, name string) error {
	what := fmt.Sprintf("%s %s/%s", r.kind, r.of.Namespace, name)
	said := ""
	for {
		out, err := a.kube.run(ctx, "get", r.resource, name, "-n", r.of.Namespace, "-o", "json")
		if ctx.Err() != nil {
			return fmt.Errorf("%s has not ended (%s); it goes on without this command", what, said)
		}
		var now struct {
			Status struct{ Phase, Message string }
		}
		if err == nil {
			err = objects.Read(out, &now)
		}
		if err != nil {
			return fmt.Errorf("%s can't be read: %w", what, err)
		}
		words := strings.TrimSuffix(now.Status.Phase+": "+now.Status.Message, ": ")
		if words != said && words != "" {
			fmt.Fprintln(a.Out, words)
			said = words
		}
		switch now.Status.Phase {
		case succeeded:
			return nil
		case failed:
			return fmt.Errorf("%s has failed: %s", what, now.Status.Message)
		case unverified:
			return fmt.Errorf("%s is stored, and was not verified: %s", what, now.Status.Message)
		}
		a.pause(ctx, lookEvery)
	}
}
