package manifests

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// apiServer answers what helm looks up: with these objects, by path, and that there is nothing else.
func apiServer(t *testing.T, objects map[string]string) string {
	t.Helper()
	const list = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q,"resources":[%s]}`
	kind := func(name, kind string, namespaced bool) string {
		return fmt.Sprintf(`{"name":%q,"singularName":"","kind":%q,"namespaced":%t,"verbs":["get","list"]}`, name, kind,
			namespaced)
	}
	answers := map[string]string{
		"/api/v1": fmt.Sprintf(list, "v1", kind("secrets", "Secret", true)),
		"/apis/apps/v1": fmt.Sprintf(list, "apps/v1", kind("statefulsets", "StatefulSet", true)+","+
			kind("deployments", "Deployment", true)),
		"/apis/apiextensions.k8s.io/v1": fmt.Sprintf(list, "apiextensions.k8s.io/v1",
			kind("customresourcedefinitions", "CustomResourceDefinition", false)),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, known := answers[r.URL.Path]
		if object, is := objects[r.URL.Path]; is {
			text, known = object, true
		}
		w.Header().Set("Content-Type", "application/json")
		if !known {
			w.WriteHeader(http.StatusNotFound)
			text = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		}
		_, _ = w.Write([]byte(text)) // helm says when it lacks
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestChartBesideAMetacontroller: helm notices a Metacontroller that would call Quorate beside the one that the chart
// brings, and no other.
func TestChartBesideAMetacontroller(t *testing.T) {
	const kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/compositecontrollers.metacontroller.k8s.io"
	crd := func(labels string) string {
		return `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"x","labels":{` +
			labels + `}},"spec":{"caBundle":{}}}`
	}
	workload := func(namespace, more, args string) string {
		return `{"kind":"List","apiVersion":"apps/v1","metadata":{},"items":[{"kind":"StatefulSet","apiVersion":"apps/v1",` +
			`"metadata":{"name":"mc","namespace":"` + namespace + `","labels":{"app.kubernetes.io/name":"metacontroller"}},` +
			`"spec":{` + more + `"template":{"spec":{"containers":[{"args":["` + args + `"]}]}}}}]}`
	}
	const none = `{"kind":"List","apiVersion":"apps/v1","metadata":{},"items":[]}`
	for what, c := range map[string]struct{ kinds, workloads, set, refused string }{
		"nothing": {"", none, "", ""},
		"one": {crd(""), workload("tools", "", "-v=4"), "", "StatefulSet tools/mc is a Metacontroller that would call " +
			"Quorate too: to use it, set metacontroller.enabled to false and metacontroller.namespace to tools"},
		"one that is used": {crd(""), workload("tools", "", "-v=4"), "metacontroller.enabled=false", ""},
		"one for others":   {crd(""), workload("tools", "", "--target-label-selector=!quorate.dev/installation"), "", ""},
		"one that is off":  {crd(""), workload("tools", `"replicas":0,`, "-v=4"), "", ""},
		"its own":          {crd(""), workload("default", "", "-v=4"), "", ""},
		"kinds of Quorate's": {crd(`"app.kubernetes.io/part-of":"quorate"`), workload("tools", "", "-v=4"), "",
			""}, // quorate check notices it
		"old kinds": {strings.Replace(crd(""), "caBundle", "url", 1), none, "", "helm does not upgrade them"},
	} {
		objects := map[string]string{"/apis/apps/v1/statefulsets": c.workloads, "/apis/apps/v1/deployments": none}
		if c.kinds != "" {
			objects[kinds] = c.kinds
		}
		args := []string{"--dry-run=server", "--kube-apiserver=" + apiServer(t, objects)}
		if c.set != "" {
			args = append(args, "--set", c.set)
		}
		_, err := helm(t, args...)
		if c.refused == "" && err != nil {
			t.Errorf("%s: %v", what, err)
		} else if c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s is not refused with %q but: %v", what, c.refused, err)
		}
	}
}
