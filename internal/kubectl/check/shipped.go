package check

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/manifests"
)

// wanted is what this release wants to find, as its own manifests say.
type wanted struct {
	kinds       []kind   // Quorate's
	itsKinds    []string // Metacontroller's, by name
	controllers []controller
	// rights are Metacontroller's: to carry out our answers, to work at all, and to elect a leader, in its own
	// namespace.
	rights, core, leader []policyRule
	policies             []string  // kind/name
	server, caller       *workload // Quorate's, and that of the Metacontroller that comes with it
	image                string
	etcdRepository       string
	// certManager is the right that the component for cert-manager adds.
	certManager []policyRule
}

// shipped reads the manifests that are part of this program; that they can be read is tested, so anything else is a
// panic.
var shipped = sync.OnceValue(func() *wanted {
	w := &wanted{}
	for _, folder := range []string{manifests.Kinds, manifests.Base, manifests.Metacontroller} {
		files, err := fs.Glob(manifests.Files, folder+"/*.yaml")
		must(err)
		for _, file := range files {
			text, err := fs.ReadFile(manifests.Files, file)
			must(err)
			for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
				raw, err := yaml.YAMLToJSON(document)
				must(err)
				w.take(raw)
			}
		}
	}
	slices.SortFunc(w.controllers,
		func(a, b controller) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	text, err := fs.ReadFile(manifests.Files, manifests.CertManager+"/rbac-metacontroller.yaml")
	must(err)
	var additions []struct{ Value policyRule }
	must(yaml.Unmarshal(text, &additions))
	for _, a := range additions {
		w.certManager = append(w.certManager, a.Value)
	}
	return w
})

func (w *wanted) take(raw []byte) {
	var head object
	must(json.Unmarshal(raw, &head))
	switch head.Kind {
	case "CustomResourceDefinition":
		if strings.HasSuffix(head.Metadata.Name, ".metacontroller.k8s.io") {
			w.itsKinds = append(w.itsKinds, head.Metadata.Name)
			return
		}
		must(take(raw, func(k kind) { w.kinds = append(w.kinds, k) }))
	case "CompositeController":
		must(take(raw, func(c controller) { w.controllers = append(w.controllers, c) }))
	case "ClusterRole", "Role":
		switch head.Metadata.Name {
		case forAnswers:
			must(take(raw, func(r role) { w.rights = r.Rules }))
		case forItself:
			must(take(raw, func(r role) { w.core = r.Rules }))
		case forElection:
			must(take(raw, func(r role) { w.leader = r.Rules }))
		}
	case "Deployment":
		must(take(raw, func(d workload) {
			if d.Metadata.Name == "metacontroller" {
				w.caller = &d
				return
			}
			w.server = &d
			w.image = containerOf(&d).Image
			w.etcdRepository, _ = env(containerOf(&d), "QUORATE_ETCD_REPOSITORY")
		}))
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		w.policies = append(w.policies, head.Kind+"/"+head.Metadata.Name)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// The roles of Metacontroller's service account in the manifests.
const (
	forAnswers  = "quorate-metacontroller"
	forItself   = "quorate-metacontroller-core"
	forElection = "quorate-metacontroller-leader"
)

// shippedRights are what Metacontroller's service account needs to carry out our answers.
func shippedRights(certificates bool) []policyRule {
	if certificates {
		return slices.Concat(shipped().rights, shipped().certManager)
	}
	return shipped().rights
}

// coreRights are what Metacontroller needs to work at all. Before 2.0 it looked at no kinds and no namespaces.
func coreRights(r release) []policyRule {
	if !r.before(2, 0) {
		return shipped().core
	}
	return slices.DeleteFunc(slices.Clone(shipped().core), func(p policyRule) bool {
		return slices.Contains([]string{"customresourcedefinitions", "namespaces"}, p.Resources[0])
	})
}

// certificates is the kind of cert-manager's that the component for it names.
const certificatesCRD = "certificates.cert-manager.io"
