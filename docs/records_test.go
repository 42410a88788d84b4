package docs_test

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// figuresOf has, for each command of docs/evidence/records.md, what of the tree its figures are of.
var figuresOf = map[string][]string{
	"make bench":                             {"hooks", "server", "etcdops", "main.go", "serve.go", "memory.go"},
	"make bench-scale":                       {"hooks", "server", "etcdops", "main.go", "serve.go", "memory.go"},
	"go test ./test/real/bench -run Tenants": {"hooks", "server", "etcdops", "main.go", "serve.go", "memory.go"},
	"make bench-snapshots":                   {"etcdops/backup/snapshot", "etcdops/backup/archive", "etcdops/backup/pages"},
	"test/real/bench/restore.sh":             {"etcdops/backup/seed", "etcdops/backup/rescue", "etcdops/backup/pages"},
	"make bench-streams":                     {"etcdops/backup/stream", "etcdops/backup/mirror", "etcdops/backup/archive"},
}

// product is what the figures of every other command are of: those that play all of Quorate.
var product = []string{"hooks", "server", "etcdops", "manifests/chart", "main.go", "serve.go", "memory.go"}

// measuredPages are those whose sections with a table, or a day, must have a row.
var measuredPages = []string{"performance.md", "scale.md", "reliability.md"}

// TestRecords: each row of docs/evidence/records.md says of which commit its figures are, and its last column whether
// that code has changed since, as git knows it. QUORATE_REWRITE=1 writes the column; QUORATE_RECORDS=1 fails for rows
// that are not of the code as it is (`make records`).
func TestRecords(t *testing.T) {
	const page = "docs/evidence/records.md"
	git := gitIn(t)
	_, text, _ := strings.Cut(read(t, page), "<!-- generated: begin records -->\n")
	text, _, _ = strings.Cut(text, "<!-- generated: end")
	rows := strings.SplitAfter(text, "\n")
	var shown []string
	for i, row := range rows[2 : len(rows)-1] {
		cells := strings.Split(strings.Trim(row, "|\n"), " | ")
		if len(cells) != 7 {
			t.Fatalf("%s: a row of %d cells: %s", page, len(cells), row)
		}
		shown = append(shown, link.FindStringSubmatch(cells[0])[1])
		command, commit := strings.Trim(cells[1], "` "), strings.TrimSpace(cells[2])
		paths, special := figuresOf[command]
		if !special {
			paths = product
		}
		code := "same"
		if commit == "unknown" || changedSince(t, git, commit, paths) {
			code = "changed"
			if os.Getenv("QUORATE_RECORDS") != "" {
				t.Errorf("measure again before a release: %s", command)
			}
		}
		cells[6] = code + " "
		rows[i+2] = "|" + strings.Join(cells, " | ") + "|\n"
	}
	keep(t, page, "generated: begin records", "generated: end", strings.Join(rows, ""))

	for _, name := range measuredPages {
		for _, section := range regexp.MustCompile(`(?m)^## `).Split(read(t, path.Join("docs/evidence", name)), -1)[1:] {
			title, body, _ := strings.Cut(section, "\n")
			figures := regexp.MustCompile(`(?m)^\|.*\d.*\|$`).MatchString(body)
			if slices.Contains([]string{"Limits", "What must hold"}, title) { // arithmetic, and bounds
				continue
			}
			if figures && !slices.Contains(shown, name+"#"+slug(title)) {
				t.Errorf("docs/evidence/%s: %q has figures, and no row in %s", name, title, page)
			}
		}
	}
}

// gitIn is git in the repository, whose whole history it needs.
func gitIn(t *testing.T) func(args ...string) (string, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	if shallow, err := git("rev-parse", "--is-shallow-repository"); err != nil || shallow == "true" {
		t.Skip("the history of the repository is not here")
	}
	return git
}

// changedSince tells whether code, without its tests, differs from that of a commit.
func changedSince(t *testing.T, git func(...string) (string, error), commit string, paths []string) bool {
	t.Helper()
	args := append([]string{"diff", "--name-only", commit, "HEAD", "--"}, paths...)
	names, err := git(append(args, ":!*_test.go", ":!*/testdata/*", ":!*.md")...)
	if err != nil {
		t.Errorf("docs/evidence/records.md: git knows no commit %s", commit)
	}
	return names != ""
}
