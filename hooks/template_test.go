package hooks

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// field is one that a spec may leave out.
type field struct {
	path string // "options.autoCompaction.retention"
	kind reflect.Type
	// fallback is its default in the CRD, as JSON; empty for none.
	fallback string
}

// optionalFields are all of EtcdClusterSpec, by its types; those within lists are not among them.
func optionalFields(t *testing.T) []field {
	raw, err := os.ReadFile("../manifests/crds/etcd.quorate.dev_etcdclusters.yaml")
	require.NoError(t, err)
	var crd map[string]any
	require.NoError(t, yaml.Unmarshal(raw, &crd))
	version := at(crd, "spec", "versions").([]any)[0].(map[string]any)
	return fieldsOf(t, reflect.TypeFor[v1alpha1.EtcdClusterSpec](), "", at(version, "schema", "openAPIV3Schema", "properties", "spec").(map[string]any))
}

// begun are the fields with fields of their own that must be said, and in these tests are, or are false or empty.
var begun = map[string]bool{"auth": true, "storage.hostPath": true}

func fieldsOf(t *testing.T, kind reflect.Type, path string, schema map[string]any) []field {
	var list []field
	for i := range kind.NumField() {
		f := kind.Field(i)
		name, tags, _ := strings.Cut(f.Tag.Get("json"), ",")
		within, known := at(schema, "properties", name).(map[string]any)
		require.True(t, known, "the CRD does not know %s%s", path, name)
		if strings.HasPrefix(tags, "omit") {
			fallback := ""
			if said := within["default"]; said != nil {
				raw, err := json.Marshal(said)
				require.NoError(t, err)
				fallback = string(raw)
			}
			list = append(list, field{path + name, f.Type, fallback})
		}
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		ours := inner.Kind() == reflect.Struct && strings.HasSuffix(inner.PkgPath(), "/v1alpha1") && within["properties"] != nil
		if ours && (within["required"] == nil || begun[path+name]) {
			list = append(list, fieldsOf(t, inner, path+name+".", within)...)
		}
	}
	return list
}

func at(m map[string]any, path ...string) any {
	var value any = m
	for _, key := range path {
		within, is := value.(map[string]any)
		if !is {
			return nil
		}
		value = within[key]
	}
	return value
}

// saying is the observation with a field of its spec set to what is said, as JSON. It is as the API server would store it: without anything
// that the types don't have.
func saying(t *testing.T, o Observation, path, said string) Observation {
	t.Helper()
	raw, err := json.Marshal(o.Cluster.Spec)
	require.NoError(t, err)
	var spec map[string]any
	require.NoError(t, json.Unmarshal(raw, &spec))
	within, keys := spec, strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		if within[key] == nil {
			within[key] = map[string]any{}
		}
		within = within[key].(map[string]any)
	}
	var value any
	require.NoError(t, json.Unmarshal([]byte(said), &value))
	within[keys[len(keys)-1]] = value
	raw, err = json.Marshal(spec)
	require.NoError(t, err)
	c := o.Cluster.DeepCopy()
	c.Spec = v1alpha1.EtcdClusterSpec{}
	require.NoError(t, json.Unmarshal(raw, &c.Spec), "%s: %s", path, said)
	o.Cluster = c
	return o
}

// resting is a cluster at rest, on each medium.
func resting(t *testing.T) map[v1alpha1.Medium]Observation {
	all := map[v1alpha1.Medium]Observation{v1alpha1.Persistent: onVolumes(), v1alpha1.HostPath: serveOn("a", "b", "c", "d"), v1alpha1.Memory: inMemory()}
	for medium, o := range all {
		require.Equal(t, "Converged", Decide(o).Because.Rule, "%s: %s", medium, Decide(o).Because.Message)
	}
	return all
}

// inMemory is a cluster of three on Memory that serves.
func inMemory() Observation {
	o := fresh(3)
	o.Cluster.Spec.Storage = v1alpha1.StorageSpec{Medium: v1alpha1.Memory, Size: *quantity("1Gi")}
	observeRecord(&o, 3)
	o.Etcd = &Membership{ClusterID: 0xc1, Leader: 1}
	for i := range 3 {
		addMember(&o, i, false)
	}
	clear(o.Children.Claims)
	o.Children.ConfigMaps["demo-epoch-1"].Annotations[AnnotationStartsOn] = "demo-0:uid-pod-0,demo-1:uid-pod-1,demo-2:uid-pod-2"
	observe(&o, Decide(o))
	return o
}

// hasNoEffect fails when a spec renews a member, or changes what a member stands on.
func hasNoEffect(t *testing.T, before, after Observation, what string) {
	t.Helper()
	was, is := Decide(before), Decide(after)
	v := newView(after)
	for _, m := range v.members {
		if r := v.renewal(m); r != nil {
			t.Errorf("%s: %s is renewed: %s", what, m.name, r.reason)
		}
	}
	assert.Nil(t, is.Step, what)
	assert.Equal(t, was.Children.Claims, is.Children.Claims, "%s: the claims", what)
	assert.Equal(t, recordsOf(was), recordsOf(is), "%s: the record", what)
	assert.Equal(t, specsOf(was), specsOf(is), "%s: the pods", what)
	assert.NoError(t, Verify(after, is), what)
}

func recordsOf(d Decision) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, c := range d.Children.ConfigMaps {
		all[c.Name] = c.Annotations
	}
	return all
}

func specsOf(d Decision) map[string]corev1.PodSpec {
	all := map[string]corev1.PodSpec{}
	for _, p := range d.Children.Pods {
		all[p.Name] = p.Spec
	}
	return all
}

// emptyMeans are the fields where to say nothing is to say something.
var emptyMeans = map[string]string{
	"affinity":                     "that members need not be on different nodes",
	"storage.storageClassName":     "a volume of no class, instead of one of the default class",
	"storage.wal":                  "a volume for the write-ahead log",
	"storage.wal.size":             "the same",
	"storage.wal.storageClassName": "the same",
	"storage.hostPath":             "nothing that a cluster on another medium could follow",
	"bootstrap":                    "nothing once there is a cluster",
}

// defaultsSaid are the defaults that are no default in the CRD, but said in words; all ways to write them.
var defaultsSaid = map[string][]string{
	"upgradePolicy":                       {`"OneMinor"`},
	"image.repository":                    {`"gcr.io/etcd-development/etcd"`},
	"image":                               {`{"pullPolicy":"IfNotPresent","pullSecrets":[]}`},
	"storage.size":                        {`"1Gi"`, `"1073741824"`, `"1024Mi"`, `1073741824`},
	"storage.migration":                   {`"Never"`, `"Replace"`},
	"resources":                           {`{}`, `{"requests":{"cpu":"100m","memory":"256Mi"}}`, `{"requests":{"cpu":"0.1"}}`, `{"requests":{"memory":"268435456"},"limits":{}}`, `{"claims":[]}`},
	"affinity":                            {`{"nodeAffinity":null,"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":100,"podAffinityTerm":{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"etcd.quorate.dev/cluster":"demo"}}}}]}}`},
	"topologySpreadConstraints":           {`[{"maxSkew":1,"minDomains":1,"nodeAffinityPolicy":"Honor","nodeTaintsPolicy":"Ignore","topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"ScheduleAnyway"}]`},
	"options.quotaBackendBytes":           {`805306368`},
	"options.snapshotCount":               {`10000`},
	"options.maxRequestBytes":             {`1572864`},
	"options.maxTxnOps":                   {`128`},
	"options.autoCompaction.retention":    {`"1h"`, `"60m"`, `"3600s"`, `"0h60m"`},
	"options":                             {`{"heartbeatInterval":100,"electionTimeout":1000,"logLevel":"info","autoCompaction":{"mode":"Periodic"}}`},
	"auth":                                {`{"enabled":false,"token":"JWT"}`},
	"auth.token":                          {`"JWT"`},
	"deletionPolicy":                      {`"Delete"`},
	"recovery.quorumLoss":                 {`"Manual"`},
	"memberReplacement.policy":            {`"Automatic"`},
	"maintenance.defragmentation.minFree": {`"100Mi"`, `"104857600"`},
	"tls.auto":                            {`{"leafDuration":"2160h","caDuration":"87600h"}`, `{"leafDuration":"129600m"}`},
	"tls.auto.leafDuration":               {`"2160h"`, `"7776000s"`},
	"tls":                                 {`{"mode":"Auto","minVersion":"TLS1.2","cipherSuites":[],"extraSANs":[]}`},
	"networkPolicy":                       {`{"disabled":false}`},
	"tolerations":                         {`null`},
}

// TestSayingADefaultChangesNothing: a field that is empty, or says what it says by itself, restarts and replaces no member.
func TestSayingADefaultChangesNothing(t *testing.T) {
	fields := optionalFields(t)
	for medium, o := range resting(t) {
		for _, f := range fields {
			said := slices.Clone(defaultsSaid[f.path])
			if f.fallback != "" {
				said = append(said, f.fallback)
			}
			if _, means := emptyMeans[f.path]; !means {
				said = append(said, emptyOf(f.kind)...)
			}
			for _, value := range said {
				if notOn(medium, f.path) {
					continue
				}
				hasNoEffect(t, o, saying(t, o, f.path, value), string(medium)+": "+f.path+": "+value)
			}
		}
	}
}

// notOn reports whether the field is none of the medium's.
func notOn(medium v1alpha1.Medium, path string) bool {
	switch {
	case path == "storage", path == "storage.medium", path == "replicas":
		return medium != v1alpha1.Persistent
	case strings.HasPrefix(path, "storage.wal"), path == "storage.storageClassName", path == "storage.migration":
		return medium != v1alpha1.Persistent
	case strings.HasPrefix(path, "storage.hostPath"):
		return medium != v1alpha1.HostPath
	}
	return false
}

// emptyOf are the ways to say nothing in a field of this type, other than to leave it out.
func emptyOf(kind reflect.Type) []string {
	switch kind.Kind() {
	case reflect.Slice:
		return []string{"[]"}
	case reflect.Map, reflect.Struct:
		if json.Unmarshal([]byte("{}"), reflect.New(kind).Interface()) != nil {
			return nil // a quantity, or a time
		}
		return []string{"{}"}
	case reflect.Pointer:
		return emptyOf(kind.Elem())
	}
	return nil
}

// others are values that fields don't have by default, for those where any value of their type will not do.
var others = map[string]string{
	"replicas": "4", "storage.medium": "", "tls.mode": "", // can't be changed
	"additionalMetadata.labels": `{"a":"b"}`, "additionalMetadata.annotations": `{"a":"b"}`, "tls.extraSANs": `["a.example"]`, "auth.roles": `[{"name":"a"}]`, "auth.users": `[]`,
	"networkPolicy.clients": `{}`, "networkPolicy.metrics": `{}`, "memberReplacement.policy": `"Manual"`, "maintenance.defragmentation.schedule": `"0 3 * * *"`,
	"storage.migration": `"Replace"`, "deletionPolicy": `"Retain"`, "recovery.quorumLoss": `"FromSurvivor"`,
	"bootstrap.snapshot.url": `"s3://bucket/folder"`, "bootstrap.snapshot.store": `{"url":"s3://bucket/folder"}`,
	"upgradePolicy": `"Step"`, "image.repository": `"quay.io/coreos/etcd"`, "image.pullPolicy": `"Always"`, "image.pullSecrets": `[{"name":"pull"}]`,
	"resources": `{"limits":{"memory":"2Gi"}}`, "affinity": `{}`, "nodeSelector": `{"disk":"fast"}`, "tolerations": `[{"operator":"Exists"}]`,
	"topologySpreadConstraints": `[{"maxSkew":2,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"ScheduleAnyway"}]`,
	"options.quotaBackendBytes": "268435456", "options.heartbeatInterval": "50", "options.electionTimeout": "5000", "options.logLevel": `"warn"`,
	"options.autoCompaction.mode": `"Off"`, "options.autoCompaction.retention": `"2h"`, "tls.minVersion": `"TLS1.3"`, "tls.cipherSuites": `["TLS_A"]`, "auth.token": `"Simple"`,
}

// restarts are the fields that members are restarted for, or succeeded: all others must not be.
var restarts = []string{
	"image.repository", "image.pullPolicy", "image.pullSecrets", "resources", "affinity", "nodeSelector", "tolerations", "topologySpreadConstraints", "priorityClassName",
	"options.quotaBackendBytes", "options.snapshotCount", "options.heartbeatInterval", "options.electionTimeout", "options.maxRequestBytes", "options.maxTxnOps", "options.logLevel",
	"options.autoCompaction.mode", "options.autoCompaction.retention", "tls.allowPlaintextClients", "tls.minVersion", "tls.cipherSuites", "auth.token",
}

// TestPodsAreMadeFromTheirTemplate: a field of which something reaches a pod that is made now is one that members which run are renewed for, and
// no other is.
func TestPodsAreMadeFromTheirTemplate(t *testing.T) {
	for medium, o := range resting(t) {
		for _, f := range optionalFields(t) {
			value := otherThan(t, f)
			if value == "" || notOn(medium, f.path) {
				continue
			}
			what := string(medium) + ": " + f.path + ": " + value
			after := saying(t, o, f.path, value)
			require.NoError(t, validate(&after.Cluster.Spec, after.Settings), "%s: say another value in others", what)
			was, is := newView(o), newView(after)
			made, renewed := !assert.ObjectsAreEqual(was.pod("demo-1", StartResume, nil).Spec, is.pod("demo-1", StartResume, nil).Spec), is.renewal(is.find("demo-1"))
			assert.Equal(t, made, renewed != nil, "%s: a pod that is made now is another one, and the member is renewed", what)
			grows := f.path == "storage.size" && medium != v1alpha1.Persistent // else its volume grows first
			assert.Equal(t, slices.Contains(restarts, f.path) || grows, renewed != nil, what)
		}
	}
}

// otherThan is a value that the field does not have by default; empty where it is one of several fields, which are tried one by one.
func otherThan(t *testing.T, f field) string {
	t.Helper()
	kind := f.kind
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if said, known := others[f.path]; known {
		return said
	}
	for _, generic := range []string{"true", "777777", `"77h"`, `"3Gi"`, `"other"`} {
		if json.Unmarshal([]byte(generic), reflect.New(kind).Interface()) == nil {
			return generic
		}
	}
	require.True(t, kind.Kind() == reflect.Struct && strings.HasSuffix(kind.PkgPath(), "/v1alpha1"), "%s: say another value in others", f.path)
	return ""
}

// TestEachReleaseHasItsOwnDefaults: etcd 3.5 has another default for snapshotCount than later releases.
func TestEachReleaseHasItsOwnDefaults(t *testing.T) {
	for version, meant := range map[string]int64{"3.5.35": 100_000, "3.6.16": 10_000, "3.7.3": 10_000} {
		unsaid := fresh(3).Cluster
		for _, count := range []int64{10_000, 100_000} {
			said := unsaid.DeepCopy()
			said.Spec.Options.SnapshotCount = &count
			assert.Equal(t, count == meant, templateOf(said, version).hash() == templateOf(unsaid, version).hash(), "%s: %d", version, count)
		}
	}
	o := serve(3)
	for _, pod := range o.Children.Pods { // made for 3.5, by a spec that says nothing
		pod.Annotations[AnnotationImage], pod.Annotations[AnnotationTemplate] = "gcr.io/etcd-development/etcd:v3.5.35", templateOf(o.Cluster, "3.5.35").hash()
	}
	v := newView(o)
	assert.False(t, v.agedTemplate(v.members[0]), "its template is judged by the version that it was made for")
	o.Cluster.Spec.Options.SnapshotCount = new(int64(10_000))
	v = newView(o)
	assert.True(t, v.agedTemplate(v.members[0]))
}

// TestQuantitiesAreWrittenInOneWay: whatever means the same amount is the same template.
func TestQuantitiesAreWrittenInOneWay(t *testing.T) {
	for want, all := range map[string][]string{
		"1Gi": {"1073741824", "1024Mi", "1048576Ki", "1Gi"}, "1G": {"1000M", "1e9", "1000000000"}, "500m": {"0.5", "500000u", "500m"}, "2": {"2", "2000m", "2.0"}, "0": {"0", "0Gi"},
		"1500u": {"1.5m", "0.0015"}, "512": {"0.5Ki", "512"},
	} {
		for _, q := range all {
			is := canonical(*quantity(q))
			assert.Equal(t, want, is.String(), q)
		}
	}
}

// TestOtherSecretsAreMountedByOtherPods: but for Quorate's own, which no pod has.
func TestOtherSecretsAreMountedByOtherPods(t *testing.T) {
	c := fresh(3).Cluster
	c.Spec.TLS = v1alpha1.TLSSpec{Mode: v1alpha1.TLSSecrets, Secrets: &v1alpha1.SecretsTLS{Server: "server", Peer: "peer", Operator: "operator"}}
	before := templateOf(c, "3.6.16").hash()
	c.Spec.TLS.Secrets.Operator = "other"
	assert.Equal(t, before, templateOf(c, "3.6.16").hash())
	c.Spec.TLS.Secrets.Peer = "other"
	assert.NotEqual(t, before, templateOf(c, "3.6.16").hash())
}
