package install

import (
	"errors"
	"flag"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// sizes say how much Quorate and the Metacontroller that comes with it can do at once. The defaults are what the
// manifests have. docs/how-to/size.md says which are for how many clusters.
type sizes struct {
	replicas int
	memory   string
	its      struct { // Metacontroller's
		workers, qps int
		memory       string
	}
}

// usual are the sizes of the manifests.
func usual() sizes {
	s := sizes{replicas: 2, memory: "128Mi"}
	s.its.workers, s.its.qps, s.its.memory = 20, 100, "512Mi"
	return s
}

// leastMemory is what the pods request.
var leastMemory = resource.MustParse("64Mi")

func (s *sizes) flags(flags *flag.FlagSet) {
	*s = usual()
	flags.IntVar(&s.replicas, "replicas", s.replicas, "how many `pods` Quorate has")
	flags.StringVar(&s.memory, "memory", s.memory, "`limit` of the memory of each pod of Quorate")
	flags.IntVar(&s.its.workers, "metacontroller-workers", s.its.workers,
		"at how many `objects` Metacontroller works at once (its --workers)")
	flags.IntVar(&s.its.qps, "metacontroller-qps", s.its.qps,
		"how many `requests` a second Metacontroller may make to the API server, and twice that in a burst "+
			"(its --client-go-qps and --client-go-burst)")
	flags.StringVar(&s.its.memory, "metacontroller-memory", s.its.memory,
		"`limit` of the memory of each pod of Metacontroller")
}

// check finds sizes that no pod could have, and those of a Metacontroller that is not installed here.
func (s *sizes) check(own bool) error {
	if s.replicas < 1 || s.its.workers < 1 || s.its.qps < 1 {
		return errors.New("--replicas, --metacontroller-workers and --metacontroller-qps must be 1 or more")
	}
	for name, limit := range map[string]string{"memory": s.memory, "metacontroller-memory": s.its.memory} {
		if q, err := resource.ParseQuantity(limit); err != nil || q.Cmp(leastMemory) < 0 {
			return fmt.Errorf("--%s must be a quantity such as 512Mi, and %s or more, not %q", name, &leastMemory,
				limit)
		}
	}
	if !own && s.its != usual().its {
		return errors.New("--metacontroller-workers, --metacontroller-qps and --metacontroller-memory are for the " +
			"Metacontroller that is installed with Quorate: set --workers, --client-go-qps, --client-go-burst and the " +
			"memory limit of the one in --metacontroller-namespace where it was installed")
	}
	return nil
}

// adapt changes Quorate's Deployment.
func (s *sizes) adapt(spec object) {
	spec["replicas"] = s.replicas
	limitMemory(containerOf(spec), s.memory)
}

// adaptMetacontroller changes Metacontroller's. A burst of twice the rate is what it was measured with.
func (s *sizes) adaptMetacontroller(spec object) {
	c := containerOf(spec)
	limitMemory(c, s.its.memory)
	args := c["args"].([]any)
	for flag, value := range map[string]int{
		"workers": s.its.workers, "client-go-qps": s.its.qps, "client-go-burst": 2 * s.its.qps,
	} {
		for n, arg := range args {
			if strings.HasPrefix(arg.(string), "--"+flag+"=") {
				args[n] = fmt.Sprintf("--%s=%d", flag, value)
			}
		}
	}
}

// limitMemory changes the limit. GOMEMLIMIT follows it by itself.
func limitMemory(container object, limit string) {
	at(container, "resources", "limits")[string(corev1.ResourceMemory)] = limit
}

func containerOf(spec object) object {
	return at(spec, "template", "spec")["containers"].([]any)[0].(object)
}
