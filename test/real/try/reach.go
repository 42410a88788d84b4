package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/quorate-dev/quorate/server"
	"github.com/quorate-dev/quorate/server/wire"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// What the plugin kubectl quorate reads of a Kubernetes, from this one.

// beside are what it asks for that this world has no objects for: Quorate's own Deployment, and the
// CompositeController.
func beside(resource string) ([]byte, bool) {
	switch resource {
	case "deployment":
		return []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"quorate","image":"quorate"}]}}}}`), true
	case "compositecontrollers.metacontroller.k8s.io":
		type named struct {
			APIVersion string `json:"apiVersion"`
			Resource   string `json:"resource"`
		}
		var children []named
		for _, k := range kinds {
			for _, group := range wire.Groups() {
				if group == k.name+"."+k.apiVersion {
					plural, _, _ := strings.Cut(k.plural, ".")
					children = append(children, named{k.apiVersion, plural})
				}
			}
		}
		raw, err := json.Marshal(map[string]any{"items": []any{map[string]any{"spec": map[string]any{
			"parentResource": named{"etcd.quorate.dev/v1beta1", "etcdclusters"}, "childResources": children,
		}}}})
		return raw, err == nil
	case "etcdsnapshots.etcd.quorate.dev", "etcdsnapshotschedules.etcd.quorate.dev":
		return []byte(`{"items":[]}`), true
	}
	return nil, false
}

// run answers kubectl get RESOURCES [NAME] [-l SELECTOR], and kubectl exec of quorate journal in Quorate's pod.
func (t *try) run(ctx context.Context, args ...string) ([]byte, error) {
	switch line := strings.Join(args, " "); {
	case strings.HasPrefix(line, "get pods -n quorate-system "):
		return []byte(`{"items":[{"metadata":{"name":"quorate"},"status":{"phase":"Running"}}]}`), nil
	case strings.HasPrefix(line, "exec quorate ") && len(args) > 3:
		var out bytes.Buffer
		err := server.AskJournal(ctx, t.journal, server.JournalAsked{Namespace: args[len(args)-3],
			Name: args[len(args)-1]}, &out)
		return out.Bytes(), err
	}
	if len(args) < 2 || args[0] != "get" {
		return nil, fmt.Errorf("here is no `kubectl %s`", strings.Join(args, " "))
	}
	if raw, is := beside(args[1]); is {
		return raw, nil
	}
	name, selector := "", labels.Everything()
	for i := 2; i < len(args); i++ {
		switch {
		case args[i] == "-l":
			var err error
			if selector, err = labels.Parse(args[i+1]); err != nil {
				return nil, err
			}
			i++
		case args[i] == "-n" || args[i] == "-o":
			i++
		case !strings.HasPrefix(args[i], "-"):
			name = args[i]
		}
	}
	var raw []byte
	var err error
	t.ask(func() { raw, err = t.list(strings.Split(args[1], ","), name, selector) })
	return raw, err
}

func (t *try) list(resources []string, name string, selector labels.Selector) ([]byte, error) {
	items := []json.RawMessage{}
	for _, resource := range resources {
		for _, k := range kinds {
			if k.plural != resource && k.plural != resource+"s" && (k.kind != world.ClaimKind || resource != "pvc") {
				continue
			}
			for _, o := range t.world.OfKind(k.kind) {
				if name != "" && o.GetName() != name || !selector.Matches(labels.Set(o.GetLabels())) {
					continue
				}
				raw, err := t.vault.wire(o)
				if err != nil {
					return nil, err
				}
				items = append(items, raw)
			}
		}
	}
	if name == "" {
		return json.Marshal(map[string]any{"items": items})
	}
	if len(items) == 0 {
		return nil, fmt.Errorf("%s %q not found (%s)", resources[0], name, metav1.StatusReasonNotFound)
	}
	return items[0], nil
}

// forward is where a port of a pod is.
func (t *try) forward(_ context.Context, _, pod string, port int) (address string, err error) {
	t.ask(func() {
		if p := t.world.Pod(pod); p != nil {
			t.net.lock.Lock()
			defer t.net.lock.Unlock()
			if here, known := t.net.ports[fmt.Sprintf("%s:%d", p.Status.PodIP, port)]; known {
				address = fmt.Sprintf("127.0.0.1:%d", here)
				return
			}
		}
		err = fmt.Errorf("nothing listens in pod %s yet", pod)
	})
	return address, err
}
