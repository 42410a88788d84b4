package kubectl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// live is what etcd answered just now.
type live struct {
	// etcd is the member list; nil when no quorum answered.
	etcd *observation.Membership
	// health by member.
	health map[string]observation.Health
	// trouble says why no member could be asked; empty when one was.
	trouble string
}

// answered reports whether any member answered.
func (l *live) answered() bool {
	for _, h := range l.health {
		if h.Err == "" {
			return true
		}
	}
	return false
}

// observedWithin is how long etcd may take to be asked.
const observedWithin = 20 * time.Second

// look asks etcd through the pods. It never fails: what stood in the way is in the answer.
func (a *invocation) look(ctx context.Context, c *v1beta1.EtcdCluster) *live {
	pods, err := a.podsOf(ctx, c)
	if err != nil {
		return &live{trouble: err.Error()}
	}
	endpoints := facts.Endpoints(observed(c, pods))
	own, err := a.own(ctx, c)
	if err != nil {
		return &live{trouble: err.Error()}
	}
	ways := a.open(ctx, c.Namespace, endpoints)
	defer ways.close()
	return ways.observe(ctx, a.etcd(own, ways.dial), endpoints)
}

func observed(c *v1beta1.EtcdCluster, pods map[string]*corev1.Pod) observation.Observation {
	return observation.Observation{Cluster: c, Children: observation.Children{Pods: pods}}
}

// own is how the members are reached: by Quorate's certificate, and by tokens where they ask for none. Nothing of it is
// needed for a cluster in plain text.
func (a *invocation) own(ctx context.Context, c *v1beta1.EtcdCluster) (etcdops.Own, error) {
	name := objects.OperatorSecret(c)
	if name == "" {
		return etcdops.Own{}, nil
	}
	held := map[string]map[string][]byte{}
	for _, secret := range secretsFor(c) {
		data, err := a.secret(ctx, c, secret)
		if err != nil {
			return etcdops.Own{}, err
		}
		held[secret] = data
	}
	own, err := etcdops.OwnOf(c, func(name string) map[string][]byte { return held[name] })
	if err != nil {
		return own, fmt.Errorf("the Secret %s/%s holds no certificate that etcd could be shown: %w", c.Namespace, name,
			err)
	}
	return own, nil
}

// secretsFor are the Secrets that it takes to reach the members.
func secretsFor(c *v1beta1.EtcdCluster) []string {
	list := []string{objects.OperatorSecret(c)}
	if objects.NeedsToken(c) {
		list = append(list, objects.TokenSecret(c.Name))
	}
	return list
}

func (a *invocation) secret(ctx context.Context, c *v1beta1.EtcdCluster, name string) (map[string][]byte, error) {
	out, err := a.kube.run(ctx, "get", "secret", name, "-n", c.Namespace, "-o", "json")
	if err != nil {
		return nil, fmt.Errorf("etcd is reached by the Secret %s/%s, which can't be read: %w", c.Namespace, name, err)
	}
	var secret corev1.Secret
	if err := objects.Read(out, &secret); err != nil {
		// the error might quote what is in it
		return nil, fmt.Errorf("the Secret %s/%s can't be read", c.Namespace, name)
	}
	return secret.Data, nil
}

// ways lead to the members, by the address that each pod has in Kubernetes.
type ways struct {
	local  map[string]string
	closed map[string]error // by member
	stops  []func()
}

// open makes a way to each endpoint, all at once.
func (a *invocation) open(ctx context.Context, namespace string, endpoints []observation.Endpoint) *ways {
	w := &ways{local: map[string]string{}, closed: map[string]error{}}
	var lock sync.Mutex
	var all sync.WaitGroup
	for _, endpoint := range endpoints {
		all.Go(func() {
			address, stop, err := a.way(ctx, namespace, endpoint)
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				w.closed[endpoint.Name] = err
				return
			}
			w.stops = append(w.stops, stop)
			w.local[host(endpoint)] = address
		})
	}
	all.Wait()
	return w
}

// errExternal: a member of the etcd that was joined has no pod of ours.
var errExternal = errors.New("it is not ours, and this machine has no way to it; Quorate asks it from inside of " +
	"Kubernetes")

// way opens one to the pod of a member.
func (a *invocation) way(
	ctx context.Context, namespace string, endpoint observation.Endpoint,
) (address string, stop func(), err error) {
	if endpoint.External {
		return "", nil, errExternal
	}
	port := objects.ClientPort
	if u, err := url.Parse(endpoint.ClientURL); err == nil {
		port, _ = strconv.Atoi(u.Port())
	}
	return a.kube.forward(ctx, namespace, endpoint.Name, port)
}

func host(endpoint observation.Endpoint) string {
	u, err := url.Parse(endpoint.ClientURL)
	if err != nil {
		return endpoint.ClientURL
	}
	return u.Host
}

func (w *ways) close() {
	var all sync.WaitGroup
	for _, stop := range w.stops {
		all.Go(stop)
	}
	all.Wait()
}

func (w *ways) dial(ctx context.Context, address string) (net.Conn, error) {
	local, open := w.local[address]
	if !open {
		return nil, fmt.Errorf("no port forwarding leads to %s", address)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", local)
}

// observe asks etcd, and says of members without a way why there is none.
func (w *ways) observe(ctx context.Context, etcd hooks.Etcd, endpoints []observation.Endpoint) *live {
	ctx, cancel := context.WithTimeout(ctx, observedWithin)
	defer cancel()
	l := &live{}
	l.etcd, l.health = etcd.Observe(ctx, endpoints)
	for name, err := range w.closed {
		l.health[name] = observation.Health{Err: err.Error()}
	}
	switch {
	case len(endpoints) == 0:
		l.trouble = "no member has a pod with an address"
	case len(w.local) == 0:
		l.trouble = w.closed[endpoints[0].Name].Error()
	}
	return l
}
