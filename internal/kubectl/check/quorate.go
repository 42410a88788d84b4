package check

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func labelSet(all map[string]string) labels.Set { return all }

// meets reports whether labels meet a selector. One that can't be read is never met.
func meets(s *metav1.LabelSelector, all map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labelSet(all))
}

// deployment is Quorate's; nil when there is none.
func (s *Seen) deployment() *workload {
	if len(s.deployments) == 0 {
		return nil
	}
	i := slices.IndexFunc(s.deployments, func(w workload) bool { return w.Metadata.Name == "quorate" })
	return &s.deployments[max(i, 0)]
}

func quorateRuns(s *Seen) Finding {
	w := s.deployment()
	if w == nil {
		return fail("no Deployment of Quorate exists in namespace "+s.Namespace,
			"say with --namespace where Quorate "+
				"is; or install it: "+s.install())
	}
	found := fmt.Sprintf("%s: %d of %d available", w.title(), w.Status.AvailableReplicas, w.wanted())
	why := command("kubectl -n %s describe pods -l %s=quorate", s.Namespace, nameLabel) + " shows why"
	switch {
	case w.Status.AvailableReplicas == 0:
		return fail(found, why+"; until one is, members that fail stay down")
	case w.Status.AvailableReplicas < w.wanted():
		return warn(found, why)
	case w.Status.ObservedGeneration < w.Metadata.Generation || w.Status.UpdatedReplicas < w.wanted():
		return warn(found+", and not all of them are of the newest template", command("kubectl -n %s rollout status "+
			"deployment/%s", s.Namespace, w.Metadata.Name)+" waits for that")
	}
	return ok("%s", found)
}

// env is the value of an environment variable of a container, and whether it has one.
func env(c corev1.Container, name string) (string, bool) {
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
	if i < 0 {
		return "", false
	}
	return c.Env[i].Value, true
}

func quorateVersion(s *Seen) Finding {
	w := s.deployment()
	c := containerOf(w)
	var flaws []Finding
	if members, set := env(c, "QUORATE_IMAGE"); !set &&
		!slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--image") }) {
		flaws = append(flaws, fail("the server is not given its own image, and does not start without it",
			"set QUORATE_IMAGE in "+w.title()+" to "+c.Image))
	} else if set && members != c.Image {
		flaws = append(flaws, warn(fmt.Sprintf("members' pods use the image %s, and the server runs %s",
			members,
			c.Image), "set QUORATE_IMAGE in "+w.title()+" to "+c.Image+", unless both are the same under two names"))
	}
	is, tagged := exact(tag(c.Image))
	own, released := exact(s.Version)
	switch {
	case !released:
		return together(ok("image %s; this program (%s) is not a release, so versions were not compared", c.Image,
			s.Version),
			flaws)
	case !tagged:
		return together(ok("image %s, which does not tell its version; this program is %s", c.Image, s.Version), flaws)
	case is != own:
		flaws = append(flaws, warn(fmt.Sprintf("the image %s is of %s and this program of %s, which judges by its own "+
			"manifests", c.Image, is, own),
			"use the quorate of the release that is installed, or install this one: "+s.install()))
	}
	return together(ok("image %s", c.Image), flaws)
}

// exact reads a version with nothing behind it, as releases have.
func exact(text string) (release, bool) {
	r, known := releaseOf(text)
	return r, known && strings.TrimPrefix(text, "v") == r.String()
}

func service(s *Seen) Finding {
	called := s.called()
	i := slices.IndexFunc(s.services, func(o corev1.Service) bool { return o.Name == "quorate" })
	if i < 0 {
		return fail("no such Service: "+s.Namespace+"/quorate", s.install())
	}
	serves := s.services[i]
	var flaws []Finding
	for _, w := range called {
		if n := port(w); !slices.ContainsFunc(serves.Spec.Ports,
			func(p corev1.ServicePort) bool { return fmt.Sprint(p.Port) == n }) {
			flaws = append(flaws, fail(fmt.Sprintf("hooks are called at port %s, which the Service %s/quorate does "+
				"not have", n,
				s.Namespace), s.install()))
			break
		}
	}
	ready := 0
	for _, p := range s.quoratePods {
		if labels.SelectorFromSet(serves.Spec.Selector).Matches(labelSet(p.Labels)) && podReady(p) {
			ready++
		}
	}
	if ready == 0 {
		flaws = append(flaws, fail("no pod behind the Service "+s.Namespace+"/quorate is ready",
			command("kubectl -n %s describe pods -l %s=quorate", s.Namespace, nameLabel)+" shows why"))
	}
	return together(ok("%s to %d ready pods", called[0].address().Scheme+"://"+called[0].address().Host, ready), flaws)
}

// port of a webhook.
func port(w *webhook) string {
	switch u := w.address(); {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

func podReady(p corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// networkPolicyObject is a NetworkPolicy.
type networkPolicyObject struct {
	Metadata metav1.ObjectMeta              `json:"metadata"`
	Spec     networkingv1.NetworkPolicySpec `json:"spec"`
}

func networkPolicy(s *Seen) Finding {
	w := s.deployment()
	from := s.metacontroller()
	where, there := s.namespaces[s.Metacontroller]
	if !there {
		where = map[string]string{corev1.LabelMetadataName: s.Metacontroller}
	}
	held := false
	let := false
	for _, p := range s.networks {
		if !meets(&p.Spec.PodSelector, w.Spec.Template.Labels) ||
			!slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			continue
		}
		held = true
		let = let || slices.ContainsFunc(p.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
			return toHooks(r.Ports) && lets(r.From, where, from.Spec.Template.Labels)
		})
	}
	switch {
	case !held:
		return warn("none: every pod in the cluster can reach the hooks", "apply that of this release: "+
			s.install())
	case !let:
		return fail("it does not allow namespace "+s.Metacontroller+
			" to reach the hooks: where NetworkPolicies are enforced, no call arrives", "install for that namespace: "+
			s.install())
	}
	return ok("it allows namespace %s in; whether your network plugin enforces it can't be seen from here",
		s.Metacontroller)
}

// toHooks reports whether a rule is about the hooks' port, 8080.
func toHooks(ports []networkingv1.NetworkPolicyPort) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		return p.Port == nil || p.Port.String() == "hooks" || p.Port.String() == "8080"
	})
}

// lets reports whether a pod with these labels, in a namespace with those, is one of the peers.
func lets(peers []networkingv1.NetworkPolicyPeer, namespace, pod map[string]string) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		return p.NamespaceSelector != nil && meets(p.NamespaceSelector, namespace) &&
			(p.PodSelector == nil || meets(p.PodSelector, pod))
	})
}
