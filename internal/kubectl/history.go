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

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/recording"
)

func (a *invocation) historyFlags(flags *flag.FlagSet) {
	a.quorateFlags(flags)
	flags.TextVar(&a.at, "at", a.at, "a `moment` such as 2026-03-04T05:06:07Z: what was decided last before it, and the "+
		"status that it had")
	flags.BoolVar(&a.raw, "records", false, "print the records themselves, for quorate replay")
}

// history tells what happened to a cluster, by what Quorate has recorded.
func (a *invocation) history(ctx context.Context) error {
	c, err := a.find(ctx)
	if err != nil {
		return err
	}
	text, err := a.records(ctx, c.Namespace, c.Name)
	if err != nil {
		return err
	}
	if a.raw {
		_, err := a.Out.Write(text)
		return err
	}
	records, all, err := recording.Read(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if a.at.IsZero() {
		return recording.History(a.Out, records, all)
	}
	for len(records) > 0 && records[len(records)-1].Time.After(a.at) {
		records = records[:len(records)-1]
	}
	if len(records) == 0 {
		return fmt.Errorf("nothing about EtcdCluster %s/%s is recorded from before %s", c.Namespace, c.Name,
			a.at.Format(time.RFC3339))
	}
	last := records[len(records)-1:]
	if err := recording.History(a.Out, last, all); err != nil {
		return err
	}
	status, err := yaml.JSONToYAML(all[last[0].Decided.Status])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "\n%s", status)
	return err
}

// records are what all pods of Quorate have recorded about a cluster.
func (a *invocation) records(ctx context.Context, namespace, name string) ([]byte, error) {
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
		told, err := a.kube.run(ctx, "exec", pod.Name, "-n", a.quorate, "-c", "quorate", "--", "/quorate", "records",
			"--namespace", namespace, "--name", name)
		failed = errors.Join(failed, err)
		all.Write(told)
	}
	if all.Len() > 0 {
		return all.Bytes(), nil
	}
	if failed != nil {
		return nil, fmt.Errorf("records are read with `kubectl exec` in Quorate's pods: %w", failed)
	}
	return nil, fmt.Errorf("no pod of Quorate in namespace %s has recorded anything about EtcdCluster %s/%s", a.quorate,
		namespace, name)
}
