package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// What people do to the cluster.

// samplePath from the top of the repository.
const samplePath = "manifests/samples/etcdcluster.yaml"

// sample is the shipped EtcdCluster, of this release of etcd.
func sample(release string) (*v1beta1.EtcdCluster, error) {
	text, err := os.ReadFile(samplePath)
	if err != nil {
		return nil, fmt.Errorf("%w; run this at the top of the repository", err)
	}
	c, err := read(text)
	if err == nil {
		c.Spec.Version = release
	}
	return c, err
}

// read reads an EtcdCluster in YAML.
func read(text []byte) (*v1beta1.EtcdCluster, error) {
	c := &v1beta1.EtcdCluster{}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		return nil, err
	}
	if c.Kind != v1beta1.Kind || c.APIVersion != v1beta1.GroupVersion.String() || c.Name == "" {
		return nil, fmt.Errorf("here is room for an %s of %s with a name, not for a %s of %s", v1beta1.Kind,
			v1beta1.GroupVersion, c.Kind, c.APIVersion)
	}
	return c, nil
}

// apply makes the cluster, or changes its spec.
func (t *try) apply(c *v1beta1.EtcdCluster) (err error) {
	t.ask(func() {
		switch old := t.world.Cluster(); {
		case old == nil:
			t.heard = nil
			t.world.CreateCluster(c.Name, c.Spec)
		case old.Name != c.Name:
			err = fmt.Errorf("here is room for one cluster, and that is %s: `delete %s` first", old.Name, old.Name)
		default:
			t.world.EditSpec(func(s *v1beta1.EtcdClusterSpec) { *s = c.Spec })
		}
	})
	return err
}

// edit changes the spec.
func (t *try) edit(change func(*v1beta1.EtcdClusterSpec)) (err error) {
	t.ask(func() {
		if t.world.Cluster() == nil {
			err = fmt.Errorf("there is no cluster: `apply` makes one")
			return
		}
		t.world.EditSpec(change)
	})
	return err
}

// killEtcd ends a member's etcd, as a crash does.
func (t *try) killEtcd(name string) (err error) {
	t.ask(func() {
		pod := t.world.Pod(name)
		run := t.kubelet.nodes[uid(pod)]
		if run == nil || run.containers[objects.ContainerEtcd] == nil ||
			!run.containers[objects.ContainerEtcd].process.runs() {
			err = fmt.Errorf("no etcd runs in a pod %s; `get` lists what there is", name)
			return
		}
		run.containers[objects.ContainerEtcd].process.signal(syscall.SIGKILL)
	})
	return err
}

// loseMember takes a member's claim, volume and pod away, as a node does that never comes back.
func (t *try) loseMember(name string) (err error) {
	t.ask(func() {
		if t.world.Pod(name) == nil && t.world.Claim(name) == nil {
			err = fmt.Errorf("there is no member %s; `get` lists what there is", name)
			return
		}
		t.world.LoseClaim(name)
	})
	return err
}

// remove is kubectl delete: of a pod, of a claim as pvc/NAME, or of the cluster.
func (t *try) remove(name string) (err error) {
	t.ask(func() {
		claim, isClaim := strings.CutPrefix(name, "pvc/")
		switch c := t.world.Cluster(); {
		case isClaim:
			err = t.world.Delete(world.ClaimKind, claim)
		case c != nil && c.Name == name:
			t.world.DeleteCluster(false)
		default:
			err = t.world.Delete(world.PodKind, name)
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w; `get` lists what there is", name, err)
	}
	return nil
}
