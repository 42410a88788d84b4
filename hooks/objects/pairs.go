package objects

import (
	"maps"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/wording"
)

// ParsePairs reads "a=1,b=2"; what is not a pair is left out.
func ParsePairs(s, sep string) map[string]string {
	pairs := map[string]string{}
	for field := range strings.SplitSeq(s, ",") {
		if k, v, ok := strings.Cut(field, sep); ok && k != "" && v != "" {
			pairs[k] = v
		}
	}
	return pairs
}

// FormatPairs writes "a=1,b=2", sorted by member.
func FormatPairs[V ~string](pairs map[string]V, sep string) string {
	var fields []string
	for _, k := range slices.SortedFunc(maps.Keys(pairs), wording.ByOrdinal) {
		fields = append(fields, k+sep+string(pairs[k]))
	}
	return strings.Join(fields, ",")
}
