package hooks

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
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
	existing := at(version, "schema", "openAPIV3Schema", "properties", "spec").(map[string]any)
	return fieldsOf(t, reflect.TypeFor[v1beta1.EtcdClusterSpec](), "", existing)
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
		ours := inner.Kind() == reflect.Struct && strings.HasSuffix(inner.PkgPath(), "/v1beta1") &&
			within["properties"] != nil
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

// saying is the observation with a field of its spec set to what is said, as JSON. It is as the API server would
// store it: without anything that the types don't have.
func saying(t *testing.T, o observation.Observation, path, said string) observation.Observation {
	t.Helper()
	raw, err := json.Marshal(o.Cluster.Spec)
	require.NoError(t, err)
	var existing map[string]any
	require.NoError(t, json.Unmarshal(raw, &existing))
	within, keys := existing, strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		if within[key] == nil {
			within[key] = map[string]any{}
		}
		within = within[key].(map[string]any)
	}
	var value any
	require.NoError(t, json.Unmarshal([]byte(said), &value))
	within[keys[len(keys)-1]] = value
	raw, err = json.Marshal(existing)
	require.NoError(t, err)
	c := o.Cluster.DeepCopy()
	c.Spec = v1beta1.EtcdClusterSpec{}
	require.NoError(t, json.Unmarshal(raw, &c.Spec), "%s: %s", path, said)
	o.Cluster = c
	return o
}

// resting is a cluster at rest, on each medium.
func resting(t *testing.T) map[v1beta1.Medium]observation.Observation {
	all := map[v1beta1.Medium]observation.Observation{
		v1beta1.Persistent: onVolumes(), v1beta1.HostPath: serveOn("a", "b", "c", "d"), v1beta1.Memory: inMemory(),
	}
	for medium, o := range all {
		o = ofDefaultSize(o)
		all[medium] = o
		require.Equal(t, "Converged", Decide(o).Reason.Rule, "%s: %s", medium, Decide(o).Reason.Message)
	}
	return all
}

// ofDefaultSize is the cluster with volumes of the size that the spec does not have to say.
func ofDefaultSize(o observation.Observation) observation.Observation {
	size := *quantity("2Gi")
	o.Cluster.Spec.Storage.Size = size
	for _, c := range o.Children.Claims {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = size
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
	}
	for name, old := range o.Children.Pods {
		pod := answer.Pod(facts.New(o), name, objects.StartResume, nil)
		pod.UID, pod.Status = old.UID, old.Status
		o.Children.Pods[name] = pod
	}
	observe(&o, Decide(o))
	return o
}

// inMemory is a cluster of three on Memory that serves.
func inMemory() observation.Observation {
	o := fresh(3)
	o.Cluster.Spec.Storage = v1beta1.StorageSpec{Medium: v1beta1.Memory, Size: *quantity("1Gi")}
	observeRecord(&o, 3)
	o.Etcd = &observation.Membership{ClusterID: 0xc1, Leader: 1}
	for i := range 3 {
		addMember(&o, i, false)
	}
	clear(o.Children.Claims)
	startsOn("uid-pod-0", "uid-pod-1", "uid-pod-2")(&o)
	observe(&o, Decide(o))
	return o
}

// hasNoEffect fails when a spec renews a member, or changes what a member stands on.
func hasNoEffect(t *testing.T, before, after observation.Observation, what string) {
	t.Helper()
	was, is := Decide(before), Decide(after)
	f := facts.New(after)
	for _, m := range f.Members {
		if r := f.UpdateOf(m); r != nil {
			t.Errorf("%s: %s is renewed: %s", what, m.PodName, r.Reason)
		}
	}
	assert.Nil(t, is.Step, what)
	assert.Equal(t, was.Children.Claims, is.Children.Claims, "%s: the claims", what)
	assert.Equal(t, recordsOf(was), recordsOf(is), "%s: the record", what)
	assert.Equal(t, specsOf(was), specsOf(is), "%s: the pods", what)
	assert.NoError(t, verify(after, is), what)
}

func recordsOf(d decision.Decision) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, c := range d.Children.ConfigMaps {
		all[c.Name] = c.Annotations
	}
	return all
}

func specsOf(d decision.Decision) map[string]corev1.PodSpec {
	all := map[string]corev1.PodSpec{}
	for _, p := range d.Children.Pods {
		all[p.Name] = p.Spec
	}
	return all
}

// TestSayingADefaultChangesNothing: a field that is empty, or says what it says by itself, restarts and replaces no
// member.
func TestSayingADefaultChangesNothing(t *testing.T) {
	fields := optionalFields(t)
	named := slices.Concat(slices.Collect(maps.Keys(emptyMeans)), slices.Collect(maps.Keys(defaultsSaid)))
	for _, path := range slices.AppendSeq(named, maps.Keys(others)) {
		known := slices.ContainsFunc(fields, func(f field) bool { return f.path == path })
		assert.True(t, known, "there is no field %s", path)
	}
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
func notOn(medium v1beta1.Medium, path string) bool {
	switch {
	case path == "storage", path == "storage.medium", path == "replicas":
		return medium != v1beta1.Persistent
	case strings.HasPrefix(path, "storage.wal"), path == "storage.storageClassName", path == "storage.migration",
		path == "storage.autoGrow":
		return medium != v1beta1.Persistent
	case strings.HasPrefix(path, "storage.hostPath"):
		return medium != v1beta1.HostPath
	case path == "securityContext.idPolicy", path == "securityContext.runAsUser", path == "securityContext.runAsGroup",
		path == "securityContext.fsGroup":
		return medium == v1beta1.HostPath // whose directories have one owner
	case strings.HasPrefix(path, "hostNetwork"):
		return true // can't be changed
	case path == "bootstrap.snapshot.artifact":
		return true // needs a store, which is tried with it
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

// TestPodsAreMadeFromTheirTemplate: a field of which something reaches a pod that is made now is one that members
// which run are renewed for, and no other is.
func TestPodsAreMadeFromTheirTemplate(t *testing.T) {
	for medium, o := range resting(t) {
		for _, f := range optionalFields(t) {
			value := otherThan(t, f)
			if value == "" || notOn(medium, f.path) {
				continue
			}
			what := string(medium) + ": " + f.path + ": " + value
			after := saying(t, o, f.path, value)
			require.NoError(t, defaults.Validate(&after.Cluster.Spec, after.Settings), "%s: say another value in others",
				what)
			was, is := facts.New(o), facts.New(after)
			before, now := answer.Pod(was, "demo-1", objects.StartResume, nil).Spec,
				answer.Pod(is, "demo-1", objects.StartResume, nil).Spec
			objects.Literal(&before)
			objects.Literal(&now)
			assert.Empty(t, objects.Check(after.Settings.Images, what, &now), "the oracle lets it be made")
			made, renewed := !assert.ObjectsAreEqual(before, now), is.UpdateOf(is.Find("demo-1"))
			assert.Equal(t, made, renewed != nil, "%s: a pod that is made now is another one, and the member is "+
				"renewed", what)
			grows := f.path == "storage.size" && medium != v1beta1.Persistent // else its volume grows first
			assert.Equal(t, others[f.path].restarts || grows, renewed != nil, what)
		}
	}
}

// otherThan is a value that the field does not have by default; empty where it is one of several fields, which are
// tried one by one.
func otherThan(t *testing.T, f field) string {
	t.Helper()
	kind := f.kind
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if other, known := others[f.path]; known {
		return other.said
	}
	for _, generic := range []string{"true", "777777", `"77h"`, `"3Gi"`, `"other"`} {
		if json.Unmarshal([]byte(generic), reflect.New(kind).Interface()) == nil {
			return generic
		}
	}
	require.True(t, kind.Kind() == reflect.Struct && strings.HasSuffix(kind.PkgPath(), "/v1beta1"),
		"%s: say another value in others", f.path)
	return ""
}

// TestOtherSecretsAreMountedByOtherPods: all except Quorate's own, which no pod has.
func TestOtherSecretsAreMountedByOtherPods(t *testing.T) {
	c := fresh(3).Cluster
	named := &v1beta1.SecretsTLS{ServerSecretRef: v1beta1.SecretRef{Name: "server"},
		PeerSecretRef: v1beta1.SecretRef{Name: "peer"}, OperatorSecretRef: v1beta1.SecretRef{Name: "operator"}}
	c.Spec.TLS = v1beta1.TLSSpec{Mode: v1beta1.TLSSecrets, Secrets: named}
	before := facts.TemplateOf(c, "3.6.16").Hash()
	c.Spec.TLS.Secrets.OperatorSecretRef.Name = "other"
	assert.Equal(t, before, facts.TemplateOf(c, "3.6.16").Hash())
	c.Spec.TLS.Secrets.PeerSecretRef.Name = "other"
	assert.NotEqual(t, before, facts.TemplateOf(c, "3.6.16").Hash())
}

// What the tests of facts/templates.go write into a spec.

// emptyMeans are the fields where to say nothing is to say something.
var emptyMeans = map[string]string{
	"affinity":                     "that members need not be on different nodes",
	"storage.storageClassName":     "a volume of no class, instead of one of the default class",
	"storage.wal":                  "a volume for the write-ahead log",
	"storage.wal.size":             "the same",
	"storage.wal.storageClassName": "the same",
	"storage.hostPath":             "nothing that a cluster on another medium could follow",
	"storage.hostPath.nodes":       "none, which is refused",
	"bootstrap":                    "nothing once there is a cluster",
	"memberService":                "no domain, which is refused",
}

// defaultsSaid are the defaults that are no default in the CRD, but said in words; all ways to write them.
var defaultsSaid = map[string][]string{
	"upgradePolicy":     {`"OneMinor"`},
	"image.repository":  {`"gcr.io/etcd-development/etcd"`},
	"image.tags":        {`{"3.6.16":"v3.6.16"}`, `{"3.5.35":"3.5.35-r1"}`},
	"image":             {`{"pullPolicy":"IfNotPresent","pullSecrets":[]}`},
	"storage.size":      {`"2Gi"`, `"2147483648"`, `"2048Mi"`, `2147483648`},
	"storage.migration": {`"Never"`, `"Replace"`},
	"resources": {
		`{}`,
		`{"requests":{"cpu":"100m","memory":"256Mi"}}`,
		`{"requests":{"cpu":"0.1"}}`,
		`{"requests":{"memory":"268435456"},"limits":{}}`,
		`{"claims":[]}`,
	},
	"affinity": {
		`{"nodeAffinity":null,"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":100,"podAffinityTerm":{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"etcd.quorate.dev/cluster":"demo"}}}}]}}`,
	},
	"topologySpreadConstraints": {
		`[{"maxSkew":1,"minDomains":1,"nodeAffinityPolicy":"Honor","nodeTaintsPolicy":"Ignore","topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"ScheduleAnyway"}]`,
	},
	"options.maxRequestBytes":          {`1572864`},
	"options.autoCompaction.retention": {`"5m"`, `"300s"`, `"0h5m"`},
	"options": {
		`{"heartbeatInterval":"100ms","electionTimeout":"1s","logLevel":"info","autoCompaction":{"retention":"5m"}}`,
	},
	"auth":                                   {`{"enabled":false,"token":"JWT"}`},
	"deletionPolicy":                         {`"Retain"`},
	"recovery.quorumLoss":                    {`"Manual"`},
	"memberReplacement.policy":               {`"Automatic"`},
	"maintenance.defragmentation.minReclaim": {`"100Mi"`, `"104857600"`},
	"tls.auto": {
		`{"leafDuration":"2160h","caDuration":"87600h"}`,
		`{"leafDuration":"129600m"}`,
	},
	"tls.auto.leafDuration":      {`"2160h"`, `"7776000s"`},
	"tls":                        {`{"mode":"Auto","minVersion":"TLS1.2","cipherSuites":[],"extraSANs":[]}`},
	"networkPolicy":              {`{"mode":"Managed"}`},
	"schedulerName":              {`"default-scheduler"`},
	"serviceAccountName":         {`"default"`},
	"securityContext":            {`{"idPolicy":"Fixed","fsGroupChangePolicy":"OnRootMismatch"}`},
	"securityContext.runAsUser":  {`10001`},
	"securityContext.runAsGroup": {`10001`},
	"securityContext.fsGroup":    {`10001`},
	"tolerations":                {`null`},
}

// another is a value that a field does not have by default: one for which members are restarted, or succeeded, or not.
type another struct {
	said     string // empty for one that is not tried
	restarts bool
}

func restarts(said string) another { return another{said, true} }

func leaves(said string) another { return another{said, false} }

// others are such values, for the fields where any value of their type will not do, and for those that members are
// restarted for: for all others they must not be.
var others = map[string]another{
	"replicas":                               leaves("4"), // can't be changed
	"storage.medium":                         leaves(""),  // can't be changed
	"tls.mode":                               leaves(""),  // can't be changed
	"storage.hostPath.nodes":                 leaves(`["a","b","c","e"]`),
	"selfHosted":                             leaves(""), // needs others
	"spares":                                 leaves("1"),
	"additionalMetadata.labels":              leaves(`{"a":"b"}`),
	"additionalMetadata.annotations":         leaves(`{"a":"b"}`),
	"tls.clientCRLSecretRef":                 leaves(`{"name":"revoked"}`), // until there is a list
	"tls.extraSANs":                          leaves(`["a.example"]`),
	"auth.roles":                             leaves(`[{"name":"a"}]`),
	"auth.users":                             leaves(`[]`),
	"networkPolicy.clients":                  leaves(`{"from":[{"podSelector":{}}]}`),
	"networkPolicy.metrics":                  leaves(`{"from":[{"podSelector":{}}]}`),
	"memberReplacement.policy":               leaves(`"Manual"`),
	"maintenance.defragmentation.schedule":   leaves(`"0 3 * * *"`),
	"leadership":                             leaves(`{"avoidSlowDisks":true}`),
	"leadership.preferredZones":              leaves(`["eu-1a"]`),
	"maintenance.windows":                    leaves(`[{"schedule":"0 3 * * *","duration":"4h"}]`),
	"storage.migration":                      leaves(`"Replace"`),
	"deletionPolicy":                         leaves(`"Delete"`),
	"recovery.quorumLoss":                    leaves(`"FromSurvivor"`),
	"bootstrap.snapshot":                     leaves(`{"artifact":"x.db","store":{"s3":{"bucket":"b"}}}`),
	"bootstrap.latestSnapshot":               leaves(`{"ifNone":"Wait","store":{"s3":{"bucket":"b"}}}`),
	"upgradePolicy":                          leaves(`"Step"`),
	"securityContext.idPolicy":               restarts(`"Platform"`),
	"securityContext.fsGroupChangePolicy":    restarts(`"Always"`),
	"image.repository":                       restarts(`"quay.io/coreos/etcd"`),
	"image.tags":                             restarts(`{"3.6.16":"3.6.16-r2"}`),
	"image.pullPolicy":                       restarts(`"Always"`),
	"image.pullSecrets":                      restarts(`[{"name":"pull"}]`),
	"resources":                              restarts(`{"limits":{"memory":"2Gi"}}`),
	"affinity":                               restarts(`{}`),
	"nodeSelector":                           restarts(`{"disk":"fast"}`),
	"tolerations":                            restarts(`[{"operator":"Exists"}]`),
	"topologySpreadConstraints":              restarts(`[{"maxSkew":2,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"ScheduleAnyway"}]`),
	"options.quotaBackendBytes":              restarts("134217728"),
	"storage.size":                           leaves(`"3Gi"`),
	"storage.autoGrow":                       leaves(`{"max":"5Gi"}`),
	"storage.wal.size":                       leaves(`"3Gi"`),
	"options.heartbeatInterval":              restarts(`"50ms"`),
	"options.electionTimeout":                restarts(`"5s"`),
	"options.logLevel":                       restarts(`"warn"`),
	"memberService":                          restarts(`{"type":"LoadBalancer","domain":"etcd.example.com"}`),
	"clientService.type":                     leaves(`"NodePort"`),
	"clientService.annotations":              leaves(`{"a":"b"}`),
	"clientService.nodePort":                 leaves(""), // needs a type
	"clientService.loadBalancerClass":        leaves(""),
	"clientService.loadBalancerSourceRanges": leaves(""),
	"clientService.externalTrafficPolicy":    leaves(""),
	"clientService.trafficDistribution":      leaves(`"PreferSameZone"`),
	"clientService.internalTrafficPolicy":    leaves(`"Local"`),
	"ip":                                     leaves(`{"policy":"SingleStack"}`),
	"ip.policy":                              leaves(`"PreferDualStack"`),
	"ip.families":                            leaves(`["IPv4"]`),
	"options.extraArgs":                      restarts(`{"metrics":"extensive"}`),
	"options.autoCompaction.revisions":       restarts(`1000`),
	"options.autoCompaction.retention":       restarts(`"2h"`),
	"tls.minVersion":                         restarts(`"TLS1.3"`),
	"tls.clientAuth":                         leaves(""), // needs auth, in etcd too
	"tls.cipherSuites":                       restarts(`["TLS_A"]`),
	"priorityClassName":                      restarts(`"other"`),
	"schedulerName":                          restarts(`"other"`),
	"serviceAccountName":                     restarts(`"other"`),
	"runtimeClassName":                       restarts(`"other"`),
	"securityContext.runAsUser":              restarts(`777777`),
	"securityContext.runAsGroup":             restarts(`777777`),
	"securityContext.fsGroup":                restarts(`777777`),
	"options.maxRequestBytes":                restarts(`777777`),
	"tls.allowPlaintextClients":              restarts(`true`),
}
