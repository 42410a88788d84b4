package objects

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Count is so many of a noun, such as "1 key" and "2 keys".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Colon appends a reason, if there is one.
func Colon(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

const (
	// longestQuote is how many characters of another's words are said again.
	longestQuote = 200
	// longestRead is how many bytes of them are looked at: nothing else bounds what a registry answers.
	longestRead = 4096
)

// Scheduler are why no node takes a pod. What preemption could do about it is left out.
func Scheduler(message string) string {
	message, _, _ = strings.Cut(message, " preemption: ")
	message, _, _ = strings.Cut(message, " no new claims to deallocate")
	words := []rune(strings.TrimRight(plain(message[:min(len(message), longestRead)]), ". ,"))
	if len(words) > longestQuote {
		return string(words[:longestQuote]) + "..."
	}
	return string(words)
}

// Kubelet are why it can't make a container. Between two tries it says that it waits, and in newer releases what
// the last one said: so the words stay. The cause is at the end.
func Kubelet(message string) string {
	if len(message) > longestRead {
		_, message, _ = strings.Cut(message[len(message)-longestRead:], " ") // no URL without its beginning
	}
	words := []rune(plain(message))
	if len(words) > longestQuote {
		return "..." + string(words[len(words)-longestQuote:])
	}
	return string(words)
}

// changing are parts of errors that hold what is secret, or differ from try to try, with what takes their place.
var changing = sync.OnceValue(func() []replacement {
	return []replacement{
		{regexp.MustCompile(`://[^\s/"'@]*@`), "://"}, // user and password of a URL
		// its query, where tokens are
		{regexp.MustCompile(`(://[^\s"'?]*)\?[^\s"']*`), "$1"},
		// an address with a port of the moment
		{regexp.MustCompile(`(read|write) (tcp|udp) \S+->`), "$1 $2 "},
		// the ID of a request
		{regexp.MustCompile(`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`), "..."},
		// what the kubelet says while it waits to try again
		{regexp.MustCompile(`^Back-off pulling image "[^"]*": [A-Za-z]+: `), ""},
		{regexp.MustCompile(`\s+`), " "},
	}
})

type replacement struct {
	what *regexp.Regexp
	by   string
}

func plain(message string) string {
	for _, r := range changing() {
		message = r.what.ReplaceAllString(message, r.by)
	}
	return strings.TrimSpace(strings.ToValidUTF8(message, ""))
}

// Clipped is a message of at most 1000 bytes: some words are others'.
func Clipped(message string) string {
	const most = 1000
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most], "") + " ..."
}

// Union of both lists, each name once, by ordinal.
func Union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.SortFunc(all, ByOrdinal)
	return slices.Compact(all)
}

// ByOrdinal compares member names by length first, so that demo-10 comes after demo-9.
func ByOrdinal(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// Brief is a duration as people write it: 5m, not 5m0s.
func Brief(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Hex is an ID as etcdctl writes it.
func Hex(id uint64) string { return fmt.Sprintf("%x", id) }

// GroupedReasons are what is said of members, in their order: who shares a reason is named together.
type GroupedReasons []groupedReason

type groupedReason struct {
	who    []string
	reason string
}

// Add what is said of a member.
func (all *GroupedReasons) Add(who, reason string) {
	for i := range *all {
		if (*all)[i].reason == reason {
			(*all)[i].who = append((*all)[i].who, who)
			return
		}
	}
	*all = append(*all, groupedReason{[]string{who}, reason})
}

func (all GroupedReasons) String() string {
	var list []string
	for _, c := range all {
		list = append(list, strings.Join(c.who, ", ")+": "+c.reason)
	}
	return strings.Join(list, "; ")
}

// Filter are the elements that keep says yes to.
func Filter[T any](list []T, keep func(T) bool) []T {
	var kept []T
	for _, e := range list {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

// Find is the first element that is says yes to, in its place in the list; nil for none.
func Find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// First is the first element that is says yes to; nil for none.
func First[T any](list []*T, is func(*T) bool) *T {
	for _, e := range list {
		if is(e) {
			return e
		}
	}
	return nil
}
