package kubectl

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/journal"
	"github.com/quorate-dev/quorate/hooks/objects"
)

func (a *invocation) historyFlags(flags *flag.FlagSet) {
	a.quorateFlags(flags)
	flags.TextVar(&a.at, "at", a.at, "a `moment` such as 2027-03-04T05:06:07Z: what was decided last before it, and the "+
		"status that it had")
	flags.BoolVar(&a.raw, "journal", false, "print the journal itself, for quorate replay")
}

// history tells what happened to a cluster, by what Quorate has written down.
func (a *invocation) history(ctx context.Context) error {
	c, err := a.find(ctx)
	if err != nil {
		return err
	}
	text, err := a.entries(ctx, c.Namespace, c.Name)
	if err != nil {
		return err
	}
	if a.raw {
		_, err := a.Out.Write(text)
		return err
	}
	entries, all, err := journal.Read(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if a.at.IsZero() {
		return a.tell(entries, all)
	}
	for len(entries) > 0 && entries[len(entries)-1].Time.After(a.at) {
		entries = entries[:len(entries)-1]
	}
	if len(entries) == 0 {
		return fmt.Errorf("no entry about EtcdCluster %s/%s is from before %s", c.Namespace, c.Name,
			a.at.Format(time.RFC3339))
	}
	last := entries[len(entries)-1:]
	if err := a.tell(last, all); err != nil {
		return err
	}
	status, err := yaml.JSONToYAML(all[last[0].Decided.Status])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "\nits status:\n%s", status)
	return err
}

// tell prints what happened.
func (a *invocation) tell(entries []*journal.Entry, all journal.Objects) error {
	events, err := journal.Events(entries, all)
	if err != nil {
		return err
	}
	for _, event := range events {
		at := event.Time.UTC().Format(time.RFC3339)
		for _, words := range append([]string{event.Decided}, event.Changes...) {
			for _, line := range wrapped(words, width-len(time.RFC3339)) {
				fmt.Fprintf(a.Out, "%-20s  %s\n", at, line)
				at = ""
			}
		}
	}
	return nil
}

// entries are what all pods of Quorate have written down about a cluster.
func (a *invocation) entries(ctx context.Context, namespace, name string) ([]byte, error) {
	out, err := a.kube.run(ctx, "get", "pods", "-n", a.quorate, "-l", "app.kubernetes.io/name=quorate", "-o", "json")
	var pods corev1.PodList
	if err == nil {
		err = objects.Read(out, &pods)
	}
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	var failed error
	for _, pod := range pods.Items {
		if pod.Status.Phase != corev1.PodRunning {
			continue
		}
		told, err := a.kube.run(ctx, "exec", pod.Name, "-n", a.quorate, "-c", "quorate", "--", "/quorate", "journal",
			"--namespace", namespace, "--name", name)
		failed = errors.Join(failed, err)
		all.Write(told)
	}
	if all.Len() > 0 {
		return all.Bytes(), nil
	}
	if failed != nil {
		return nil, fmt.Errorf("the journal is read with `kubectl exec` in Quorate's pods: %w", failed)
	}
	return nil, fmt.Errorf("no pod of Quorate in namespace %s has an entry about EtcdCluster %s/%s", a.quorate, namespace,
		name)
}
