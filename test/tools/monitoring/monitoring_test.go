// Package monitoring holds manifests/monitoring against Prometheus' own parsers and the types of its operator: rules
// and queries parse and name metrics that there are, and every alert has its section in docs/alerts.md and a
// case in testdata/alerts*.yaml. Whether the cases pass is for promtool to say: `make monitoring`, which builds it
// first, in minutes.
package monitoring

import (
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

const (
	root    = "../../.."
	folder  = root + "/manifests/monitoring/"
	runbook = "https://github.com/quorate-dev/quorate/blob/main/docs/alerts.md#"
)

// promQL is the language as every Prometheus of today speaks it: nothing that has to be switched on.
var promQL = parser.NewParser(parser.Options{})

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// groups are the rules of a PrometheusRule, read as Prometheus reads them: expressions, templates and durations are
// checked.
func groups(t *testing.T, file string) []rulefmt.RuleGroup {
	t.Helper()
	var object struct{ Spec yaml.Node }
	if err := yaml.Unmarshal([]byte(read(t, folder+file)), &object); err != nil {
		t.Fatal(err)
	}
	spec, err := yaml.Marshal(&object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	all, errs := rulefmt.Parse(spec, false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Errorf("%s: %v", file, err)
	}
	if all == nil || len(all.Groups) == 0 {
		t.Fatalf("%s has no groups of rules", file)
	}
	return all.Groups
}

func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	var all []rulefmt.Rule
	for _, file := range []string{"prometheusrule.yaml", "prometheusrule-etcd.yaml"} {
		for _, g := range groups(t, file) {
			all = append(all, g.Rules...)
		}
	}
	return all
}

// TestEveryAlertHasASection: each alert has a section that says what to do, and each such section has its alert.
func TestEveryAlertHasASection(t *testing.T) {
	var alerts []string
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		alerts = append(alerts, r.Alert)
		if want := runbook + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %q, not %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", r.Alert)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: the severity is %q", r.Alert, r.Labels["severity"])
		}
	}
	var sections []string
	for _, section := range strings.Split(read(t, root+"/docs/alerts.md"), "\n## ")[1:] {
		name, body, _ := strings.Cut(section, "\n")
		sections = append(sections, name)
		for _, word := range []string{"\n- **Look**: ", "\n- **Do**: "} {
			if strings.Count(body, word) != 1 {
				t.Errorf("docs/alerts.md, %s: there is no line%s", name, word)
			}
		}
	}
	slices.Sort(alerts)
	slices.Sort(sections)
	if alerts = slices.Compact(alerts); !slices.Equal(alerts, sections) {
		t.Errorf("docs/alerts.md has the sections\n\t%v\nand there are the alerts\n\t%v", sections, alerts)
	}
}

// TestEveryAlertIsTried: testdata/alerts*.yaml has a case in which it fires, and no case is about an alert that does
// not exist: nothing would fire, and the case would always pass.
func TestEveryAlertIsTried(t *testing.T) {
	cases := read(t, "testdata/alerts.yaml") + read(t, "testdata/alerts-days.yaml")
	all := rules(t)
	for _, m := range regexp.MustCompile(`alertname="(\w+)"`).FindAllStringSubmatch(cases, -1) {
		if !slices.ContainsFunc(all, func(r rulefmt.Rule) bool { return r.Alert == m[1] }) {
			t.Errorf("testdata/alerts*.yaml: there is no alert %s", m[1])
		}
	}
	for _, r := range all {
		if r.Alert != "" && !regexp.MustCompile(`labels: ALERTS\{[^}]*alertname="`+r.Alert+`".*severity="`+
			r.Labels["severity"]+`"`).MatchString(cases) {
			t.Errorf("testdata/alerts*.yaml: there is no case in which %s fires with severity %s", r.Alert,
				r.Labels["severity"])
		}
	}
}

// TestReasonsAndRulesExist: what alerts and their cases ask for is what Quorate says: an alert that asks for a reason
// that there is not never fires, or always.
func TestReasonsAndRulesExist(t *testing.T) {
	reasons := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\tReason\w+ += "(\w+)"`).FindAllStringSubmatch(
		read(t, root+"/hooks/api/v1beta1/etcdcluster.go"), -1) {
		reasons[m[1]] = true
	}
	for _, own := range []string{"QuorumServes", "NotReconciling", "NotStalled"} {
		reasons[own] = true
	}
	rules := map[string]bool{}
	for _, m := range regexp.MustCompile(`NewRule\("(\w+)"`).FindAllStringSubmatch(read(t, root+"/hooks/rules/modes.go"), -1) {
		rules[m[1]] = true
	}
	if len(reasons) < 10 || len(rules) < 30 {
		t.Fatalf("only %d reasons and %d rules were found", len(reasons), len(rules))
	}
	asked := 0
	for _, file := range []string{folder + "prometheusrule.yaml", "testdata/alerts.yaml", "testdata/alerts-days.yaml"} {
		text := read(t, file)
		promised := regexp.MustCompile(`condition="(?:Available|Ready|Reconciling|Stalled)", reason!?[=~]+"([^"]*)"`)
		for _, m := range promised.FindAllStringSubmatch(text, -1) {
			for _, reason := range strings.Split(m[1], "|") {
				if asked++; !reasons[reason] {
					t.Errorf("%s: no cluster has the reason %s", file, reason)
				}
			}
		}
		for _, m := range regexp.MustCompile(`cluster_rule[^{]*\{[^}]*rule=~?"([^"]*)"`).FindAllStringSubmatch(text, -1) {
			for _, rule := range strings.Split(m[1], "|") {
				if asked++; !rules[rule] {
					t.Errorf("%s: there is no rule %s", file, rule)
				}
			}
		}
	}
	if asked < 20 {
		t.Errorf("only %d reasons and rules are asked for", asked)
	}
}

// TestGroupsHaveAnOrder: both files of cases name every group of rules, with what is recorded first. promtool takes a
// group that is not named at any time, and an alert before the series that it reads never fires in a case that is
// evaluated every ten minutes.
func TestGroupsHaveAnOrder(t *testing.T) {
	var recording, alerting []string
	for _, file := range []string{"prometheusrule.yaml", "prometheusrule-etcd.yaml"} {
		for _, g := range groups(t, file) {
			if slices.ContainsFunc(g.Rules, func(r rulefmt.Rule) bool { return r.Record != "" }) {
				recording = append(recording, g.Name)
			} else {
				alerting = append(alerting, g.Name)
			}
		}
	}
	for _, file := range []string{"testdata/alerts.yaml", "testdata/alerts-days.yaml"} {
		var cases struct {
			Order []string `yaml:"group_eval_order"`
		}
		if err := yaml.Unmarshal([]byte(read(t, file)), &cases); err != nil {
			t.Fatal(err)
		}
		if want := slices.Concat(recording, alerting); !slices.Equal(cases.Order, want) {
			t.Errorf("%s: group_eval_order is %v, not %v", file, cases.Order, want)
		}
	}
}

// metrics are the names of all metrics that can be asked for.
func metrics(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{"up": true}
	for _, m := range regexp.MustCompile("(?m)^\\| `(quorate_\\w+)` \\| (\\w+)").FindAllStringSubmatch(read(t,
		root+"/docs/reference/lists.md"), -1) {
		known[m[1]] = true // a test in server makes that page of the registry
		if m[2] == "histogram" {
			known[m[1]+"_bucket"], known[m[1]+"_count"], known[m[1]+"_sum"] = true, true, true
		}
	}
	for _, file := range []string{"etcd-3.6.txt", "metacontroller-1.5.txt"} {
		for _, name := range strings.Fields(read(t, filepath.Join("testdata", file))) {
			known[name] = true
		}
	}
	for _, r := range rules(t) {
		known[r.Record] = true
	}
	return known
}

// missing are the metrics of a query that there are not.
func missing(t *testing.T, known map[string]bool, query string) []string {
	t.Helper()
	tree, err := promQL.ParseExpr(query)
	if err != nil {
		t.Errorf("%v in\n%s", err, query)
		return nil
	}
	var all []string
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		if s, is := node.(*parser.VectorSelector); is {
			name := s.Name
			for _, m := range s.LabelMatchers {
				if m.Name == model.MetricNameLabel {
					name = m.Value
				}
			}
			if !known[name] {
				all = append(all, name)
			}
		}
		return nil
	})
	return all
}

// extensive is what etcd tells only with --metrics=extensive; docs/reference/metrics.md says so.
const extensive = "grpc_server_handling_seconds_bucket"

// TestRulesNameMetrics: no rule waits for a metric that nothing exports.
func TestRulesNameMetrics(t *testing.T) {
	known := metrics(t)
	known[extensive] = true
	for _, r := range rules(t) {
		if lacks := missing(t, known, r.Expr); len(lacks) > 0 {
			t.Errorf("%s%s asks for %v, which there is not", r.Alert, r.Record, lacks)
		}
	}
}

// sources are the files of hooks and of its packages, without tests.
func sources(t *testing.T) (list []string) {
	err := filepath.WalkDir(root+"/hooks", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			list = append(list, path)
		}
		return err
	})
	if err != nil || len(list) == 0 {
		t.Fatal("no sources of the hooks", err)
	}
	return list
}

// TestRulesNameReasons: rules, conditions and reasons that a query chooses are words of the hooks: after a rename an
// alert would stay silent.
func TestRulesNameReasons(t *testing.T) {
	var source strings.Builder
	for _, file := range sources(t) {
		source.WriteString(read(t, file))
	}
	for _, r := range rules(t) {
		tree, err := promQL.ParseExpr(r.Expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, selector := range parser.ExtractSelectors(tree) {
			for _, m := range selector {
				if !slices.Contains([]string{"rule", "condition", "reason"}, m.Name) {
					continue
				}
				for word := range strings.SplitSeq(m.Value, "|") {
					if !strings.Contains(source.String(), `"`+word+`"`) {
						t.Errorf("%s%s: no %s is called %s", r.Alert, r.Record, m.Name, word)
					}
				}
			}
		}
	}
}

type dashboard struct {
	SchemaVersion int
	Panels        []panel
	Templating    struct{ List []variable }
}

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr string }
}

type variable struct {
	Name, Type string
	Query      json.RawMessage // a string, or for Prometheus an object
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, folder+"dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDashboardAsksForMetrics: every query, those of the choices at the top too, parses and names metrics that there
// are.
func TestDashboardAsksForMetrics(t *testing.T) {
	d := readDashboard(t)
	known := metrics(t)
	values := []string{"$__rate_interval", "5m"}
	for _, v := range d.Templating.List {
		values = append(values, "$"+v.Name, "x")
		if v.Type != "query" {
			continue
		}
		var q struct{ Query string }
		if err := json.Unmarshal(v.Query, &q); err != nil {
			t.Fatalf("the variable %s: %v", v.Name, err)
		}
		m := regexp.MustCompile(`^label_values\((.*), \w+\)$`).FindStringSubmatch(q.Query)
		if m == nil {
			t.Errorf("the variable %s asks %q", v.Name, q.Query)
		} else if lacks := missing(t, known, m[1]); len(lacks) > 0 {
			t.Errorf("the variable %s asks for %v, which there is not", v.Name, lacks)
		}
	}
	for _, p := range d.Panels {
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("%q is a %s with %d queries", p.Title, p.Type, len(p.Targets))
		}
		for _, target := range p.Targets {
			if lacks := missing(t, known, strings.NewReplacer(values...).Replace(target.Expr)); len(lacks) > 0 {
				t.Errorf("%q asks for %v, which there is not", p.Title, lacks)
			}
		}
	}
}

// TestDashboardHasRoom: its panels have ids of their own, and lie beside each other in Grafana's grid, which has 24
// columns.
func TestDashboardHasRoom(t *testing.T) {
	d := readDashboard(t)
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%q: the id %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := taken[at]; other != "" || at[0] >= 24 {
					t.Fatalf("%q lies upon %q, or beyond the 24 columns, at %v", p.Title, other, at)
				}
				taken[at] = p.Title
			}
		}
	}
	if len(ids) < 20 || d.SchemaVersion == 0 {
		t.Errorf("%d panels, schema version %d", len(ids), d.SchemaVersion)
	}
}
