package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

const product = "github.com/quorate-dev/quorate"

// again says how a test of a step is repeated alone, or its package for an empty test, or the whole step for an empty package.
// STEPS_AGAIN is such a command with TEST for the test's name, where `go test` does not do: a story wants its lab.
func again(command, pkg, test string) string {
	story, part, _ := strings.Cut(test, "/")
	if how := os.Getenv("STEPS_AGAIN"); how != "" && test != "" {
		return strings.ReplaceAll(how, "TEST", "'^"+story+"$'")
	}
	if pkg == "" {
		return command
	}
	words := []string{}
	for _, word := range strings.Fields(command) {
		if word == "go" {
			break
		}
		words = append(words, word) // the environment
	}
	words = append(words, "go", "test")
	module := product
	if folder := option(command, "-C"); folder != "" {
		words, module = append(words, "-C", folder), product+"/"+folder
	}
	if tags := option(command, "-tags"); tags != "" {
		words = append(words, "-tags", tags)
	}
	if rest, ok := strings.CutPrefix(pkg, module); ok {
		pkg = "." + rest
	}
	if words = append(words, pkg); test != "" {
		run := "^" + story + "$"
		if part != "" { // parts of a part may build on each other
			part, _, _ = strings.Cut(part, "/")
			run += "/^" + regexp.QuoteMeta(part) + "$"
		}
		words = append(words, "-run", quoted(run))
	}
	return strings.Join(append(words, "-count=1"), " ")
}

// option is the value of an option in a command.
func option(command, name string) string {
	words := strings.Fields(command)
	for i, word := range words[:max(0, len(words)-1)] {
		if word == name {
			return words[i+1]
		}
	}
	return ""
}

// quoted is a word for a shell.
func quoted(word string) string {
	return fmt.Sprintf("'%s'", strings.ReplaceAll(word, "'", `'\''`))
}
