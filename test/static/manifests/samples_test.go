package manifests

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// TestSamples: the API server takes every sample, keeps every field of it as it was applied, and adds defaults alone:
// else Flux and Argo CD would always see a difference. By kstatus none of them is current before Quorate has looked at
// it.
func TestSamples(t *testing.T) {
	files, err := filepath.Glob("../../../manifests/samples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no samples", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text := fileOf(t, file)
			if !strings.HasPrefix(string(text), "# ") {
				t.Error("does not begin with a comment that says what it is for")
			}
			for _, document := range strings.Split(string(text), "\n---\n") {
				object := parse(t, document)
				u := &unstructured.Unstructured{Object: object}
				if u.GroupVersionKind().Group != "etcd.quorate.dev" {
					continue
				}
				k := kindOf(t, u.GetKind())
				applied := runtime.DeepCopyJSON(object)
				if fields := k.unknown(object); len(fields) > 0 {
					t.Errorf("unknown fields: %v", fields)
				}
				if errs := k.admit(object, nil); len(errs) > 0 {
					t.Error(errs.ToAggregate())
				}
				for _, drift := range drifts("", applied, object) {
					t.Errorf("%s %s: %s", u.GetKind(), u.GetName(), drift)
				}
				u.SetGeneration(1)
				if verdict, err := status.Compute(u); err != nil || verdict.Status != status.InProgressStatus {
					t.Errorf("a fresh %s is %+v (%v)", u.GetKind(), verdict, err)
				}
			}
		})
	}
}

// drifts are the fields that are not stored as they were applied. In lists nothing may be added: they are compared as
// wholes.
func drifts(at string, applied, stored any) (all []string) {
	fields, is := applied.(map[string]any)
	if !is {
		if items, is := applied.([]any); is {
			if has, _ := stored.([]any); len(has) == len(items) {
				for i := range items {
					all = append(all, drifts(fmt.Sprintf("%s[%d]", at, i), items[i], has[i])...)
				}
				return all
			}
		}
		if !reflect.DeepEqual(applied, stored) {
			all = append(all, fmt.Sprintf("%s is applied as %v and stored as %v", at, applied, stored))
		}
		return all
	}
	has, is := stored.(map[string]any)
	if !is {
		return []string{fmt.Sprintf("%s is applied and not stored", at)}
	}
	for key, value := range fields {
		all = append(all, drifts(at+"."+key, value, has[key])...)
	}
	return all
}

// TestNames: the names by which kubectl finds our kinds are those of no other operator that we know: etcd (Gardener's
// etcd-druid has a kind Etcd), and etcdclus and ec (earlier operators) are not ours. The category quorate lists all
// of ours.
func TestNames(t *testing.T) {
	for file, short := range map[string]string{"etcdclusters": "qetcd", "etcdsnapshots": "qsnap",
		"etcdsnapshotschedules": "qsched", "etcdoperations": "qop",
		"etcdmirrors": "qmirror"} {
		text := fileOf(t, "../../../manifests/crds/etcd.quorate.dev_"+file+".yaml")
		names := readCRD(t, text).Spec.Names
		if !reflect.DeepEqual(names.ShortNames, []string{short}) ||
			!reflect.DeepEqual(names.Categories, []string{"all", "quorate"}) {
			t.Errorf("%s: short names %v, categories %v", file, names.ShortNames, names.Categories)
		}
	}
}
