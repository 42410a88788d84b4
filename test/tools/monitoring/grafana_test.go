package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// sdk is generated from the schemas of Grafana, those of its panels and of its Prometheus data source.
const sdk = "github.com/grafana/grafana-foundation-sdk/go"

// know has the SDK read what our panels are. What it does not know it would read as anything.
func know() {
	r := cog.NewRuntime()
	r.RegisterPanelcfgVariant(stat.VariantConfig())
	r.RegisterPanelcfgVariant(table.VariantConfig())
	r.RegisterPanelcfgVariant(timeseries.VariantConfig())
	r.RegisterDataqueryVariant(prometheus.VariantConfig())
}

// words are the values of the enumerations of Grafana, by package and type. The SDK takes any value of its kind.
func words(t *testing.T) map[string][]string {
	t.Helper()
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", sdk).Output()
	if err != nil {
		t.Fatal(err)
	}
	constant := regexp.MustCompile(`(?m)^\t\w+\s+([A-Z]\w+)\s+= "?([^"\n]*)"?$`)
	all := map[string][]string{}
	for _, of := range []string{"common", "dashboard", "prometheus", "stat", "table", "timeseries"} {
		text := read(t, filepath.Join(strings.TrimSpace(string(folder)), of, "types_gen.go"))
		for _, m := range constant.FindAllStringSubmatch(text, -1) {
			all[of+"."+m[1]] = append(all[of+"."+m[1]], m[2])
		}
	}
	if !slices.Contains(all["dashboard.FieldColorModeId"], "palette-classic") {
		t.Fatal("the enumerations of Grafana were not found")
	}
	return all
}

// unknown are the values below v that their enumerations do not have.
func unknown(words map[string][]string, v reflect.Value) (list []error) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return unknown(words, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			list = append(list, unknown(words, v.Index(i))...)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			list = append(list, unknown(words, field)...)
		}
	default:
		name := path.Base(v.Type().PkgPath()) + "." + v.Type().Name()
		value := fmt.Sprint(v)
		if known := words[name]; len(known) > 0 && value != "" && !slices.Contains(known, value) {
			list = append(list, fmt.Errorf("%s is not a %s: %v", value, name, known))
		}
	}
	return list
}

// whole is the form that every Grafana reads.
type whole = grafana.Dashboard //nolint:staticcheck // v2 is another format, of the newest alone

// strict is what an UnmarshalJSONStrict of the SDK says; its list may be empty.
func strict(err error) error {
	var list cog.BuildErrors
	if errors.As(err, &list) && len(list) == 0 {
		return nil
	}
	return err
}

// asGrafana reads a dashboard by Grafana's own model.
func asGrafana(words map[string][]string, text []byte) error {
	if err := strict(new(whole).UnmarshalJSONStrict(text)); err != nil {
		return err
	}
	var all whole // read strictly, its panels have no options
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	list := append(unknown(words, reflect.ValueOf(all)), strict(all.Validate()))
	var raw struct{ Panels []rawPanel }
	list = append(list, json.Unmarshal(text, &raw))
	for i, p := range raw.Panels {
		if p.Type == "row" {
			continue
		}
		if err := asPanel(p, all.Panels[i].Panel); err != nil {
			list = append(list, fmt.Errorf("panels[%d]: %w", i, err))
		}
	}
	return errors.Join(list...)
}

// rawPanel is what the SDK does not read strictly.
type rawPanel struct {
	Type        string
	FieldConfig json.RawMessage
}

func asPanel(raw rawPanel, panel *grafana.Panel) error {
	if _, known := cog.ConfigForPanelcfgVariant(raw.Type); !known {
		return fmt.Errorf("there is no panel %q", raw.Type)
	}
	if panel.Datasource == nil || panel.FieldConfig == nil {
		return errors.New("no datasource or no fieldConfig")
	}
	list := []error{strict(new(grafana.FieldConfigSource).UnmarshalJSONStrict(raw.FieldConfig))}
	for _, target := range panel.Targets {
		q, is := target.(*prometheus.Dataquery)
		if !is || !reflect.DeepEqual(q.Datasource, panel.Datasource) {
			list = append(list, fmt.Errorf("%+v does not ask the panel's data source", target))
		}
	}
	if u := panel.FieldConfig.Defaults.Unit; u != nil && !slices.Contains(ours, *u) {
		list = append(list, fmt.Errorf("the unit %s", *u))
	}
	return errors.Join(list...)
}

// ours are the units of Grafana that the dashboard has.
var ours = []string{units.Short, units.Seconds, units.BytesIEC, units.PercentUnit}

// TestGrafanaReads: Grafana knows each field and each word of the dashboard, in panels, queries and choices. It would
// pass over an unknown one without a word, and draw something else.
func TestGrafanaReads(t *testing.T) {
	know()
	words := words(t)
	text := read(t, folder+"dashboard.json")
	if err := asGrafana(words, []byte(text)); err != nil {
		t.Fatal(err)
	}
	const target, panel, choice = "          ", "      ", "        "
	for _, c := range []struct{ old, damaged, want string }{
		{`"graphTooltip": 1`, `"graphToolTip": 1`, "unexpected field 'graphToolTip'"},
		{`"refresh": "30s"`, `"refresh": 30`, "refresh: json: cannot unmarshal number"},
		{`"targetBlank"`, `"targetblank"`, "unexpected field 'targetblank'"},
		{choice + `"multi": false`, choice + `"multi": "no"`, "templating.list[0].multi"},
		{choice + `"hide": 0`, choice + `"hide": 7`, "7 is not a dashboard.VariableHide"},
		{panel + `"type": "stat"`, panel + `"type": "stats"`, `there is no panel "stats"`},
		{panel + `"gridPos"`, panel + `"gridpos"`, "unexpected field 'gridpos'"},
		{`"w": 24`, `"w": 25`, "must be <= 24"},
		{`"colorMode"`, `"colourMode"`, "panels[1].options.Options: unexpected field 'colourMode'"},
		{`"graphMode": "none"`, `"graphMode": 3`, "panels[1].options.graphMode"},
		{`"graphMode": "none"`, `"graphMode": "nothing"`, "nothing is not a common.BigValueGraphMode"},
		{`"lastNotNull"`, `7`, "panels[1].options.reduceOptions.calcs"},
		{`"cellHeight": "sm"`, `"cellHeight": "small"`, "small is not a common.TableCellHeight"},
		{`"lineWidth"`, `"linewidth"`, "fieldConfig.defaults.custom.GraphFieldConfig: unexpected field 'linewidth'"},
		{`"palette-classic"`, `"palette-classical"`, "palette-classical is not a dashboard.FieldColorModeId"},
		{`"unit": "s"`, `"unit": "sec"`, "the unit sec"},
		{`"noValue"`, `"novalue"`, "unexpected field 'novalue'"},
		{`"steps"`, `"step"`, "unexpected field 'step'"},
		{`"transformations"`, `"transformation"`, "unexpected field 'transformation'"},
		{target + `"legendFormat"`, target + `"legend"`, "panels[1].targets[0].Dataquery: unexpected field 'legend'"},
		{target + `"expr"`, target + `"query"`, "panels[1].targets[0].expr: required field is missing"},
		{target + `"instant": true`, target + `"instant": "yes"`, "panels[1].targets[0].instant"},
		{target + `"editorMode": "code"`, target + `"editorMode": "text"`, "text is not a prometheus.QueryEditorMode"},
		{target + `  "uid"`, target + `  "uuid"`, "panels[1].targets[0].datasource.DataSourceRef: unexpected field 'uuid'"},
		{target + `  "type": "prometheus"`, target + `  "type": "loki"`, "does not ask the panel's data source"},
		{panel + `  "uid"`, panel + `  "name"`, "datasource.DataSourceRef: unexpected field 'name'"},
	} {
		damaged := strings.Replace(text, "\n"+c.old, "\n"+c.damaged, 1)
		if c.old == strings.TrimSpace(c.old) {
			damaged = strings.Replace(text, c.old, c.damaged, 1)
		}
		if damaged == text {
			t.Errorf("the dashboard has no %s", c.old)
		} else if err := asGrafana(words, []byte(damaged)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", strings.TrimSpace(c.damaged), err, c.want)
		}
	}
}

// TestDashboardChooses: what the dashboard asks a reader to choose is used, and nothing else that Grafana would leave
// in a query as it stands.
func TestDashboardChooses(t *testing.T) {
	chosen := []string{"__rate_interval"}
	for _, v := range readDashboard(t).Templating.List {
		chosen = append(chosen, v.Name)
	}
	var used []string
	for _, m := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(read(t, folder+"dashboard.json"), -1) {
		used = append(used, m[1])
	}
	slices.Sort(chosen)
	slices.Sort(used)
	if used = slices.Compact(used); !slices.Equal(used, chosen) {
		t.Errorf("used are %v, and there are %v", used, chosen)
	}
}
