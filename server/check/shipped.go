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
	kinds       []kind
	controllers []controller
	rights      []policyRule
	policies    []string // kind/name
	image       string
	// certManager is the right that the component for cert-manager adds.
	certManager []policyRule
}

// shipped reads the manifests that are part of this program; that they can be read is tested, so anything else is a panic.
var shipped = sync.OnceValue(func() *wanted {
	w := &wanted{}
	for _, folder := range manifests.Folders {
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
	slices.SortFunc(w.controllers, func(a, b controller) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
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
		must(take(raw, func(k kind) { w.kinds = append(w.kinds, k) }))
	case "CompositeController":
		must(take(raw, func(c controller) { w.controllers = append(w.controllers, c) }))
	case "ClusterRole":
		if head.Metadata.Name == "quorate-metacontroller" {
			must(take(raw, func(r role) { w.rights = r.Rules }))
		}
	case "Deployment":
		must(take(raw, func(d workload) { w.image = containerOf(&d).Image }))
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		w.policies = append(w.policies, head.Kind+"/"+head.Metadata.Name)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func shippedKinds() []kind { return shipped().kinds }

// shippedRights are what Metacontroller's service account needs.
func shippedRights(certificates bool) []policyRule {
	if certificates {
		return slices.Concat(shipped().rights, shipped().certManager)
	}
	return shipped().rights
}

// certificates is the kind of cert-manager's that the component for it names.
const certificates = "certificates.cert-manager.io"
