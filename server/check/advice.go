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
	if s.own() {
		flags += " --with-metacontroller"
	} else if v, known := s.metacontrollerVersion(); known {
		flags += fmt.Sprintf(" --metacontroller=%d.%d", v.major, v.minor)
	}
	if s.Namespace != "quorate-system" {
		flags += " --namespace=" + s.Namespace
	}
	if !s.own() && s.Metacontroller != "metacontroller" {
		flags += " --metacontroller-namespace=" + s.Metacontroller
	}
	if s.namesCertificates() {
		flags += " --cert-manager"
	}
	return command("quorate install%s --apply", flags)
}

// installOwn is what installs Quorate with a Metacontroller of its own.
func (s *Seen) installOwn() string {
	if s.Namespace != "quorate-system" {
		return command("quorate install --with-metacontroller --namespace=%s --apply", s.Namespace)
	}
	return command("quorate install --with-metacontroller --apply")
}

// own reports whether Metacontroller is that of this Quorate.
func (s *Seen) own() bool { return s.Metacontroller == s.Namespace }

// restart is the command that makes Metacontroller start anew.
func (s *Seen) restart() string {
	w := s.metacontroller()
	if w == nil {
		return command("kubectl -n %s rollout restart statefulset/metacontroller", s.Metacontroller)
	}
	return command("kubectl -n %s rollout restart %s/%s", s.Metacontroller, strings.ToLower(w.Kind), w.Metadata.Name)
}
