package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// table is what kubectl get etcdcluster,pods,pvc would print.
func (t *try) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	row := func(cells ...any) { _, _ = fmt.Fprintln(w, strings.TrimSuffix(fmt.Sprintln(cells...), "\n")) }
	t.ask(func() {
		c := t.world.Cluster()
		if c == nil {
			row("There is no EtcdCluster: `apply` makes one.")
		} else {
			row("ETCDCLUSTER\tREPLICAS\tREADY\tVERSION\tLEADER\tSTATUS\tAGE")
			row(strings.Join([]string{c.Name, fmt.Sprint(*c.Spec.Replicas), fmt.Sprint(c.Status.ReadyReplicas), c.Status.Version, c.Status.Leader, c.Status.Rule,
				age(c.CreationTimestamp.Time)}, "\t"))
		}
		for i, p := range t.world.Pods() {
			if i == 0 {
				row("\nPOD\tREADY\tSTATUS\tRESTARTS\tCLIENTS\tAGE")
			}
			row(strings.Join(t.podRow(p), "\t"))
		}
		for i, claim := range t.world.Claims() {
			if i == 0 {
				row("\nCLAIM\tSTATUS\tCAPACITY\tAGE")
			}
			row(strings.Join([]string{claim.Name, string(claim.Status.Phase), claim.Status.Capacity.Storage().String(),
				age(claim.CreationTimestamp.Time)}, "\t"))
		}
	})
	_ = w.Flush()
	return b.String()
}

func (t *try) podRow(p *corev1.Pod) []string {
	is, state, where := "0/1", string(p.Status.Phase), "-"
	if ready(p) {
		is = "1/1"
	}
	etcd := etcdOf(p)
	switch {
	case p.DeletionTimestamp != nil:
		state = "Terminating"
	case etcd.State.Waiting != nil:
		state = etcd.State.Waiting.Reason
		if m := etcd.State.Waiting.Message; m != "" {
			state += " (" + m + ")"
		}
	}
	if run := t.kubelet.nodes[p.UID]; run != nil && run.containers[objects.ContainerEtcd] != nil {
		if port := run.containers[objects.ContainerEtcd].ports[objects.ClientPort]; port > 0 {
			where = fmt.Sprintf("127.0.0.1:%d", port)
		}
	}
	return []string{p.Name, is, state, fmt.Sprint(etcd.RestartCount), where, age(p.CreationTimestamp.Time)}
}

func age(t time.Time) string { return time.Since(t).Truncate(time.Second).String() }
