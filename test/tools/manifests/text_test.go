package manifests

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

var kinds = []string{"EtcdCluster", "EtcdSnapshot", "EtcdSnapshotSchedule", "EtcdOperation", "EtcdMirror"}

// TestStores: a store is one of four, and what it says can be neither a variable, a parameter more, nor another place.
func TestStores(t *testing.T) {
	const artifact = `{version: 3.6.16, bootstrap: {snapshot: {artifact: %s, store: {s3: {bucket: b}}}}}`
	fields := []struct{ kind, spec string }{
		{"EtcdSnapshot", `{clusterRef: {name: demo}, store: %s}`},
		{"EtcdSnapshotSchedule", `{schedule: "0 * * * *", template: {spec: {clusterRef: {name: demo}, store: %s}}}`},
		{"EtcdCluster", `{version: 3.6.16, bootstrap: {snapshot: {artifact: x.db, store: %s}}}`},
		{"EtcdOperation", `{clusterRef: {name: demo}, type: Restore, restore: {snapshot: {artifact: x.db, store: %s}}}`},
	}
	judges := map[string]kind{}
	for _, name := range kinds {
		judges[name] = kindOf(t, name)
	}
	admitted := func(kind, spec, value string) string {
		return judges[kind].refusal(object(t, kind, fmt.Sprintf(spec, value)), nil)
	}
	paths := struct{ good, bad []string }{
		good: []string{"etcd", "a/b/c", "a/b=c/.d/x~1", "team:shop,prod/x", "a.b..c/..d/e.", ":x,", "x.json/y"},
		bad: []string{"/", "/a", "a/", "a//b", "..", "a/../b", "./x", "a../x", "x..", "%2e%2e/x", "x#y", "x?y=z",
			"$(tls.key)", "$", "a b", "a\nb", "x;y", "x&region=a", "a\\b"},
	}
	good := []string{`{s3: {bucket: backups}}`, `{s3: {bucket: my-backups.example.com, region: eu-west-1}}`,
		`{s3: {bucket: b, endpoint: "https://minio.example:9000", forcePathStyle: true}}`,
		`{s3: {bucket: b, endpoint: "http://[::1]:9000/s3/", region: any, checksums: WhenRequired}}`,
		`{s3: {bucket: b, serverSideEncryption: "aws:kms", kmsKeyID: "arn:aws:kms:eu-west-1:111122223333:key/1234abcd"}}`,
		`{s3: {bucket: b, objectLock: {mode: Governance, retainFor: 720h}}}`,
		`{s3: {bucket: b, endpoint: "https://s3-fips.us-gov-west-1.amazonaws.com", credentialsSecretRef: {name: keys}}, caSecretRef: {name: ca}}`,
		`{gcs: {bucket: b, credentialsSecretRef: {name: keys, key: k.json}}}`,
		`{azure: {container: b, storageAccount: shop, cloud: USGovernment, credentialsSecretRef: {name: keys}}}`,
		`{claim: {name: backups}}`}
	bad := []string{`{}`, `{s3: {}}`, `{s3: {bucket: b}, gcs: {bucket: b}}`, `{claim: {path: x}}`,
		`{claim: {name: "a/b"}}`, `{claim: {name: backups}, caSecretRef: {name: ca}}`,
		`{s3: {bucket: ""}}`, `{s3: {bucket: "-b"}}`, `{s3: {bucket: "b:80"}}`, `{s3: {bucket: "me:secret@bucket"}}`,
		`{s3: {bucket: "b/x"}}`, `{s3: {bucket: "b?x"}}`, `{s3: {bucket: "$(KEY)"}}`, `{azure: {container: "$web"}}`,
		`{s3: {bucket: b, region: "a/b"}}`, `{s3: {bucket: b, region: "a&fips=true"}}`,
		`{s3: {bucket: b, endpoint: minio}}`,
		`{s3: {bucket: b, endpoint: "https://me:secret@minio"}}`, `{s3: {bucket: b, endpoint: "https://minio/?x=y"}}`,
		`{s3: {bucket: b, endpoint: "file:///x"}}`, `{s3: {bucket: b, endpoint: "https://$(KEY)"}}`,
		`{s3: {bucket: b, endpoint: "https://minio&anonymous=true"}}`, `{s3: {bucket: b, kmsKeyID: "x&y"}}`,
		`{s3: {bucket: b, kmsKeyID: k}}`, `{s3: {bucket: b, kmsKeyID: k, serverSideEncryption: AES256}}`,
		`{s3: {bucket: b, objectLock: {mode: Compliance}}}`, `{s3: {bucket: b, objectLock: {mode: None, retainFor: 1h}}}`,
		`{s3: {bucket: b, objectLock: {mode: Governance, retainFor: 1s}}}`,
		`{s3: {bucket: b, serverSideEncryption: none}}`, `{s3: {bucket: b, credentialsSecretRef: {name: "a/b"}}}`,
		`{s3: {bucket: b, credentialsSecretRef: {}}}`, `{azure: {container: b, cloud: evil.example}}`,
		`{azure: {container: b, storageAccount: evil.example/x}}`, `{azure: {container: b, storageAccount: Shop}}`,
		`{s3: {bucket: b}, caSecretRef: {name: ca, key: "$(x)"}}`}
	for _, kind := range []string{"s3: {bucket: b, prefix", "gcs: {bucket: b, prefix", "azure: {container: b, prefix",
		"claim: {name: b, path"} {
		for _, p := range paths.good {
			good = append(good, fmt.Sprintf("{%s: %q}}", kind, p))
		}
		for _, p := range paths.bad {
			bad = append(bad, fmt.Sprintf("{%s: %q}}", kind, p))
		}
	}
	for _, field := range fields {
		for _, store := range good {
			if why := admitted(field.kind, field.spec, store); why != "" {
				t.Errorf("%s: %s is refused: %s", field.spec, store, why)
			}
		}
		for _, store := range bad {
			if admitted(field.kind, field.spec, store) == "" {
				t.Errorf("%s: %s is admitted", field.spec, store)
			}
		}
	}
	for _, p := range append(paths.good, "default/demo/first-5a2f7c1e.db.zst") {
		if why := admitted("EtcdCluster", artifact, fmt.Sprintf("%q", p)); why != "" {
			t.Errorf("artifact %s is refused: %s", p, why)
		}
	}
	for _, p := range append(paths.bad, "", "a/x.db.json") {
		if admitted("EtcdCluster", artifact, fmt.Sprintf("%q", p)) == "" {
			t.Errorf("artifact %s is admitted", p)
		}
	}
}

// free are the texts in which a spec may say anything, and why.
var free = map[string]string{
	// Kubernetes' own types, which the API server judges when the pod is made. None of them is an
	// argument or a variable of a container.
	"affinity": "", "nodeSelector": "", "tolerations": "", "topologySpreadConstraints": "", "resources": "",
	"size":                       "",
	"networkPolicy.clients.from": "", "networkPolicy.metrics.from": "", "image.pullSecrets.name": "",
	// Labels and annotations of what is made.
	"additionalMetadata": "", "clientService.annotations": "",
	"memberService.annotations": "",
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
			if name := among(strings.TrimPrefix(path, "template.spec.")); name != "" {
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
