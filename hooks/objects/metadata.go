package objects

import (
	"hash/fnv"
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// With is a copy of labels or annotations with one more.
func With(all map[string]string, key, value string) map[string]string {
	all = maps.Clone(all)
	if all == nil {
		all = map[string]string{}
	}
	all[key] = value
	return all
}

// Only is a copy of labels or annotations with these keys alone, as far as they are there.
func Only[V any](all map[string]V, keys ...string) map[string]V {
	some := map[string]V{}
	for _, k := range keys {
		if value, set := all[k]; set {
			some[k] = value
		}
	}
	return some
}

// Digest is a short hash of texts.
func Digest(texts ...string) string {
	h := fnv.New64a()
	for _, text := range texts {
		_, _ = h.Write([]byte(text))
		_, _ = h.Write([]byte{0})
	}
	return strconv.FormatUint(h.Sum64(), 16)
}

// Shortened is a name of at most so many characters.
func Shortened(name string, most int) string {
	if len(name) <= most {
		return name
	}
	sum := Digest(name)
	return strings.TrimRight(name[:most-len(sum)-1], "-.") + "-" + sum
}

// Canonical is the quantity in the one form in which this value is written, and as the API server writes it: our
// answer never differs from what is stored.
func Canonical(q resource.Quantity) resource.Quantity {
	whole, thousandths := q.Value(), *resource.NewMilliQuantity(q.MilliValue(), resource.DecimalSI)
	switch decimal := *resource.NewQuantity(whole, resource.DecimalSI); {
	case decimal.Cmp(q) == 0 && whole%1024 == 0 && whole != 0:
		return *resource.NewQuantity(whole, resource.BinarySI)
	case decimal.Cmp(q) == 0:
		return decimal
	case thousandths.Cmp(q) == 0:
		return thousandths
	}
	// As small, or as large, as hardly one is.
	return resource.MustParse(resource.NewDecimalQuantity(*q.AsDec(), resource.DecimalSI).String())
}
