package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

var kinds = []string{"EtcdCluster", "EtcdSnapshot", "EtcdSnapshotSchedule"}

// object of a kind with this spec, in YAML's flow style.
func object(t *testing.T, kind, spec string) map[string]any {
	t.Helper()
	return parse(t, fmt.Sprintf(`{apiVersion: etcd.quorate.dev/v1alpha1, kind: %s, metadata: {name: demo, namespace: default}, spec: %s}`, kind, spec))
}

// TestStoreURLs: the rules of the API take the URLs that stores.ParseURL takes, wherever a URL
// of a store is.
func TestStoreURLs(t *testing.T) {
	var urls struct{ Good, Folders, Bad []string }
	raw, err := os.ReadFile("../../../hooks/stores/testdata/urls.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &urls); err != nil {
		t.Fatal(err)
	}
	for _, field := range []struct{ kind, spec string }{
		{"EtcdSnapshot", `{cluster: demo, store: {url: %s%s}}`},
		{"EtcdSnapshotSchedule", `{schedule: "0 * * * *", template: {cluster: demo, store: {url: %s%s}}}`},
		{"EtcdCluster", `{version: 3.6.16, bootstrap: {snapshot: {url: "s3://b/x.db", store: {url: %s%s}}}}`},
		{"EtcdCluster", `{version: 3.6.16, restore: {id: a, snapshot: {url: %s, store: {url: "s3://b"}}}}`},
	} {
		k := kindOf(t, field.kind)
		admitted := func(url string) string {
			quoted, err := json.Marshal(url)
			if err != nil {
				t.Fatal(err)
			}
			claim := ""
			if strings.HasPrefix(url, "file://") {
				claim = ", claimName: backups"
			}
			spec := fmt.Sprintf(field.spec, quoted, claim)
			if before, _, extra := strings.Cut(spec, "%!(EXTRA"); extra {
				spec = before
			}
			if errs := k.admit(object(t, field.kind, spec), nil); len(errs) > 0 {
				return errs.ToAggregate().Error()
			}
			return ""
		}
		good, bad := slices.Concat(urls.Good, urls.Folders), urls.Bad
		if strings.Contains(field.spec, "snapshot: {url: %s") {
			good, bad = urls.Good, slices.Concat(urls.Folders, urls.Bad)
		}
		for _, url := range good {
			if why := admitted(url); why != "" {
				t.Errorf("%s: %s is refused: %s", field.spec, url, why)
			}
		}
		for _, url := range bad {
			if admitted(url) == "" {
				t.Errorf("%s: %q is admitted", field.spec, url)
			}
		}
	}
}

// free are the texts in which a spec may say anything, and why.
var free = map[string]string{
	// Kubernetes' own types, which the API server judges when the pod is made. None of them is an
	// argument or a variable of a container.
	"affinity": "", "nodeSelector": "", "tolerations": "", "topologySpreadConstraints": "", "resources": "",
	"scratchSize": "", "size": "",
	"networkPolicy.clients": "", "networkPolicy.metrics": "", "image.pullSecrets.name": "",
	// Labels and annotations of what is made.
	"additionalMetadata": "",
	// Keys in etcd, and what is declared of them. They go to etcd alone, as they are.
	"auth.roles.permissions.key": "", "auth.roles.permissions.prefix": "", "auth.roles.permissions.range.from": "",
	"auth.roles.permissions.range.to": "",
	// Names of roles that auth.roles declares, which a rule compares.
	"auth.users.roles": "",
}

// TestEveryTextHasAForm: a text of a spec is one of some words, or its pattern holds for all of it
// and lets no $ through, which a kubelet could take for the name of a variable; or it is among
// those that may say anything.
func TestEveryTextHasAForm(t *testing.T) {
	used := map[string]bool{}
	for _, kind := range kinds {
		spec := kindOf(t, kind).structural.Properties["spec"]
		for path, text := range texts(&spec, "") {
			path = strings.TrimPrefix(path, ".")
			if name := among(strings.TrimPrefix(path, "template.")); name != "" {
				used[name] = true
				continue
			}
			if why := form(text); why != "" {
				t.Errorf("%s spec.%s %s", kind, path, why)
			}
		}
	}
	for name := range free {
		if !used[name] {
			t.Errorf("no spec has %s any more", name)
		}
	}
}

// among is the name in free that a field has, or a part of one; empty for none.
func among(path string) string {
	for name := range free {
		if path == name || strings.HasPrefix(path, name+".") || strings.HasSuffix(path, "."+name) ||
			strings.Contains(path, "."+name+".") {
			return name
		}
	}
	return ""
}

// texts are all fields of a schema that hold text, by their paths.
func texts(s *schema.Structural, path string) map[string]*schema.Structural {
	all := map[string]*schema.Structural{}
	if s.Type == "string" || s.XIntOrString {
		all[path] = s
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		maps.Copy(all, texts(&field, path+"."+name))
	}
	if s.Items != nil {
		maps.Copy(all, texts(s.Items, path))
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		maps.Copy(all, texts(s.AdditionalProperties.Structural, path))
	}
	return all
}

var matched = regexp.MustCompile(`matches\('([^']*)'\)`)

// form says what is wrong with the form that a text must have; empty for nothing.
func form(s *schema.Structural) string {
	if s.ValueValidation != nil && (len(s.ValueValidation.Enum) > 0 || s.ValueValidation.Format == "duration") {
		return ""
	}
	var patterns []string
	if s.ValueValidation != nil && s.ValueValidation.Pattern != "" {
		patterns = append(patterns, s.ValueValidation.Pattern)
	}
	for _, rule := range s.XValidations {
		if strings.HasPrefix(rule.Rule, "self.matches(") {
			patterns = append(patterns, matched.FindStringSubmatch(rule.Rule)[1])
		}
		if strings.HasPrefix(rule.Rule, "duration(self)") {
			return ""
		}
	}
	if len(patterns) == 0 {
		return "may say anything"
	}
	for _, pattern := range patterns {
		if !strings.HasPrefix(pattern, "^") || !strings.HasSuffix(pattern, "$") ||
			strings.Contains(strings.TrimSuffix(pattern, "$"), "$") {
			return "has a pattern that does not hold for all of it: " + pattern
		}
	}
	return ""
}

// TestRefusedTexts: what could be taken for a variable, or lead elsewhere, does not come into an
// object.
func TestRefusedTexts(t *testing.T) {
	for _, c := range []struct{ kind, spec, want string }{
		{"EtcdSnapshot", `{cluster: "../demo", store: {url: "s3://b"}}`, "spec.cluster"},
		{"EtcdSnapshot", `{cluster: "$(KEY)", store: {url: "s3://b"}}`, "spec.cluster"},
		{"EtcdSnapshot", `{cluster: "a.b", store: {url: "s3://b"}}`, "spec.cluster"},
		{"EtcdSnapshot", `{cluster: demo, store: {url: "s3://b/$(tls.key)", credentialsSecret: demo-ca}}`,
			"the URL of a store must look like s3://bucket/folder"},
		{"EtcdSnapshot", `{cluster: demo, store: {url: "azblob://b?domain=evil.example", credentialsSecret: keys}}`,
			"one of Microsoft's clouds"},
		{"EtcdSnapshot", `{cluster: demo, store: {url: "s3://b", credentialsSecret: "a/b"}}`,
			"spec.store.credentialsSecret"},
		{"EtcdSnapshot", `{cluster: demo, store: {url: "s3://b"}, job: {serviceAccountName: "$(x)"}}`,
			"spec.job.serviceAccountName"},
		{"EtcdSnapshot", `{cluster: demo, store: {url: "s3://b"}, encryption: {recipients: ["age1x$(KEY)"]}}`,
			"spec.encryption.recipients[0]"},
		{"EtcdSnapshotSchedule", `{schedule: "0 * * * *", timeZone: "../x$", template: {cluster: demo, store: {url: "s3://b"}}}`, "spec.timeZone"},
		{"EtcdSnapshotSchedule", `{schedule: "0 * * * *", template: {cluster: "x/y", store: {url: "s3://b"}}}`,
			"spec.template.cluster"},
		{"EtcdCluster", `{version: 3.6.16, image: {repository: "r.example/$(KEY)"}}`, "spec.image.repository"},
		{"EtcdCluster", `{version: 3.6.16, image: {repository: "r.example/etcd:v3"}}`, "spec.image.repository"},
		{"EtcdCluster", `{version: 3.6.16, image: {repository: "r.example/etcd@sha256:0"}}`, "spec.image.repository"},
		{"EtcdCluster", `{version: 3.6.16, image: {repository: "r.example/../etcd"}}`, "spec.image.repository"},
		{"EtcdCluster", `{version: 3.6.16, bootstrap: {existing: {endpoints: ["http://me:secret@etcd:2379"]}}}`,
			"spec.bootstrap.existing.endpoints[0]"},
		{"EtcdCluster", `{version: 3.6.16, bootstrap: {existing: {endpoints: ["http://$(KEY):2379"]}}}`,
			"spec.bootstrap.existing.endpoints[0]"},
		{"EtcdCluster", `{version: 3.6.16, tls: {extraSANs: ["$(KEY)"]}}`, "spec.tls.extraSANs[0]"},
	} {
		errs := kindOf(t, c.kind).admit(object(t, c.kind, c.spec), nil)
		if len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), c.want) {
			t.Errorf("%s %s: %v, want: %s", c.kind, c.spec, errs.ToAggregate(), c.want)
		}
	}
	for _, spec := range []string{
		`{version: 3.6.16, image: {repository: "localhost:5000/etcd-development/etcd"}}`,
		`{version: 3.6.16, image: {repository: etcd}}`,
		`{version: 3.6.16, image: {repository: Registry.example/a_b/c-d}}`,
		`{version: 3.6.16, tls: {extraSANs: ["*.example.com", "10.0.0.1", "fd00::1"]}}`,
		`{version: 3.6.16, bootstrap: {existing: {endpoints: ["http://etcd-0.etcd:2379", "http://[fd00::1]:2379"]}}}`,
		`{version: 3.6.16, priorityClassName: "", storage: {storageClassName: ""}}`,
	} {
		if errs := kindOf(t, "EtcdCluster").admit(object(t, "EtcdCluster", spec), nil); len(errs) > 0 {
			t.Errorf("%s: %v", spec, errs.ToAggregate())
		}
	}
}
