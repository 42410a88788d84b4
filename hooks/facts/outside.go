package facts

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// Members that are reached from outside Kubernetes by a Service of their own (spec.memberService). Each advertises a
// second client URL, which etcd publishes when it starts. Its name is put together from the spec; only the port of the
// type NodePort is chosen by Kubernetes, once there is a Service. So no start waits for a cloud's address. Whether a
// member advertises the right URL is read from its pod's flag: the port differs from member to member. Peer URLs stay
// within, since a member is known by its own (S9).

// advertises is the flag with a member's client URLs: the first is the one within Kubernetes. etcd sorts them.
const advertises = "--advertise-client-urls="

// OutsideURL is the URL of the member outside Kubernetes; empty for none. False while the port is not known.
func (f *Facts) OutsideURL(member string) (url string, known bool) {
	asked := f.Cluster.Spec.MemberService
	if asked == nil {
		return "", true
	}
	port := objects.ClientPort
	if asked.Type == corev1.ServiceTypeNodePort {
		s := f.Children.Services[objects.MemberService(member)]
		if s == nil || s.Spec.Type != corev1.ServiceTypeNodePort || len(s.Spec.Ports) == 0 ||
			s.Spec.Ports[0].NodePort == 0 {
			return "", false
		}
		port = int(s.Spec.Ports[0].NodePort)
	}
	return objects.Scheme(f.Cluster) + "://" + objects.HostPort(objects.ExternalHost(f.Cluster, member), port), true
}

// MayBeginOnMemory reports whether a memory pod can be made for a new member: it has a place, and can be told its URL
// outside Kubernetes. On Memory only another member can have another one.
func (f *Facts) MayBeginOnMemory(member string) bool {
	_, known := f.OutsideURL(member)
	return known && f.HasPlace(member)
}

// Advertised is where the flag is, by container and argument; -1 for nowhere.
func Advertised(pod *corev1.Pod) (container, argument int) {
	for i := range pod.Spec.Containers {
		j := slices.IndexFunc(pod.Spec.Containers[i].Command,
			func(f string) bool { return strings.HasPrefix(f, advertises) })
		if j >= 0 {
			return i, j
		}
	}
	return -1, -1
}

// outsideURLDiffers reports whether the member must be restarted to advertise another URL outside Kubernetes, and why.
func (f *Facts) outsideURLDiffers(m *Member) (string, bool) {
	wanted, known := f.OutsideURL(m.PodName)
	i, j := Advertised(m.Pod)
	if !known || i < 0 {
		return "", false
	}
	_, has, _ := strings.Cut(strings.TrimPrefix(m.Pod.Spec.Containers[i].Command[j], advertises), ",")
	switch {
	case withoutScheme(has) == withoutScheme(wanted): // which scheme, TLSFlagsDiffer follows
		return "", false
	case wanted == "":
		return "it should no longer be reached at " + has, true
	}
	return "it should be reached at " + wanted, true
}

func withoutScheme(url string) string { return url[strings.Index(url, "://")+1:] }

// Outside are the members that have a Service of their own: those that etcd lists, and while it does not answer all
// that left a trace or have one, and those of the epoch that is to take over.
func (f *Facts) Outside() []string {
	if f.Cluster.Spec.MemberService == nil {
		return nil
	}
	names := map[string]bool{}
	for _, m := range f.Members {
		names[m.PodName] = true
	}
	if f.Etcd == nil {
		for _, name := range slices.Concat(f.Names, f.Epoch.initial()) {
			names[name] = true
		}
		for name := range f.Children.Services {
			if member, is := objects.MemberOfService(f.Cluster.Name, name); is {
				names[member] = true
			}
		}
	}
	if f.Next != nil {
		for _, name := range slices.Concat(f.Next.Names, f.Next.Epoch.initial()) {
			names[name] = true
		}
	}
	delete(names, "")
	return slices.SortedFunc(maps.Keys(names), objects.ByOrdinal)
}
