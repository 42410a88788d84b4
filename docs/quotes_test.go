package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ofOthers are messages that pages quote and that other programs say.
var ofOthers = []string{
	// etcd and its client
	"mvcc: database space exceeded", "etcdserver: no leader", "context deadline exceeded", "permission denied",
	"user name is empty", "invalid auth token", "required revision has been compacted",
	"member ... has already been bootstrapped", "member count is unequal", "no space left on device",
	"switched to configuration voters=()", "unhealthy cluster", "in sync with leader",
	"Can only promote a learner member",
	// Go's TLS, and Linux
	"x509: certificate signed by unknown authority", "tls: bad certificate", "nf_conntrack: table full",
	// Kubernetes and its clients
	"exceeded quota", "no PriorityClass with name", "maximum memory usage per Container", "violates PodSecurity",
	"admission webhook", "already exists", "client-side throttling", "secret ... not found", "couldn't find key",
	// people, and pages
	"in work", "A call", "ask again",
}

// TestQuotes: what a page below docs has in quotation marks, or as code in a column "Message", is a message of the code
// or of another program. It may be a part of it, with "..." or an example for what is filled in.
func TestQuotes(t *testing.T) {
	said, quoted := messages(t), 0
	prose(t, func(name, _, plain string) {
		if !strings.HasPrefix(name, "docs/") || strings.HasPrefix(name, "docs/decisions/") {
			return
		}
		for _, m := range quotation.FindAllStringSubmatch(span.ReplaceAllString(plain, "")+inColumns(plain), -1) {
			quote := strings.Join(strings.Fields(m[1]), " ")
			if len(tokens(quote)) < 2 || slices.Contains(ofOthers, quote) {
				continue
			}
			quoted++
			if !slices.ContainsFunc(said, func(message []string) bool { return quotes(message, tokens(quote)) }) {
				t.Errorf("%s quotes %q, which no code says. Is it of another program? Then add it to ofOthers", name, quote)
			}
		}
	})
	if quoted < 30 {
		t.Errorf("the pages quote only %d messages", quoted)
	}
}

// inColumns is the code in the columns of tables that are called "Message", in quotation marks.
func inColumns(plain string) string {
	var all strings.Builder
	column := -1
	for line := range strings.Lines(plain) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if at := slices.Index(cells, "Message"); at >= 0 {
			column = at
		} else if len(cells) <= column || !strings.HasPrefix(line, "|") {
			column = -1
		}
		if column >= 0 {
			for _, m := range code.FindAllStringSubmatch(cells[column], -1) {
				all.WriteString(` "` + strings.ReplaceAll(m[1], `"`, "") + `"`)
			}
		}
	}
	return all.String()
}

// TestQuotesOfNoOne: what is no message is found.
func TestQuotesOfNoOne(t *testing.T) {
	message := tokens("etcd ... can't go to ... directly (...); go by ...")
	for quote, want := range map[string]bool{
		"can't go to ... directly":  true,
		"etcd 3.5 can't go to 3.7":  true,
		"directly (minor versions)": false, // too little of it is the message's own
		"can't go to ... at once":   false,
		"can't go from 3.5 to 3.7":  false,
	} {
		if got := quotes(message, tokens(quote)); got != want {
			t.Errorf("%q: %t, want %t", quote, got, want)
		}
	}
}

// quotes reports whether these words follow on each other somewhere in the message, and enough of them are its own.
func quotes(message, words []string) bool {
	literal := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "..." })
	for from := range message {
		if inCommon(message[from:], words) >= min(3, len(literal)) {
			return true
		}
	}
	return false
}

// differs is fewer than any message has in common with words.
const differs = -1000

// inCommon is how many of the words the message has itself, of words that it begins with; negative if it does not.
// "..." on either side stands for any words.
func inCommon(message, words []string) int {
	switch {
	case len(words) == 0:
		return 0
	case len(message) == 0:
		return differs
	case message[0] == words[0] && message[0] != "...":
		return 1 + inCommon(message[1:], words[1:])
	case message[0] == "..." && words[0] == "...":
		return inCommon(message[1:], words[1:])
	case message[0] == "...":
		return max(inCommon(message[1:], words), filled(message, words[1:]))
	case words[0] == "...":
		return max(inCommon(message, words[1:]), inCommon(message[1:], words))
	}
	return differs
}

// filled goes on with words behind one that is filled in for the "..." with which the message begins.
func filled(message, words []string) int {
	return max(inCommon(message[1:], words), inCommon(message, words))
}

// tokens are the words of a message without what separates them, with "..." as a word of its own.
func tokens(text string) []string {
	text = strings.ReplaceAll(text, "...", " … ")
	text = strings.Map(func(r rune) rune {
		if strings.ContainsRune(`:;,.()"`, r) {
			return ' '
		}
		return r
	}, text)
	return strings.Fields(strings.ReplaceAll(text, "…", "..."))
}

var verbs = regexp.MustCompile(`%(?:\[\d\])?[-+.0-9]*[a-zA-Z]`)

// messages are the strings of the product, with "..." for what is filled in.
func messages(t *testing.T) [][]string {
	t.Helper()
	var all [][]string
	walk(t, "", ".go", func(path, source string) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "test/") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			expr, is := node.(ast.Expr)
			if !is {
				return true
			}
			text, isText := joined(expr)
			if isText {
				all = append(all, tokens(verbs.ReplaceAllString(text, "...")))
			}
			return !isText
		})
	})
	return all
}

// joined is a string as it is put together by +, with "..." for what is no literal, and whether the expression is one.
func joined(expr ast.Expr) (string, bool) {
	switch e := expr.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		x, isX := joined(e.X)
		y, isY := joined(e.Y)
		if e.Op == token.ADD && (isX || isY) {
			return x + y, true
		}
	}
	return "...", false
}
