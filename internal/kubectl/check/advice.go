package check

import (
	"fmt"
	"strings"
)

// command is a command line for people to copy.
func command(format string, args ...any) string { return "`" + fmt.Sprintf(format, args...) + "`" }

// install is what makes everything of Quorate as this release wants it.
func (s *Seen) install() string {
	flags := ""
	if w := s.deployment(); w != nil && w.Metadata.Labels["app.kubernetes.io/managed-by"] == "Helm" {
		return "upgrade the Helm release to the chart of this release"
	} else if w != nil && repository(containerOf(w).Image) != repository(shipped().image) {
		flags += " --image=YOURS"
	}
	if s.metacontroller() != nil && !s.own() {
		flags += " --metacontroller-namespace=" + s.Metacontroller
		if v, known := s.metacontrollerVersion(); known {
			flags += fmt.Sprintf(" --metacontroller-version=%d.%d", v.major, v.minor)
		}
	}
	if s.Namespace != "quorate-system" {
		flags += " --namespace=" + s.Namespace
	}
	if s.namesCertificates() {
		flags += " --cert-manager"
	}
	return command("quorate install%s%s --apply", flags, s.settings())
}

// told are the settings of an installation that its Deployment tells by the environment of its container, each with
// the flag that sets it.
var told = []struct{ env, flag string }{
	{"QUORATE_NAMESPACES", " --namespaces=%s"},
	{"QUORATE_SELECTOR", " --selector='%s'"},
	{"QUORATE_ETCD_REPOSITORY", " --etcd-repository=%s"},
	{"QUORATE_ALLOWED_IMAGE_REPOSITORIES", " --allowed-image-repositories=%s"},
	{"QUORATE_ALLOWED_ETCD_ENDPOINTS", " --allowed-etcd-endpoints=%s"},
}

// settings are the flags of an installation that is there, as far as its Deployment and its CompositeControllers tell
// them: without them, installing again would change what Quorate looks after, and with which images.
func (s *Seen) settings() string {
	flags := ""
	if w := s.deployment(); w != nil {
		for _, t := range told {
			value, _ := env(containerOf(w), t.env)
			if value != "" && value != shipped().etcdRepository {
				flags += fmt.Sprintf(t.flag, value)
			}
		}
		if s.sharesIssuers() {
			flags += " --shared-issuers"
		}
	}
	flags += s.sizes()
	for _, c := range s.ours() {
		if name, named := strings.CutPrefix(c.Metadata.Name, "quorate-etcdcluster-"); named {
			flags += " --name=" + name
		}
	}
	return flags
}

// sharesIssuers reports whether EtcdClusters may have certificates of issuers that other namespaces use too.
func (s *Seen) sharesIssuers() bool {
	w := s.deployment()
	if w == nil {
		return false
	}
	shared, _ := env(containerOf(w), "QUORATE_SHARED_ISSUERS")
	return shared == "true"
}

// sizes are the flags for what an installation has more or less of than the manifests: replicas, memory, and of a
// Metacontroller that came with it workers and requests a second.
func (s *Seen) sizes() string {
	flags := ""
	differs := func(name, is, usual string) {
		if is != usual && is != "" && is != "0" {
			flags += " --" + name + "=" + is
		}
	}
	if w := s.deployment(); w != nil {
		usual := shipped().server
		differs("replicas", fmt.Sprint(w.wanted()), fmt.Sprint(usual.wanted()))
		differs("memory", memoryOf(w), memoryOf(usual))
	}
	if w := s.metacontroller(); w != nil && s.own() {
		usual := shipped().caller
		differs("metacontroller-workers", flag(containerOf(w), "workers"), flag(containerOf(usual), "workers"))
		differs("metacontroller-qps", flag(containerOf(w), "client-go-qps"), flag(containerOf(usual), "client-go-qps"))
		differs("metacontroller-memory", memoryOf(w), memoryOf(usual))
	}
	return flags
}

// memoryOf is the limit of the memory of a workload's pods; 0 for none.
func memoryOf(w *workload) string {
	limits := containerOf(w).Resources.Limits
	return limits.Memory().String()
}

// own reports whether Metacontroller is that of this Quorate.
func (s *Seen) own() bool { return s.Metacontroller == s.Namespace }

// restart is the command that restarts Metacontroller.
func (s *Seen) restart() string {
	w := s.metacontroller()
	if w == nil {
		return command("kubectl -n %s rollout restart statefulset/metacontroller", s.Metacontroller)
	}
	return command("kubectl -n %s rollout restart %s/%s", s.Metacontroller, strings.ToLower(w.Kind), w.Metadata.Name)
}
