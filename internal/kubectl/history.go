package kubectl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/journal"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rules"
)

func (a *invocation) historyFlags(flags *flag.FlagSet) {
	a.quorateFlags(flags)
	flags.TextVar(&a.at, "at", a.at, "a `moment` such as 2027-03-04T05:06:07Z: what was decided last before it, by "+
		"which rule of which, and the status then")
	flags.BoolVar(&a.raw, "journal", false, "print the journal itself, for quorate replay")
	flags.BoolVar(&a.everywhere, "A", false, "with --journal: of all EtcdClusters there are")
}

func (a *invocation) validHistory() error {
	if a.everywhere && (a.cluster != "" || !a.raw) {
		return misused("-A prints the journal of all EtcdClusters: pass --journal, and no name")
	}
	return nil
}

// history tells what happened to a cluster, by what Quorate has written down.
func (a *invocation) history(ctx context.Context) error {
	c := &found{EtcdCluster: &v1beta1.EtcdCluster{}}
	var err error
	if !a.everywhere {
		c, err = a.find(ctx)
	}
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
	last := journal.Before(entries, a.at)
	if len(last) == 0 {
		return fmt.Errorf("no entry about EtcdCluster %s/%s is from before %s", c.Namespace, c.Name,
			a.at.Format(time.RFC3339))
	}
	if err := a.tell(last, all); err != nil {
		return err
	}
	a.tellRules(&last[0].Decided)
	status, err := yaml.JSONToYAML(all[last[0].Decided.Status])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "\nSTATUS\n%s", status)
	return err
}

// tellRules lists the rules of the mode up to the one that applied, as explain does, if it is one that this release has.
func (a *invocation) tellRules(d *journal.Decided) {
	e := explanation{d: decision.Decision{Mode: d.Mode, Reason: decision.Reason{Rule: d.Rule}}}
	if slices.ContainsFunc(rules.Modes, func(m rules.Mode) bool { return m.Name == d.Mode }) {
		e.printRules(page{a.Out})
	}
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

// mostOfJournal is how many bytes of a journal a report has at most, before it is packed.
const mostOfJournal = 4 << 20

// recent are the newest entries of a journal that have room there.
func recent(entries []*journal.Entry, all journal.Objects) ([]byte, error) {
	for {
		var out bytes.Buffer
		if err := journal.Write(&out, entries, all); err != nil {
			return nil, err
		}
		if out.Len() <= mostOfJournal {
			return out.Bytes(), nil
		}
		entries = entries[(len(entries)+1)/2:]
	}
}

// journal is one without what is secret.
func (r *redactor) journal(text []byte) ([]byte, error) {
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		told, err := r.json(line)
		if err != nil {
			return nil, err
		}
		out.Write(append(told, '\n'))
	}
	return out.Bytes(), nil
}

// addJournal puts the newest entries about a cluster in.
func (a *invocation) addJournal(ctx context.Context, b *bundle, c *found) {
	text, err := a.entries(ctx, c.Namespace, c.Name)
	var entries []*journal.Entry
	var all journal.Objects
	if err == nil {
		entries, all, err = journal.Read(bytes.NewReader(text))
	}
	if err == nil {
		text, err = recent(entries, all)
	}
	if err == nil {
		text, err = b.redactor.journal(text)
	}
	if err != nil {
		b.trouble("journal: %s", err)
		return
	}
	b.files["journal"] = text
}

// json is a line of a journal without what is secret, and with each number as it is.
func (r *redactor) json(line []byte) ([]byte, error) {
	in := json.NewDecoder(bytes.NewReader(line))
	in.UseNumber()
	var told map[string]any
	if err := in.Decode(&told); err != nil {
		return nil, err
	}
	if o := within(told, "object"); o["metadata"] != nil { // not all have a kind
		hide(within(o, "data"))
		told["object"] = r.clean(o)
	}
	return json.Marshal(r.value(told))
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
	if a.everywhere {
		return nil, fmt.Errorf("no pod of Quorate in namespace %s has an entry", a.quorate)
	}
	return nil, fmt.Errorf("no pod of Quorate in namespace %s has an entry about EtcdCluster %s/%s", a.quorate, namespace,
		name)
}
