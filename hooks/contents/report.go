package contents

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// least is the part of the whole that a prefix has of something, one in so many, or it is not told: what is rare may be
// one's own.
const least = 200

// Report tells what was counted, and the heaviest prefixes: at most so many, and none without the one above.
func (a *Account) Report(most int) *v1beta1.SnapshotContents {
	a.flush()
	all := a.whole()
	total := a.told(all[len(all)-1])
	c := &v1beta1.SnapshotContents{Total: total, LeasedKeys: min(a.leased, total.Keys), Estimated: a.lost}
	for _, n := range all[:len(all)-1] {
		if told := a.told(n); weight(&told, &total)*least >= 1 {
			c.Prefixes = append(c.Prefixes, told)
		}
	}
	slices.SortFunc(c.Prefixes, func(x, y v1beta1.PrefixContents) int {
		return cmp.Or(cmp.Compare(weight(&y, &total), weight(&x, &total)), strings.Compare(x.Prefix, y.Prefix))
	})
	c.Prefixes = c.Prefixes[:min(most, len(c.Prefixes))]
	return c
}

// whole are copies of all nodes, each with all that is below it: first the longest prefixes, and last that of all.
func (a *Account) whole() []*node {
	all := append(slices.Collect(maps.Values(a.nodes)), a.all)
	slices.SortFunc(all, func(x, y *node) int { return len(y.Prefix) - len(x.Prefix) })
	copies := map[*node]*node{}
	for i, n := range all {
		is := *n
		copies[n] = &is
		all[i] = &is
	}
	for _, n := range all[:len(all)-1] {
		n.above = copies[n.above]
		n.above.take(n)
	}
	return all
}

// weight is the largest part that a prefix has of anything. That of the one above is no less.
func weight(of, total *v1beta1.PrefixContents) float64 {
	part := func(n, all int64) float64 { return float64(n) / float64(max(all, 1)) }
	return max(part(of.Keys, total.Keys), part(of.LiveBytes, total.LiveBytes), part(of.Bytes, total.Bytes),
		part(of.Writes, total.Writes))
}

// told is what is known of a prefix.
func (a *Account) told(n *node) v1beta1.PrefixContents {
	is := n.PrefixContents
	is.Kind = ""
	if !n.mixed && word(n.apiVersion) && word(n.Kind) {
		is.Kind = n.apiVersion + " " + n.Kind
	}
	if a.lost {
		is.Keys = n.lives
		if a.Midway {
			is.Keys = 0
		}
		is.LiveBytes = int64(float64(n.Bytes) / float64(max(n.Revisions, 1)) * float64(is.Keys))
	}
	is.Keys = max(is.Keys, 0)
	is.LiveBytes = max(is.LiveBytes, 0)
	is.Partial = n.spoiled
	return is
}

// word reports whether a value says so of itself in the way of Kubernetes.
func word(of string) bool {
	return of != "" && len(of) <= longestPart && !strings.ContainsFunc(of, func(r rune) bool {
		return !strings.ContainsRune("./-", r) && (r < '0' || r > '9') && (r|' ' < 'a' || r|' ' > 'z')
	})
}

// Depth of a prefix is how many parts it has.
func Depth(prefix string) int { return strings.Count(strings.TrimPrefix(prefix, "/"), "/") }

// At are the prefixes of a depth. With 0 it is the first at which there are several; where Kubernetes keeps the
// resources of a group below its name, those.
func At(all []v1beta1.PrefixContents, depth int) []v1beta1.PrefixContents {
	byDepth := map[int][]v1beta1.PrefixContents{}
	for _, p := range all {
		byDepth[Depth(p.Prefix)] = append(byDepth[Depth(p.Prefix)], p)
	}
	if depth > 0 {
		return byDepth[depth]
	}
	depths := slices.Sorted(maps.Keys(byDepth))
	for _, d := range depths {
		depth = d
		if len(byDepth[d]) > 1 {
			break
		}
	}
	var rows []v1beta1.PrefixContents
	for _, p := range byDepth[depth] {
		resources := slices.DeleteFunc(slices.Clone(byDepth[depth+1]), func(below v1beta1.PrefixContents) bool {
			return !strings.HasPrefix(below.Prefix, p.Prefix)
		})
		if grouped(p.Prefix) && len(resources) > 0 {
			rows = append(rows, resources...)
		} else {
			rows = append(rows, p)
		}
	}
	return rows
}

// grouped reports whether a prefix of an API server's has a group of resources, and not objects of one.
func grouped(prefix string) bool {
	root, name, _ := strings.Cut(strings.Trim(prefix, "/"), "/")
	return root == "registry" && !strings.Contains(name, "/") && (strings.Contains(name, ".") || name == "services")
}
