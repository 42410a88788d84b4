package safety

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// services reports whether the answer has the cluster's two Services, and with spec.memberService that of each listed
// member; while etcd does not answer none of those goes. It has no other.
func services(j *judgement) bool {
	var names []string
	for _, s := range j.d.Children.Services {
		names = append(names, s.Name)
	}
	wanted := []string{j.o.Cluster.Name, j.o.Cluster.Name + "-peers"}
	if j.o.Cluster.Spec.MemberService == nil {
		return len(names) == len(wanted) && containAll(names, wanted)
	}
	for _, m := range j.f.Members {
		if m.PodName != "" {
			wanted = append(wanted, m.PodName+"-external")
		}
	}
	for name := range j.o.Children.Services {
		if _, ofMember := objects.MemberOfService(j.o.Cluster.Name, name); ofMember && j.f.Etcd == nil {
			wanted = append(wanted, name)
		}
	}
	strange := slices.ContainsFunc(names[min(2, len(names)):], func(name string) bool {
		_, ofMember := objects.MemberOfService(j.o.Cluster.Name, name)
		return !ofMember
	})
	return containAll(names, wanted) && !strange
}

func containAll(list, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(name string) bool { return !slices.Contains(list, name) })
}

// outsideUnlike reports whether the member's etcd says another URL outside Kubernetes than the spec wants. Which port
// each node has for it is known once it has a Service.
func outsideUnlike(j *judgement, m *facts.Member) bool {
	flags := strings.Join(m.Pod.Spec.Containers[0].Command, "\n") + "\n"
	_, urls, _ := strings.Cut(flags, "--advertise-client-urls=")
	urls, _, _ = strings.Cut(urls, "\n")
	asked := j.o.Cluster.Spec.MemberService
	if asked == nil {
		return strings.Contains(urls, ",")
	}
	port := int32(2379)
	service := j.o.Children.Services[m.PodName+"-external"]
	if asked.Type == corev1.ServiceTypeNodePort {
		if service == nil || service.Spec.Type != asked.Type || service.Spec.Ports[0].NodePort == 0 {
			return false
		}
		port = service.Spec.Ports[0].NodePort
	}
	return !strings.HasSuffix(urls, fmt.Sprintf("//%s.%s:%d", m.PodName, asked.Domain, port)) || !strings.Contains(urls, ",")
}
