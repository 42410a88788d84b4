package users

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// Keys are those that a permission is for, as etcd writes it: a single key with an empty End, all from Key up to and
// without End, or all from Key on with the End "\x00" (the comment above isOpenEnded in etcd's
// auth/range_perm_cache.go).
type Keys struct{ Key, End string }

// noEnd is the End of a range without one.
const noEnd = "\x00"

// String says which keys, quoted.
func (k Keys) String() string {
	switch {
	case k == prefixed(""):
		return "all keys"
	case k.End == "":
		return fmt.Sprintf("key %q", k.Key)
	case k.End == noEnd:
		return fmt.Sprintf("keys from %q on", k.Key)
	case k == prefixed(k.Key):
		return fmt.Sprintf("keys with the prefix %q", k.Key)
	}
	return fmt.Sprintf("keys from %q to %q", k.Key, k.End)
}

// Permit is an access to keys.
type Permit struct {
	Keys
	Access v1beta1.Access
}

// prefixed are all keys that begin with the prefix; every key with the empty one. After a prefix of nothing but 0xff no
// key comes, so that its range has no end (getPrefix in etcd's client/v3/op.go).
func prefixed(prefix string) Keys {
	if prefix == "" {
		return Keys{Key: "\x00", End: noEnd}
	}
	end := []byte(prefix)
	for len(end) > 0 && end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	if len(end) == 0 {
		return Keys{Key: prefix, End: noEnd}
	}
	end[len(end)-1]++
	return Keys{Key: prefix, End: string(end)}
}

// keysOf are the keys of a declared permission. A range of one key is that key.
func keysOf(p v1beta1.Permission) Keys {
	switch {
	case p.Prefix != nil:
		return prefixed(*p.Prefix)
	case p.Range == nil:
		return Keys{Key: p.Key}
	case p.Range.To == p.Range.From+"\x00":
		return Keys{Key: p.Range.From}
	}
	return Keys{Key: p.Range.From, End: cmp.Or(p.Range.To, noEnd)}
}

// An access is a set: reads, writes, both.
type access uint8

const (
	reads access = 1 << iota
	writes
)

var accesses = map[access]v1beta1.Access{reads: v1beta1.Read, writes: v1beta1.Write,
	reads | writes: v1beta1.ReadWrite}

func accessOf(a v1beta1.Access) access {
	switch a {
	case v1beta1.Read:
		return reads
	case v1beta1.Write:
		return writes
	case v1beta1.ReadWrite:
		return reads | writes
	}
	return 0
}

// permits are the declared permissions by range, in the order of the keys; what is declared twice for a range adds up.
func permits(declared []v1beta1.Permission) []Permit {
	sum := map[Keys]access{}
	for _, p := range declared {
		sum[keysOf(p)] |= accessOf(p.Access)
	}
	var list []Permit
	for _, k := range sortedKeys(sum) {
		list = append(list, Permit{Keys: k, Access: accesses[sum[k]]})
	}
	return list
}

func sortedKeys(m map[Keys]access) []Keys {
	return slices.SortedFunc(maps.Keys(m), func(a, b Keys) int {
		return strings.Compare(a.Key, b.Key)*2 + strings.Compare(a.End, b.End)
	})
}
