package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// clusters is the resource, with its group: other operators of etcd have an EtcdCluster too.
const clusters = "etcdclusters.etcd.quorate.dev"

// found is the EtcdCluster that the command is about.
type found struct {
	*v1beta1.EtcdCluster
	// raw is the object as the API server has it.
	raw json.RawMessage
}

// find gets the EtcdCluster: that of the name, or the only one.
func (a *invocation) find(ctx context.Context) (*found, error) {
	all, err := a.findAll(ctx)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, a.none(ctx)
	case len(all) == 1:
		return all[0], nil
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	return nil, misused("there are %d EtcdClusters in namespace %s: %s; say which one", len(all), a.where(ctx),
		strings.Join(names, ", "))
}

// none says that there is no EtcdCluster where one is looked for.
func (a *invocation) none(ctx context.Context) error {
	if a.everywhere {
		return errors.New("no EtcdCluster exists in any namespace")
	}
	return fmt.Errorf("no EtcdCluster exists in namespace %s; choose another with -n, `kubectl get %s -A` lists all",
		a.where(ctx), clusters)
}

// findAll gets that of the name, or all in the namespace, or everywhere.
func (a *invocation) findAll(ctx context.Context) ([]*found, error) {
	if a.cluster == "" {
		return a.list(ctx)
	}
	raw, err := a.kube.run(ctx, a.in("get", clusters, a.cluster, "-o", "json")...)
	if refused(err, "NotFound") && !strings.Contains(err.Error(), "could not find the requested resource") {
		return nil, fmt.Errorf("EtcdCluster %s does not exist in namespace %s; `kubectl get %s -A` lists all", a.cluster,
			a.where(ctx), clusters)
	}
	if err != nil {
		return nil, err
	}
	c, err := understood(raw)
	return []*found{c}, err
}

// list gets all in the namespace, or everywhere.
func (a *invocation) list(ctx context.Context) ([]*found, error) {
	out, err := a.kube.run(ctx, a.in("get", clusters, "-o", "json")...)
	if err != nil {
		return nil, err
	}
	raws, err := items(out)
	if err != nil {
		return nil, err
	}
	var all []*found
	for _, raw := range raws {
		c, err := understood(raw)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// in is a call of kubectl in the namespace that was asked for, or in all.
func (a *invocation) in(args ...string) []string {
	switch {
	case a.everywhere:
		return append(args, "-A")
	case a.namespace == "":
		return args
	}
	return append(args, "-n", a.namespace)
}

// where is the namespace that was asked for, for people.
func (a *invocation) where(ctx context.Context) string {
	if a.namespace != "" {
		return a.namespace
	}
	out, err := a.kube.run(ctx, "config", "view", "--minify", "-o", "jsonpath={..namespace}")
	if name := strings.TrimSpace(string(out)); err == nil && name != "" {
		return name
	}
	return metav1.NamespaceDefault
}

func understood(raw json.RawMessage) (*found, error) {
	c := &v1beta1.EtcdCluster{}
	if err := objects.Read(raw, c); err != nil {
		return nil, fmt.Errorf("the EtcdCluster can't be read; is this plugin older than the CRD? %w", err)
	}
	return &found{c, raw}, nil
}

// items are the objects of a List as kubectl prints it.
func items(list []byte) ([]json.RawMessage, error) {
	var l struct{ Items []json.RawMessage }
	if err := objects.Read(list, &l); err != nil {
		return nil, fmt.Errorf("kubectl did not print a list in JSON: %w", err)
	}
	return l.Items, nil
}

// podsOf gets the pods of the cluster's members, by name.
func (a *invocation) podsOf(ctx context.Context, c *v1beta1.EtcdCluster) (map[string]*corev1.Pod, error) {
	out, err := a.kube.run(ctx, "get", "pods", "-n", c.Namespace, "-l", objects.LabelCluster+"="+c.Name, "-o", "json")
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := objects.Read(out, &list); err != nil {
		return nil, fmt.Errorf("the pods of EtcdCluster %s/%s can't be read: %w", c.Namespace, c.Name, err)
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], c) {
			pods[list.Items[i].Name] = &list.Items[i]
		}
	}
	return pods, nil
}
