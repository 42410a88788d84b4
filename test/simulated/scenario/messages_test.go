package scenario

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/decision"
)

// words are how a story says what was decided, and the rules that it has shown.
type words struct {
	say   func(by, text string) string
	shown map[fired]bool
	// last is the rule and message decided last, in full.
	last string
}

// fired is a rule that has decided about an object of a kind, in a mode.
type fired struct{ kind, mode, rule string }

// inFull are the words of walks: there is no book of what those may say.
func inFull() words { return words{say: aloud, shown: map[fired]bool{}} }

// byTheBook are the words of stories.
func byTheBook() words { return words{say: messages().short, shown: map[fired]bool{}} }

func aloud(by, text string) string { return by + ": " + text }

// decided is a decision in words.
func (w *words) decided(kind, mode string, r decision.Reason) string {
	w.shown[fired{kind, mode, r.Rule}] = true
	w.last = aloud(r.Rule, r.Message)
	return w.say(r.Rule, r.Message) + "\n"
}

// repeats reports whether a text is what the rule has said.
func (w *words) repeats(text string) bool { return strings.HasSuffix(w.last, ": "+text) }

// more is what a status says beside the rule's own words: empty when it says those.
func (w *words) more(by, text string) string {
	if w.repeats(text) {
		return ""
	}
	return strings.TrimPrefix(w.say(by, text), by)
}

// conditions are all of a status in words.
func (w *words) conditions(all []metav1.Condition) string {
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintf(&b, "  %s=%s (%s)%s\n", c.Type, c.Status, c.Reason, w.more(c.Type, c.Message))
	}
	return b.String()
}

// messages are what Quorate says in the stories, read from testdata/messages.txt.
var messages = sync.OnceValue(readMessages)

// book has each message in one place. A line is the rule or the condition that says it, the key by which stories name
// it, and its words, in which a * stands for a parameter. To change words, change them there, and no story changes.
// With -rewrite it gets the messages that are new, and loses those that no story says any more.
type book struct {
	sync.Mutex
	keys map[message]string
	said map[message]bool
}

type message struct{ by, words string }

const bookPath = "testdata/messages.txt"

const aboutBook = `# What Quorate says, each message in one place: the rule or the condition that says it, the key by
# which stories name it, and its words. A * is a parameter: a word with a digit in it, an object, or several. To change
# words, change them here. -rewrite adds what is new, with its last words as a key (choose a better one), and removes
# what no story says.
`

// parameter is a word that has a digit in it, an object with its kind, or a list of such.
var parameter = func() *regexp.Regexp {
	const word = `(?:(?:EtcdSnapshot|EtcdOperation|Secret|Service|ConfigMap|Pod|PersistentVolumeClaim) [\w-]+|` +
		`[\w./:*-]*\d(?:[\w./:-]*\w)?)`
	return regexp.MustCompile(word + `(?:(?:, | and )` + word + `)*`)
}()

func readMessages() *book {
	b := &book{keys: map[message]string{}, said: map[message]bool{}}
	raw, err := os.ReadFile(bookPath)
	if err != nil && !os.IsNotExist(err) {
		panic(err)
	}
	for line := range strings.Lines(string(raw)) {
		head, words, is := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !is || strings.HasPrefix(line, "#") {
			continue
		}
		by, key, _ := strings.Cut(head, " ")
		b.keys[message{by, words}] = key
	}
	return b
}

// short is a message as stories show it: who says it, its parameters, and the key of its words.
func (b *book) short(by, text string) string {
	m := message{by, parameter.ReplaceAllString(text, "*")}
	b.Lock()
	defer b.Unlock()
	key, known := b.keys[m]
	if !known && !rewrites() {
		return fmt.Sprintf("%s says what is not in %s: %s", by, bookPath, text)
	}
	if !known {
		key = b.newKey(m)
		b.keys[m] = key
	}
	b.said[m] = true
	var parts []string
	for _, part := range parameter.FindAllString(text, -1) {
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	line := strings.Join(append([]string{by}, parts...), " ")
	if key != "" {
		line += ": " + key
	}
	return line
}

// newKey is as many of the last words as no other message of that rule has.
func (b *book) newKey(m message) string {
	taken := map[string]bool{}
	for other, key := range b.keys {
		if other.by == m.by {
			taken[key] = true
		}
	}
	words := strings.FieldsFunc(m.words, func(r rune) bool { return strings.ContainsRune(" *,;:()", r) })
	for n := min(2, len(words)); n <= len(words); n++ {
		if key := strings.Join(words[len(words)-n:], " "); !taken[key] {
			return key
		}
	}
	return fmt.Sprintf("%s %d", strings.Join(words, " "), len(taken))
}

// settle compares the book with what the stories have said, or writes it. Unless all were told, what was not said
// stays.
func (b *book) settle(t *testing.T, all bool) {
	t.Helper()
	var lines []string
	for m, key := range b.keys {
		if b.said[m] || !all {
			lines = append(lines, strings.TrimSpace(m.by+" "+key)+": "+m.words+"\n")
		}
	}
	slices.Sort(lines)
	golden(t, bookPath, aboutBook+"\n"+strings.Join(lines, ""))
}

// golden compares a file with what it should be, or writes it.
func golden(t *testing.T, path, text string) {
	t.Helper()
	if rewrites() {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(kept), text, "go test ./test/simulated/scenario -run TestStories -rewrite writes it")
}

// rewrites reports whether the stories are written down, and not compared.
func rewrites() bool {
	f := flag.Lookup("rewrite")
	return f != nil && f.Value.String() == "true"
}
