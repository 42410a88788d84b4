package v1beta1

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"
)

// TestACopySharesNothing: it is equal to what it is of, in JSON too, and nothing that is written into it is seen there.
func TestACopySharesNothing(t *testing.T) {
	known := runtime.NewScheme()
	require.NoError(t, AddToScheme(known))
	for kind, of := range known.KnownTypes(GroupVersion) {
		if of.PkgPath() != reflect.TypeFor[EtcdCluster]().PkgPath() {
			continue
		}
		for seed := range int64(20) {
			one, is := reflect.New(of).Interface().(runtime.Object)
			require.True(t, is, kind)
			fill := randfill.NewWithSeed(seed).NilChance(0.1).NumElements(1, 2).Funcs(
				func(q *resource.Quantity, c randfill.Continue) {
					*q = *resource.NewQuantity(c.Int63(), resource.BinarySI)
				}, func(at *metav1.Time, c randfill.Continue) { *at = metav1.Unix(c.Int63n(1<<32), 0) },
				func(raw *metav1.FieldsV1, _ randfill.Continue) { raw.SetRawString("{}") })
			fill.Fill(one)
			before, err := json.Marshal(one)
			require.NoError(t, err)
			copied := one.DeepCopyObject()
			require.Equal(t, one, copied, kind)
			overwrite(reflect.ValueOf(copied).Elem())
			after, err := json.Marshal(one)
			require.NoError(t, err)
			assert.JSONEq(t, string(before), string(after), kind)
		}
	}
	assert.Nil(t, (*EtcdCluster)(nil).DeepCopy())
}

// overwrite zeroes all that a value points to.
func overwrite(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			overwrite(v.Elem())
			v.Elem().SetZero()
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				overwrite(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			overwrite(v.Index(i))
			v.Index(i).SetZero()
		}
	case reflect.Map:
		v.Clear()
	}
}
