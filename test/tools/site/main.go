// Command site makes the documentation site of the Markdown files as they are: README.md, CHANGELOG.md and docs.
//
//	site REPOSITORY FOLDER
//
// Every page of it is a file, so it works without a server, and it loads nothing from elsewhere. A link that leads
// nowhere is an error. A link to a file that is no page goes to the repository's page of that file.
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "site REPOSITORY FOLDER")
		os.Exit(2)
	}
	if err := build(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// build reads the documents of a repository and writes the site into a folder, which it empties before.
func build(root, to string) error {
	s, err := read(root)
	if err != nil {
		return err
	}
	var failed []error
	for _, p := range s.pages {
		failed = append(failed, s.render(p))
	}
	if err := errors.Join(append(failed, s.check()...)...); err != nil {
		return err
	}
	return s.write(to)
}
