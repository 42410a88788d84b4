// Package docs_test keeps what the documents say in step with what is there.
package docs_test

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rules"
	"github.com/quorate-dev/quorate/internal/kubectl"
	"github.com/quorate-dev/quorate/internal/kubectl/check"
	"github.com/quorate-dev/quorate/test/static/docs"
)

// root is the repository, seen from here.
const root = ".."

var (
	code    = regexp.MustCompile("`([^`]+)`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fenced  = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```")
	heading = regexp.MustCompile(`(?m)^(#+) (.*)$`)
)

// TestGeneratedTables: the tables of modes, rules and checks are those of the code, in their order, and that of sizes
// is computed.
func TestGeneratedTables(t *testing.T) {
	modes := "| Mode | When | Rules, in order |\n| --- | --- | --- |\n"
	for _, m := range rules.Modes {
		var names []string
		for _, r := range m.Rules {
			names = append(names, r.Name)
		}
		modes += "| " + m.Name + " | " + m.Why + " | " + strings.Join(names, ", ") + " |\n"
	}
	names := "| Name | Why |\n| --- | --- |\n"
	for _, r := range rules.All() {
		names += "| " + r.Name + " | " + r.Why + " |\n"
	}
	checks := "| Name | What it says when it is well |\n| --- | --- |\n"
	for _, c := range check.Checks {
		checks += "| `" + c.Name + "` | " + c.Looks + " |\n"
	}
	sizes := "| Keys | Writes/s | `options.autoCompaction.retention` | Database, MiB | `storage.size` | " +
		"`resources`: memory |\n" +
		"| --- | --- | --- | --- | --- | --- |\n"
	for _, l := range []defaults.Load{
		{Keys: 100_000, Writes: 200, History: defaults.Retention},
		{Keys: 100_000, Writes: 200, History: time.Hour},
		{Keys: 500_000, Writes: 1000, History: defaults.Retention},
		{Keys: 1_000_000, Writes: 2000, History: defaults.Retention},
		{Keys: 1_000_000, Writes: 10_000, History: time.Minute},
	} {
		l.Value = 1 << 10
		n := l.Need()
		sizes += fmt.Sprintf("| %d | %d | %s | %d | %s | %s |\n", l.Keys, l.Writes, objects.Brief(l.History),
			n.Database()>>20, resource.NewQuantity(n.Volume, resource.BinarySI),
			resource.NewQuantity(n.Memory, resource.BinarySI))
	}
	keep(t, "docs/how-to/size.md", "generated: begin sizes", "generated: end", sizes)
	var manifest, said strings.Builder
	if kubectl.New("", &manifest, &said).Run(t.Context(), []string{"size", "--keys=1M", "--writes=2k"}) != 0 {
		t.Error(said.String())
	}
	keep(t, "docs/how-to/size.md", "generated: begin manifest", "generated: end", "```yaml\n"+manifest.String()+"```\n")
	ends := regexp.MustCompile(`\n(\d+) ok, (\d+) warning, 0 failed, 0 unknown;`)
	if m := ends.FindStringSubmatch(read(t, "docs/reference/check.md")); m == nil {
		t.Error("docs/reference/check.md shows no end of `quorate check`")
	} else if ok, warned := number(m[1]), number(m[2]); ok+warned != len(check.Checks) {
		t.Errorf("docs/reference/check.md shows %d ok and %d warnings of %d checks", ok, warned, len(check.Checks))
	}
	for name, want := range map[string]string{"modes": modes, "rules": names, "checks": checks} {
		keep(t, "docs/reference/lists.md", "generated: begin "+name, "generated: end", want)
	}
}

func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// TestAlertsTable: what is at the head of docs/alerts.md is what the rule files say of each alert.
func TestAlertsTable(t *testing.T) {
	label := regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`)
	value := regexp.MustCompile(`\{\{ \$value[^}]*\}\}`)
	lines := "| Alert | Severity | After | What it says |\n| --- | --- | --- | --- |\n"
	for _, file := range []string{"prometheusrule.yaml", "prometheusrule-etcd.yaml"} {
		var written struct {
			Spec struct {
				Groups []struct {
					Rules []struct {
						Alert, For          string
						Labels, Annotations map[string]string
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(read(t, "manifests/monitoring/"+file)), &written); err != nil {
			t.Fatal(err)
		}
		for _, group := range written.Spec.Groups {
			for _, r := range group.Rules {
				if r.Alert == "" {
					continue
				}
				says := value.ReplaceAllString(label.ReplaceAllString(r.Annotations["summary"], "`$1`"), "`value`")
				lines += fmt.Sprintf("| [%s](#%s) | %s | %s | %s |\n", r.Alert, strings.ToLower(r.Alert),
					r.Labels["severity"], cmp.Or(r.For, "at once"), says)
			}
		}
	}
	keep(t, "docs/alerts.md", "generated: begin alerts", "generated: end", lines)
}

func keep(t *testing.T, page, begin, end, want string) {
	t.Helper()
	if err := docs.Keep(filepath.Join(root, page), begin, end, want); err != nil {
		t.Error(err)
	}
}

// TestEveryStatusIsExplained: the word in the column STATUS has a line, and what messages name has a heading.
func TestEveryStatusIsExplained(t *testing.T) {
	explained := map[string]bool{}
	for _, row := range table(t, "docs/reference/status.md", "STATUS") {
		for _, m := range code.FindAllStringSubmatch(row[0], -1) {
			explained[m[1]] = true
		}
	}
	for _, r := range rules.All() {
		if !explained[r.Name] {
			t.Errorf("docs/reference/status.md, \"STATUS\": there is nothing about %s", r.Name)
		}
		delete(explained, r.Name)
	}
	for name := range explained {
		t.Errorf("docs/reference/status.md, \"STATUS\": there is no rule %s", name)
	}
	named := regexp.MustCompile(`see (\w+|Bootstrap that can't finish) in (docs/[a-z/-]+\.md)`)
	walk(t, "hooks", ".go", func(path, text string) {
		text = regexp.MustCompile(`"\s*\+\s*"`).ReplaceAllString(text, "")
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(anchors(t, m[2]), slug(m[1])) {
				t.Errorf("a message of %s sends people to %s in %s, which has no such heading", path, m[1], m[2])
			}
		}
	})
}

// TestTheRecordingInTheREADME: what it shows was recorded, and is shown as it was.
func TestTheRecordingInTheREADME(t *testing.T) {
	_, part, _ := strings.Cut(read(t, "README.md"), "<!-- recording: begin -->\n```text\n")
	part, _, ended := strings.Cut(part, "```\n<!-- recording: end -->")
	if !ended || part == "" || !strings.Contains(read(t, "docs/evidence/recording.txt"), part) {
		t.Error("README.md shows no part of docs/evidence/recording.txt; `make recording` writes both")
	}
}

// shown are stories and tests that show a safety rule, of many, in the order of the rules.
var shown = []string{
	"`grow_while_down`, `TestMembers/ScaleUpAndDown`",
	"`claim_deleted_twice`, `lagging`, `TestDisruptions/DrainNodesOneAfterTheOther`",
	"`lost_beside_a_learner`, `TestGrowAndShrink`",
	"`grow`, `ahead_added_by_hand`, `TestStepsInEtcd`, `TestGrowAndShrink`",
	"`learner_dead`, `TestADeadLearner`",
	"`shrink`, `TestMembers/ScaleUpAndDown`",
	"`quarantine_edited`, `TestTheClaimOfWhoIsGivenUp`, `TestMembers/ScaleUpAndDown`",
	"`bootstrap_stale_record`, `record_forged`, `TestTakeovers`, `TestMembers/PauseAndResume`",
	"`names`, `TestAPeerURLAgain`",
	"`memory_reboot`, `TestPrepareLooksAtBothVolumes`, `TestMembers/LostClaimIsReplaced`",
	"`blind`, `TestNoStepIsTakenBlind`, `TestObserve`",
	"`all_pods_gone`, `pause_claim_deleted`, `TestMembers/DeletedPodReturns`",
	"`crash_while_applying`, `TestRefusedRequests`, `TestDisruptions/QuorateAndMetacontrollerRestartInTheMiddleOfAChange`",
	"`slow_answer`, `TestStepsInEtcd`, `TestDisruptions/QuorateAndMetacontrollerRestartInTheMiddleOfAChange`",
	"`two_syncs_bootstrap`, `TestCallsForOneClusterTakeTurns`, `TestGrowAndShrink`",
	"every `stabilize` in every story, `TestMembers/SteadyStateWritesNothing`",
	"`external_deleted`, `finalize_etcd_down`, `TestMembers/DeleteCleansUp`",
	"`upgrade_step`, `upgrade_snapshot_first`, `version_edited_unreached`, `TestMembers/BadSpecsAreRefused`",
	"`authority_rotation`, `TestAnotherAuthorityWithoutOverlapRestartsNoMember`, `TestHandshake`",
	"`TestUsersAndRolesAreAppliedOnce`, `TestUsersAndRoles`",
	"`epoch_revisions`, `TestRevisionsNeverGoBack`, `TestNoClientIsAnsweredByALaterEpochUnnoticed`",
}

// safetyRules are those of the comment in hooks/doc.go, which is what everything else cites.
func safetyRules(t *testing.T) (rules []string) {
	t.Helper()
	rule := regexp.MustCompile(`(?m)^//\tS(\d+) +(.*(?:\n//\t {5}.*)*)`)
	for i, m := range rule.FindAllStringSubmatch(read(t, "hooks/doc.go"), -1) {
		if m[1] != fmt.Sprint(i+1) {
			t.Errorf("hooks/doc.go: S%s where S%d should be", m[1], i+1)
		}
		text := regexp.MustCompile(`\s*\n//\t +`).ReplaceAllString(m[2], " ")
		rules = append(rules, strings.ToUpper(text[:1])+text[1:])
	}
	return rules
}

// TestSafetyTable: each rule has its line, as hooks/doc.go says it, and the stories and tests that it names exist.
func TestSafetyTable(t *testing.T) {
	known := map[string]bool{"stabilize": true}
	walk(t, "test/simulated/scenario/testdata", ".txt", func(path, _ string) {
		known[strings.TrimSuffix(filepath.Base(path), ".txt")] = true
	})
	maps.Copy(known, tests(t))
	rules := safetyRules(t)
	if len(rules) != len(shown) {
		t.Fatalf("hooks/doc.go has %d safety rules, and %d are shown", len(rules), len(shown))
	}
	lines := "| Rule | Says | Shown by |\n| --- | --- | --- |\n"
	for i, rule := range rules {
		lines += fmt.Sprintf("| S%d | %s | %s |\n", i+1, rule, shown[i])
		for _, name := range code.FindAllStringSubmatch(shown[i], -1) {
			if !known[name[1]] {
				t.Errorf("S%d: there is no test and no story %s", i+1, name[1])
			}
		}
	}
	keep(t, "docs/explanation/safety.md", "generated: begin safety", "generated: end", lines)
}

// TestOpenBugsAreTold: the page of weak points names the story of each known bug.
func TestOpenBugsAreTold(t *testing.T) {
	told := read(t, "docs/evidence/README.md")
	walk(t, "test/simulated/scenario/testdata/open", ".txt", func(path, _ string) {
		if !strings.Contains(told, "(../../"+path+")") {
			t.Errorf("docs/evidence/README.md, \"Known weak points\": there is nothing about %s", path)
		}
	})
}

// TestFieldsAreExplained: what a change of a field does is said for each field, and for none that does not exist.
func TestFieldsAreExplained(t *testing.T) {
	spec := fields(reflect.TypeFor[v1beta1.EtcdClusterSpec](), "")
	said := map[string]bool{}
	for _, row := range table(t, "docs/how-to/change.md", "Change a field") {
		for _, m := range code.FindAllStringSubmatch(row[0], -1) {
			said[m[1]] = true
			if !slices.Contains(spec, m[1]) {
				t.Errorf("docs/how-to/change.md, \"Change a field\": spec has no field %s", m[1])
			}
		}
	}
	for _, f := range spec {
		parts := slices.ContainsFunc(spec, func(o string) bool { return strings.HasPrefix(o, f+".") })
		explained := said[f]
		for i, c := range f {
			explained = explained || c == '.' && said[f[:i]]
		}
		if !explained && !parts {
			t.Errorf("docs/how-to/change.md, \"Change a field\": there is nothing about %s", f)
		}
	}
}

// fields are the names of a type of ours and of the types of ours within it, as in replicas and image.repository.
func fields(of reflect.Type, prefix string) []string {
	var all []string
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		all = append(all, prefix+name)
		if f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == of.PkgPath() {
			all = append(all, fields(f.Type, prefix+name+".")...)
		}
	}
	return all
}

// TestLinks: every relative link leads to a file, and to a heading of it if it names one.
func TestLinks(t *testing.T) {
	walk(t, "", ".md", func(path, text string) {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if here, is := strings.CutPrefix(file, "https://github.com/quorate-dev/quorate/blob/main/"); is {
				leads(t, path, here, anchor) // as a package says it, which is read elsewhere
				continue
			}
			if strings.Contains(file, "://") || strings.HasPrefix(file, "mailto:") {
				continue
			}
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			leads(t, path, to, anchor)
		}
	})
}

// leads reports a path or a heading that is not there.
func leads(t *testing.T, from, to, anchor string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, to)); err != nil {
		t.Errorf("%s: there is no %s", from, to)
	} else if anchor != "" && !slices.Contains(anchors(t, to), anchor) {
		t.Errorf("%s: %s has no heading %s", from, to, anchor)
	}
}

// TestPathsThatOthersName: a document that code, manifests or scripts name is there, with its heading.
func TestPathsThatOthersName(t *testing.T) {
	named := regexp.MustCompile(
		`(?:^|[^/\w.-]|blob/main/|blob/%s/|\.\./)(docs/[A-Za-z0-9/._-]+\.(?:md|txt|png|svg))(?:#([A-Za-z0-9-]+))?`)
	inMessages := regexp.MustCompile("v1beta1\\.Docs *\\+ *[\"`]")
	places := 0
	walk(t, "", "", func(path, text string) {
		if strings.HasPrefix(path, "docs/") || strings.HasSuffix(path, ".md") || !strings.Contains(text, "docs/") {
			return
		}
		text = inMessages.ReplaceAllString(text, "docs/")
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			places++
			leads(t, path, m[1], m[2])
		}
	})
	if places < 50 {
		t.Errorf("only %d places name a document", places)
	}
}

// tests are the names of all tests, fuzz tests and benchmarks, and of stories that share a cluster as TestMembers/Pause.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	// such a story is told by the test before it
	declared, test := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(|\.tell\("(\w+)"`), ""
	walk(t, "", "_test.go", func(_, text string) {
		for _, m := range declared.FindAllStringSubmatch(text, -1) {
			test = cmp.Or(m[1], test)
			known[strings.TrimSuffix(test+"/"+m[2], "/")] = true
		}
	})
	return known
}

// TestNamesOfTests: a test that a document names exists. Of a story that shares a cluster the beginning is enough, as
// RUN takes it.
func TestNamesOfTests(t *testing.T) {
	known, named, found := tests(t), regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*(?:/[A-Z]\w*)?`), 0
	for name := range maps.Clone(known) {
		for i := strings.Index(name, "/") + 1; i > 0 && i < len(name); i++ {
			known[name[:i+1]] = true
		}
	}
	walk(t, "", ".md", func(path, text string) {
		for _, name := range named.FindAllString(text, -1) {
			found++
			if !known[name] {
				t.Errorf("%s: there is no %s", path, name)
			}
		}
	})
	if found < 100 {
		t.Errorf("only %d tests are named", found)
	}
}

// TestMakeTargets: every make command in the documents is one of the Makefile, and a PART one of parts.sh.
func TestMakeTargets(t *testing.T) {
	targets := map[string]bool{}
	for _, file := range []string{"Makefile", "test/simulated/simulated.mk", "test/real/real.mk", "test/real/bench/bench.mk"} {
		for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):.* ##? `).FindAllStringSubmatch(read(t, file), -1) {
			targets[m[1]] = true
		}
	}
	_, parts, _ := strings.Cut(read(t, "test/real/parts.sh"), "\nparts=(")
	parts, _, _ = strings.Cut(parts, ")")
	command := regexp.MustCompile("(?m)(?:`|&& |^)make\\s+(?:[A-Z]+=\\S+\\s+)?([a-z][a-z0-9-]*)(?:\\s+PART=([a-z0-9-]+))?")
	walk(t, "", ".md", func(path, text string) {
		shown := strings.Join(code.FindAllString(fenced.ReplaceAllString(text, ""), -1), " ")
		for _, block := range fenced.FindAllStringSubmatch(text, -1) {
			shown += "\n" + block[2]
		}
		for _, m := range command.FindAllStringSubmatch(shown, -1) {
			if !targets[m[1]] {
				t.Errorf("%s: `make %s` is not a target of the Makefile", path, m[1])
			}
			if m[2] != "" && !slices.Contains(strings.Fields(parts), m[2]) {
				t.Errorf("%s: %s is not a part of test/real/parts.sh", path, m[2])
			}
		}
	})
}

// ---- reading

// walk reads every file below a folder whose name ends like this, by its path from the root.
func walk(t *testing.T, folder, suffix string, visit func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		hidden := strings.HasPrefix(d.Name(), ".git") && name != ".github" || name == "bin"
		switch {
		case err != nil:
			return err
		case d.IsDir() && hidden:
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		raw, err := os.ReadFile(path)
		visit(name, string(raw))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// table is the first table under a heading, without its head.
func table(t *testing.T, file, heading string) [][]string {
	t.Helper()
	_, section, _ := strings.Cut(read(t, file), "# "+heading+"\n")
	var all [][]string
	for line := range strings.Lines(section) {
		if row, is := strings.CutPrefix(strings.TrimSpace(line), "| "); is {
			all = append(all, strings.Split(strings.TrimSuffix(row, " |"), " | "))
		} else if len(all) > 0 || strings.HasPrefix(line, "#") {
			break
		}
	}
	if len(all) < 3 {
		t.Fatalf("%s has no table under %q", file, heading)
	}
	return all[2:]
}

// anchors are the headings of a Markdown file as links name them.
func anchors(t *testing.T, path string) []string {
	t.Helper()
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, path), ""), -1) {
		all = append(all, slug(m[2]))
	}
	return all
}

// slug is a heading as links name it.
func slug(heading string) string {
	kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(kept, " ", "-")
}
