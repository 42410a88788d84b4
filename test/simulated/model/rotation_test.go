package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// rotation begins when the authority of a running cluster is due to be replaced, and ends when the old one has
// expired and is not trusted any more. Days pass only when nothing is left to do, so that no certificate expires
// because a step was late.
type rotation struct{}

// dueAuthority is a cluster of this size whose authority is due.
func dueAuthority(size, troubles int, decide decider) *scene {
	w := world.New()
	s := v1beta1.EtcdClusterSpec{DeletionPolicy: v1beta1.DeletionDelete,
		Version: releases[0], Replicas: new(int32(size)),
		Storage: v1beta1.StorageSpec{Size: oneGi}}
	s.TLS.Auto.LeafDuration.Duration, s.TLS.Auto.CADuration.Duration = 100*time.Hour, 200*time.Hour
	w.CreateCluster(clusterName, s)
	for _, wait := range []time.Duration{0, 67 * time.Hour, 67 * time.Hour} {
		w.Now = w.Now.Add(wait)
		for range 15 {
			if wait == 0 || w.Now.Before(w.Secret(defaults.CASecret(clusterName)).Certificate.NotBefore.Add(
				100*time.Hour)) {
				w.Sync(world.Crash{})
				w.Pass()
			}
		}
	}
	w.Decide = decide
	return &scene{w: w, plot: rotation{}, troubles: troubles}
}

func (p rotation) goesOn(s *scene) (list []move) {
	for name := range s.w.Net.Isolated {
		list = append(list, goes("network healed", func(w *world.World) {
			delete(w.Net.Isolated, name)
			delete(w.Net.Unreachable, name)
		}))
	}
	if s.quiet() {
		list = append(list, goes("later", p.later))
	}
	return list
}

func (rotation) mishaps(s *scene) []move {
	list := slices.Concat(s.freezes(world.SecretKind, world.PodKind),
		s.eachPod("kubelet pod", "kill pod", "restart pod", "etcd leader"))
	for _, pod := range s.w.Pods() {
		list = append(list, fails("network isolated and unreachable="+pod.Name, func(w *world.World) {
			w.Net.Isolated[pod.Name] = true
			w.Net.Unreachable[pod.Name] = true
		}))
	}
	for _, secret := range s.w.Secrets() {
		list = append(list, trouble("delete secret="+secret.Name))
	}
	return list
}

// later lets time pass until there may be something to do.
func (rotation) later(w *world.World) {
	ca := w.Secret(defaults.CASecret(clusterName))
	settled := ca.Certificate.NotBefore.Add(ca.Certificate.NotAfter.Sub(ca.Certificate.NotBefore)/12 + time.Minute)
	switch {
	case w.Cluster().Status.Rule != "Converged":
		w.Elapse(30 * time.Second)
	case ca.Previous != nil && w.Now.Before(settled):
		w.Now = settled
	case len(ca.Trust) > 1:
		w.Now = ca.Trust[len(ca.Trust)-1].NotAfter.Add(time.Minute)
		if due := ca.Certificate.NotBefore.Add(ca.Certificate.NotAfter.Sub(ca.Certificate.NotBefore)/3*2 +
			time.Minute); due.Before(w.Now) {
			w.Now = due
		}
	}
}

// done reports whether the rotation is over: all trust the new authority alone, and show what it has signed.
func (rotation) done(s *scene) bool {
	ca := s.w.Secret(defaults.CASecret(clusterName))
	if ca == nil || ca.Certificate.ID == "A1" || len(ca.Trust) > 1 || s.w.Cluster().Status.Rule != "Converged" ||
		!s.quiet() {
		return false
	}
	alone := func(trust []observation.Certificate) bool { return len(trust) == 1 && trust[0].ID == ca.Certificate.ID }
	for _, secret := range s.w.Secrets() {
		if secret.Certificate != nil && (secret.Certificate.Issuer != ca.Certificate.Key || !alone(secret.Trust)) {
			return false
		}
	}
	for _, proc := range s.w.Procs {
		if !alone(proc.Clients) || !alone(proc.Peers) {
			return false
		}
	}
	return true
}

func (rotation) tell(s *scene, b *strings.Builder, n numbers) {
	w, c := s.w, s.w.Cluster()
	fmt.Fprintln(b, s.troubles, c.Status.Rule, w.Net.Isolated)
	for _, m := range c.Status.Members {
		fmt.Fprintln(b, m.Name, m.Role, m.Ready, m.Leader, m.Message, w.Now.Sub(m.JoinTime.Time) > facts.CallsEnd)
	}
	for _, condition := range c.Status.Conditions {
		fmt.Fprintln(b, condition.Type, condition.Status, condition.Message)
	}
	for _, certificate := range c.Status.TLS.Certificates {
		fmt.Fprintln(b, certificate.Name, n.of(certificate.NotAfter.String()))
	}
	fmt.Fprintln(b, n.of(served(w)))
	n.everything(b, s)
}

// served is what the annotation says of pods whose member shows what the Secrets hold now.
func served(w *world.World) string {
	o := observation.Observation{Cluster: w.Cluster(), Now: w.Now}
	o.Children.Pods, o.Children.Secrets = map[string]*corev1.Pod{}, map[string]*observation.Secret{}
	for _, pod := range w.Pods() {
		o.Children.Pods[pod.Name] = pod
	}
	for _, secret := range w.Secrets() {
		o.Children.Secrets[secret.Name] = secret
	}
	for _, pod := range hooks.Decide(o).Children.Pods {
		return pod.Annotations[objects.AnnotationServes]
	}
	return ""
}

// TestRotation searches all that may happen while an authority is succeeded.
func TestRotation(t *testing.T) {
	for _, c := range []struct {
		name           string
		size, troubles int
		deep           bool
	}{
		{"a single member, undisturbed", 1, 0, false},
		{"three members, undisturbed", 3, 0, false},
		{"a single member, one trouble", 1, 1, false},
		{"three members, one trouble", 3, 1, true},
	} {
		searchScene(t, c.name, c.deep, func() *scene { return dueAuthority(c.size, c.troubles, nil) })
	}
}

// TestRotationMutants are rules about certificates that are wrong on purpose.
func TestRotationMutants(t *testing.T) {
	three := func(decide decider) *scene { return dueAuthority(3, 9, decide) }
	for name, mutant := range map[string]followed{
		"what the new authority signs is shown before all members trust it": {three, signsEarly, nil, "S19: demo-"},
		"all who distrust are restarted at once":                            {three, rollsAll, nil, "S1: deleting pods"},
		"the servers may trust an authority before the peers do": {
			three, serversFirst, []string{"sync", "crash before secret=demo-peer-tls order=backwards",
				"restart pod=demo-1", "pass"}, "S19: demo-",
		},
	} {
		mutant.run(t, name)
	}
}
