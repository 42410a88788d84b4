package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

const product = "github.com/quorate-dev/quorate"

// again says how a test of a step is repeated alone: its package for an empty test, the whole step for an empty
// package. STEPS_AGAIN is such a command with TEST for the test's name, where `go test` does not do: a story wants
// its lab.
func again(command, pkg, test string) string {
	story, part, _ := strings.Cut(test, "/")
	if how := os.Getenv("STEPS_AGAIN"); how != "" {
		run := "'.*'" // what failed outside of a test
		if test != "" {
			run = "'^" + story + "$'"
		}
		return strings.ReplaceAll(how, "TEST", run)
	}
	if pkg == "" {
		return command
	}
	parts := strings.Split(command, " && ") // which packages, at first
	environment, rest, _ := strings.Cut(parts[len(parts)-1], "go test ")
	words, options, module := strings.Fields(environment), kept(rest), product
	words = append(words, "go", "test")
	if len(options) > 1 && options[0] == "-C" {
		words, options, module = append(words, options[:2]...), options[2:], product+"/"+options[1]
	}
	if rest, ok := strings.CutPrefix(pkg, module); ok {
		pkg = "." + rest
	}
	words = append(append(words, pkg), options...)
	if test != "" {
		run := "^" + story + "$"
		if part != "" { // parts of a part may build on each other
			part, _, _ = strings.Cut(part, "/")
			run += "/^" + regexp.QuoteMeta(part) + "$"
		}
		words = append(words, "-run", quoted(run))
	}
	return strings.Join(append(words, "-count=1"), " ")
}

// kept are the options of a `go test`, with their values, without those that choose tests or say how they are told.
func kept(arguments string) []string {
	var options []string
	words := strings.Fields(arguments)
	for i, word := range words {
		told := []string{"-json", "-v", "-run", "-skip", "-parallel", "-count=1"}
		if !strings.HasPrefix(word, "-") || slices.Contains(told, word) {
			continue
		}
		options = append(options, word)
		if i+1 < len(words) && slices.Contains([]string{"-C", "-tags", "-timeout", "-seed", "-steps", "-wanderings"},
			word) {
			options = append(options, words[i+1])
		}
	}
	return options
}

// quoted is a word for a shell.
func quoted(word string) string {
	return fmt.Sprintf("'%s'", strings.ReplaceAll(word, "'", `'\''`))
}
