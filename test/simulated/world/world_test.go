package world

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// ready is a world with a cluster of this size that has converged.
func ready(t *testing.T, size int32) *World {
	t.Helper()
	w := New()
	w.CreateCluster("demo", v1beta1.EtcdClusterSpec{Version: "3.6.16", Replicas: &size})
	for range 10 {
		w.Sync(Crash{})
		w.Pass()
	}
	if phase := w.Cluster().Status.Rule; phase != "Converged" {
		t.Fatalf("the cluster is in %s", phase)
	}
	return w
}

func dump(t *testing.T, w *World) string {
	t.Helper()
	var all []any
	for _, key := range w.keys() {
		all = append(all, w.Objects[key])
	}
	raw, err := json.Marshal([]any{all, w.Dirs, w.Procs, w.Etcd, w.Changes, w.Writes, w.Oracle.Broken})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestCloneIsIndependent(t *testing.T) {
	w := ready(t, 3)
	before := dump(t, w)
	c := w.Clone()
	if dump(t, c) != before {
		t.Fatal("a clone differs")
	}
	c.EditSpec(func(s *v1beta1.EtcdClusterSpec) { s.Replicas = new(int32(5)) })
	c.LoseClaim("demo-1")
	for range 20 {
		c.Sync(Crash{})
		c.Pass()
	}
	c.Write(3)
	if dump(t, c) == before {
		t.Fatal("nothing has happened to the clone")
	}
	if dump(t, w) != before {
		t.Error("what happened to the clone has happened to the original")
	}
}

// The oracle must see what the hooks never let happen: each breach is brought about behind their back.
func TestOracleSees(t *testing.T) {
	for _, c := range []struct {
		rule   string
		breach func(w *World)
	}{
		{"S1", func(w *World) {
			call := w.Begin(Crash{})
			call.Decision.Children.Pods = call.Decision.Children.Pods[:1]
			w.Apply(call)
		}},
		{"S3", func(w *World) {
			c := w.Etcd.Clusters[w.Oracle.cluster]
			for _, name := range []string{"demo-7", "demo-8"} {
				c, _ = w.add(c, "http://"+name)
				c.Members[len(c.Members)-1].Learner = false // so that etcd lets the next one in
			}
			for i := 3; i < 5; i++ {
				c.Members[i].Learner = true
			}
			w.store(c)
		}},
		{"S4", func(w *World) {
			c, _ := w.add(w.Etcd.Clusters[w.Oracle.cluster], "http://demo-7")
			c.Members[3].Learner = false
			w.store(c)
		}},
		{"S7", func(w *World) {
			call := w.Begin(Crash{})
			call.Decision.Children.Claims = nil
			w.Apply(call)
		}},
		{"S8", func(w *World) {
			_, _ = w.bootstrap(w.Pod("demo-0"), map[string]string{"demo-0": "http://demo-0"}, "another token")
		}},
		{"S9", func(w *World) {
			c := w.Etcd.Clusters[w.Oracle.cluster]
			gone := c.Members[2]
			c, _ = w.removeMember(c, gone.ID)
			c, _ = w.add(c, gone.PeerURLs[0])
			w.store(c)
		}},
		{"S10: demo-0 starts with an empty directory", func(w *World) {
			w.KillPod("demo-1")
			w.KillPod("demo-2")
			record := w.Objects[Key{ConfigMapKind, "demo-epoch-1"}].(*corev1.ConfigMap)
			w.editPod("demo-0", func(p *corev1.Pod) {
				p.Annotations[objects.AnnotationInitialCluster] = record.Data["initial-cluster"]
			})
			w.EmptyData("demo-0")
			w.Pass()
		}},
		{"S10: acknowledged writes are lost", func(w *World) {
			w.Write(10)
			for place, d := range w.Dirs {
				d.Index = 3
				w.Dirs[place] = d
			}
			w.Restart("demo-0")
			w.TickEtcd()
		}},
	} {
		w := ready(t, 3)
		c.breach(w)
		if broken := strings.Join(w.Oracle.Broken, "\n"); !strings.Contains(broken, c.rule) {
			t.Errorf("%s was not seen; broken: %q", c.rule, broken)
		}
	}
}
