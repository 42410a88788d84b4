package check

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// controller is a CompositeController.
type controller struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		ParentResource struct {
			resourceRule
			LabelSelector *metav1.LabelSelector `json:"labelSelector"` // Metacontroller 4
		} `json:"parentResource"`
		ChildResources      []childRule      `json:"childResources"`
		GenerateSelector    bool             `json:"generateSelector"`
		ResyncPeriodSeconds int              `json:"resyncPeriodSeconds"`
		Hooks               map[string]*hook `json:"hooks"`
	} `json:"spec"`
}

type resourceRule struct {
	APIVersion string `json:"apiVersion"`
	Resource   string `json:"resource"`
}

// childRule says what becomes of the children of one kind.
type childRule struct {
	resourceRule
	UpdateStrategy struct {
		Method string `json:"method"`
	} `json:"updateStrategy"`
}

// full is the name of a kind with its group, such as certificates.cert-manager.io.
func (r resourceRule) full() string {
	if group, _, grouped := strings.Cut(r.APIVersion, "/"); grouped {
		return r.Resource + "." + group
	}
	return r.Resource
}

type hook struct {
	Version string   `json:"version"` // Metacontroller 4
	Webhook *webhook `json:"webhook"`
}

type webhook struct {
	URL     string `json:"url"`
	Timeout string `json:"timeout"`
	Path    string `json:"path"`
	Service *struct {
		Name, Namespace, Protocol string
		Port                      int
	} `json:"service"`
	CABundle *struct {
		Inline string `json:"inline"`
	} `json:"caBundle"`
	Authorization *struct {
		SecretRef struct{ Name, Namespace, Key string } `json:"secretRef"`
	} `json:"authorization"`
}

// address is where a webhook leads; nil when it says nothing that can be read.
func (w *webhook) address() *url.URL {
	if w == nil {
		return nil
	}
	if w.URL != "" {
		u, err := url.Parse(w.URL)
		if err != nil {
			return nil
		}
		return u
	}
	if w.Service == nil {
		return nil
	}
	u := &url.URL{Scheme: "http", Host: w.Service.Name + "." + w.Service.Namespace, Path: path.Join("/", w.Path)}
	if w.Service.Protocol != "" {
		u.Scheme = w.Service.Protocol
	}
	if w.Service.Port != 0 {
		u.Host += fmt.Sprintf(":%d", w.Service.Port)
	}
	return u
}

// leads is the name and namespace of the Service that an address of a hook leads to, as in quorate.quorate-system.svc.
func leads(u *url.URL) (name, namespace string) {
	if u == nil {
		return "", ""
	}
	labels := append(strings.Split(u.Hostname(), "."), "")
	return labels[0], labels[1]
}

// calls reports whether a controller calls the Service quorate of a namespace, by its hook sync.
func (c controller) calls(namespace string) bool {
	name, in := leads(c.hook("sync").address())
	return name == "quorate" && in == namespace
}

// hook is the webhook of a hook; nil when there is none.
func (c controller) hook(name string) *webhook {
	if h := c.Spec.Hooks[name]; h != nil {
		return h.Webhook
	}
	return nil
}

// of are the controllers for a kind of ours, whichever Quorate they call.
func (s *Seen) of(parent resourceRule) []controller {
	return slices.DeleteFunc(slices.Clone(s.controllers),
		func(c controller) bool { return c.Spec.ParentResource.full() != parent.full() })
}

// ours are the controllers that call this Quorate.
func (s *Seen) ours() []controller {
	var all []controller
	for _, want := range shipped().controllers {
		for _, c := range s.of(want.Spec.ParentResource.resourceRule) {
			if c.calls(s.Namespace) {
				all = append(all, c)
			}
		}
	}
	return all
}

// called are the webhooks of the controllers that call this Quorate.
func (s *Seen) called() []*webhook {
	var all []*webhook
	for _, c := range s.ours() {
		for _, name := range slices.Sorted(maps.Keys(c.Spec.Hooks)) {
			if w := c.hook(name); w.address() != nil {
				all = append(all, w)
			}
		}
	}
	return all
}

// namesCertificates reports whether a controller of ours has a rule for cert-manager's Certificates.
func (s *Seen) namesCertificates() bool {
	for _, c := range s.ours() {
		for _, child := range c.Spec.ChildResources {
			if child.full() == certificatesCRD {
				return true
			}
		}
	}
	return false
}

// host that a controller calls; never the whole URL, which may hold the token.
func host(c controller) string {
	if u := c.hook("sync").address(); u != nil {
		return u.Host
	}
	return "no host"
}

func oneQuorate(s *Seen) Finding {
	var flaws []Finding
	beside := 0
	for _, want := range shipped().controllers {
		all := s.of(want.Spec.ParentResource.resourceRule)
		for i, one := range all {
			for _, other := range all[i+1:] {
				beside++
				if !disjoint(one.Spec.ParentResource.LabelSelector, other.Spec.ParentResource.LabelSelector) {
					flaws = append(flaws, fail(fmt.Sprintf("the CompositeControllers %s (calls %s) and %s (calls %s) "+
						"both decide "+
						"about %s", one.Metadata.Name, host(one), other.Metadata.Name, host(other),
						want.Spec.ParentResource.Resource),
						"delete one with `kubectl delete compositecontroller NAME`, or give both a "+
							"spec.parentResource.labelSelector "+
							"(Metacontroller 4) that no object meets twice"))
				}
			}
		}
	}
	if beside > 0 {
		return together(ok("others are there, for objects with other labels"), flaws)
	}
	return ok("it is the only one")
}

// disjoint reports whether no object can meet both selectors, as far as one label tells.
func disjoint(a, b *metav1.LabelSelector) bool {
	for _, one := range demands(a) {
		for _, other := range demands(b) {
			if one.Key == other.Key && contradict(one, other) {
				return true
			}
		}
	}
	return false
}

// demands of a selector, all in one form.
func demands(s *metav1.LabelSelector) []metav1.LabelSelectorRequirement {
	if s == nil {
		return nil
	}
	all := slices.Clone(s.MatchExpressions)
	for key, value := range s.MatchLabels {
		all = append(all, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn,
			Values: []string{value}})
	}
	return all
}

// contradict reports whether no object meets both demands on one label.
func contradict(a, b metav1.LabelSelectorRequirement) bool { return excludes(a, b) || excludes(b, a) }

func excludes(a, b metav1.LabelSelectorRequirement) bool {
	in := metav1.LabelSelectorOpIn
	not := metav1.LabelSelectorOpNotIn
	switch {
	case a.Operator == metav1.LabelSelectorOpDoesNotExist:
		return b.Operator == in || b.Operator == metav1.LabelSelectorOpExists
	case a.Operator == in && (b.Operator == in || b.Operator == not):
		return !slices.ContainsFunc(a.Values, func(v string) bool {
			return slices.Contains(b.Values, v) == (b.Operator == in)
		})
	}
	return false
}
