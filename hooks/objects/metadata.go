package objects

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// With is a copy of labels or annotations with one more.
func With(all map[string]string, key, value string) map[string]string {
	all = maps.Clone(all)
	if all == nil {
		all = map[string]string{}
	}
	all[key] = value
	return all
}

// Only is a copy of labels or annotations with these keys alone, as far as they are there.
func Only[K comparable, V any](all map[K]V, keys ...K) map[K]V {
	some := map[K]V{}
	for _, k := range keys {
		if value, set := all[k]; set {
			some[k] = value
		}
	}
	return some
}

// Digest is a short hash of texts.
func Digest(texts ...string) string {
	h := fnv.New64a()
	for _, text := range texts {
		_, _ = h.Write([]byte(text))
		_, _ = h.Write([]byte{0})
	}
	return strconv.FormatUint(h.Sum64(), 16)
}

// Shortened is a name of at most so many characters.
func Shortened(name string, most int) string {
	if len(name) <= most {
		return name
	}
	sum := Digest(name)
	return strings.TrimRight(name[:most-len(sum)-1], "-.") + "-" + sum
}

// NumberedName names the nth object that this one has for a purpose. The UID keeps it apart from those of another
// object of the same name, and from a cluster's members. It has 63 characters at most: a Job's name is a label of its
// pods.
func NumberedName(of metav1.Object, purpose string, n int) string {
	end := fmt.Sprintf("-%s-%s-%d", of.GetUID()[:min(8, len(of.GetUID()))], purpose, n)
	return strings.ReplaceAll(Shortened(of.GetName(), 63-len(end)), ".", "-") + end
}

// Canonical is the quantity in the one form in which this value is written, and as the API server writes it: our
// answer never differs from what is stored.
func Canonical(q resource.Quantity) resource.Quantity {
	whole := q.Value()
	thousandths := *resource.NewMilliQuantity(q.MilliValue(), resource.DecimalSI)
	switch decimal := *resource.NewQuantity(whole, resource.DecimalSI); {
	case decimal.Cmp(q) == 0 && whole%1024 == 0 && whole != 0:
		return *resource.NewQuantity(whole, resource.BinarySI)
	case decimal.Cmp(q) == 0:
		return decimal
	case thousandths.Cmp(q) == 0:
		return thousandths
	}
	// As small, or as large, as hardly one is.
	return resource.MustParse(resource.NewDecimalQuantity(*q.AsDec(), resource.DecimalSI).String())
}

// keysOfOthers are the labels or annotations of a spec. None is of our own domain: by those we know what we did, as
// that a member was told to join (S10).
func keysOfOthers[V ~string](all map[string]V) map[string]string {
	some := map[string]string{}
	for k, value := range all {
		if !strings.HasPrefix(k, Domain) {
			some[k] = string(value)
		}
	}
	return some
}

// OwnKeys are the labels or annotations that Quorate sets: those of its own domain, and those of these names.
func OwnKeys(all, names map[string]string) map[string]string {
	some := map[string]string{}
	for k, value := range all {
		if _, named := names[k]; named || strings.HasPrefix(k, Domain) {
			some[k] = value
		}
	}
	return some
}

// Labels of an object of the cluster: the user's, then ours.
func Labels(c *v1beta1.EtcdCluster, own map[string]string) map[string]string {
	all := keysOfOthers(c.Spec.AdditionalMetadata.Labels)
	maps.Copy(all, own)
	all[LabelCluster] = c.Name
	all["app.kubernetes.io/name"] = "etcd"
	all["app.kubernetes.io/instance"] = c.Name
	all["app.kubernetes.io/managed-by"] = "quorate"
	return all
}

// Annotations are those that the spec asks for on every object, and own.
func Annotations(c *v1beta1.EtcdCluster, own map[string]string) map[string]string {
	all := keysOfOthers(c.Spec.AdditionalMetadata.Annotations)
	maps.Copy(all, own)
	return all
}

// AnnotationHostname is where external-dns reads which name leads to a Service.
const AnnotationHostname = "external-dns.alpha.kubernetes.io/hostname"

// ServiceAnnotations are those of the Service of this name: those of all objects, and those that the spec asks for on
// the Service for clients, or on the members' own.
func ServiceAnnotations(c *v1beta1.EtcdCluster, service string) map[string]string {
	all := Annotations(c, nil)
	asked := map[string]string(nil)
	member, ofMember := MemberOfService(c.Name, service)
	switch m := c.Spec.MemberService; {
	case service == ClientService(c.Name):
		asked = c.Spec.ClientService.Annotations
	case ofMember && m != nil:
		asked = With(m.Annotations, AnnotationHostname, ExternalHost(c, member))
	}
	for k, value := range asked {
		if !strings.HasPrefix(k, Domain) {
			all[k] = value
		}
	}
	return all
}

// Fingerprint is a short hash of plain data.
func Fingerprint(data any) string {
	raw, err := json.Marshal(data)
	if err != nil { // plain data always encodes
		return "unknown"
	}
	return Digest(string(raw))
}

// Selector matches the cluster's pods.
func Selector(c *v1beta1.EtcdCluster) map[string]string {
	return map[string]string{LabelCluster: c.Name}
}
