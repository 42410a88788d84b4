package manifests

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// recorded is an object as it was after a verb of a story, and what it really lacked
// (test/simulated/scenario/record_test.go).
type recorded struct {
	APIVersion, Kind, At, Lacks string
	Object                      map[string]any
}

// TestTools: what the tools of others make of every status in every story of test/simulated/scenario. By kstatus' own
// code, no object is current whose condition Ready is not True or that lacks anything of its spec, and it has failed
// just when it is Stalled, which it stays until a person acts. The Lua for Argo CD says the same.
func TestTools(t *testing.T) {
	argo := healthByLua(t, "../../../manifests/gitops/argocd-health.lua")
	verdicts, healths, stalled := map[string]int{}, map[string]int{}, map[string]string{}
	for _, r := range tellStories(t) {
		u := &unstructured.Unstructured{Object: integers(r.Object).(map[string]any)}
		u.SetAPIVersion(r.APIVersion)
		u.SetKind(r.Kind)
		verdict, err := status.Compute(u)
		if err != nil {
			t.Fatalf("%s: %s: %v", r.At, r.Kind, err)
		}
		verdicts[r.Kind+" "+verdict.Status.String()]++
		holds, observed := conditionsOf(u)
		follow(t, stalled, r, holds)
		if verdict.Status == status.CurrentStatus && (!holds["Ready"] || r.Lacks != "") {
			t.Errorf("%s: %s is current, with %v, and lacks: %s", r.At, r.Kind, holds, r.Lacks)
		}
		if failed := verdict.Status == status.FailedStatus; failed != (holds["Stalled"] && observed &&
			u.GetDeletionTimestamp() == nil) {
			t.Errorf("%s: %s is %s, with %v", r.At, r.Kind, verdict.Status, holds)
		}
		want := map[status.Status]string{
			status.CurrentStatus: "Healthy", status.InProgressStatus: "Progressing", status.FailedStatus: "Degraded",
			status.TerminatingStatus: "Progressing",
		}[verdict.Status]
		if suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend"); suspended && observed &&
			u.GetDeletionTimestamp() == nil {
			want = "Suspended"
		}
		health, message := argo(u.Object)
		if health != want || message == "" {
			t.Errorf("%s: %s is %s (%q) for Argo CD, and %s by kstatus: want %s", r.At, r.Kind, health, message,
				verdict.Status, want)
		}
		healths[r.Kind+" "+health]++
	}
	for _, all := range []string{
		"EtcdCluster Current", "EtcdCluster InProgress", "EtcdCluster Failed", "EtcdSnapshot Current",
		"EtcdSnapshot InProgress", "EtcdSnapshot Failed",
		"EtcdSnapshotSchedule Current", "EtcdSnapshotSchedule Failed", "EtcdSnapshotSchedule InProgress",
	} {
		if verdicts[all] == 0 {
			t.Errorf("no story shows %s: %v", all, verdicts)
		}
	}
	for _, all := range []string{"EtcdCluster Suspended", "EtcdSnapshotSchedule Suspended"} {
		if healths[all] == 0 {
			t.Errorf("no story shows %s: %v", all, healths)
		}
	}
}

// alone are the verbs of stories by which only time passes and Quorate acts; looked those of them that end with a
// status of what is there.
var alone, looked = []string{"sync", "two-syncs", "stabilize", "pass", "tick", "check", "call", "apply", "look",
	"kubelet", "collect", "clients", "certificates", "space"}, []string{"sync", "two-syncs", "stabilize"}

// follow insists that what is Stalled stays so until a person or another controller acts. (A claim that the API server
// has refused to let grow is asked for again every ten minutes, and nothing but the question goes on.)
func follow(t *testing.T, stalled map[string]string, r recorded, holds map[string]bool) {
	t.Helper()
	place, verb := r.At[:strings.LastIndex(r.At, " ")], r.At[strings.LastIndex(r.At, " ")+1:]
	story := place[:strings.Index(place, ".txt")]
	asks := strings.HasSuffix(story, "storage_grow_refused")
	switch {
	case !slices.Contains(alone, verb):
		delete(stalled, story)
	case holds["Stalled"] && slices.Contains(looked, verb):
		stalled[story] = place
	case !holds["Stalled"] && stalled[story] != "" && !asks:
		t.Errorf("%s: %s was Stalled at %s, and has gone on by itself", r.At, r.Kind, stalled[story])
		delete(stalled, story)
	}
}

// tellStories tells all stories, and returns each object after each verb.
func tellStories(t *testing.T) []recorded {
	t.Helper()
	path := filepath.Join(t.TempDir(), "recorded")
	stories := exec.Command("go", "test", "-C", "../../..", "-count=1", "-run=^Test(Snapshot|Schedule)?Stories$",
		"./test/simulated/scenario")
	stories.Env = append(os.Environ(), "QUORATE_RECORD="+path)
	if out, err := stories.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", stories.Args, err, out)
	}
	file, err := os.Open(path)
	must(t, err)
	defer func() { _ = file.Close() }()
	var all []recorded
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r recorded
		must(t, json.Unmarshal(lines.Bytes(), &r))
		all = append(all, r)
	}
	must(t, lines.Err())
	return all
}

// conditionsOf are the conditions that are True, and whether the status is of the newest spec.
func conditionsOf(u *unstructured.Unstructured) (holds map[string]bool, observed bool) {
	holds = map[string]bool{}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		condition := c.(map[string]any)
		holds[condition["type"].(string)] = condition["status"] == "True"
	}
	of, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	return holds, of == u.GetGeneration()
}

// healthByLua is what a script says of an object, run as Argo CD does: the object is the global obj, and what is
// returned has status and message.
func healthByLua(t *testing.T, path string) func(object map[string]any) (health, message string) {
	t.Helper()
	script := fileOf(t, path)
	return func(object map[string]any) (string, string) {
		l := lua.NewState(lua.Options{SkipOpenLibs: true})
		defer l.Close()
		for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
			lua.StringLibName: lua.OpenString} {
			l.Push(l.NewFunction(open))
			l.Push(lua.LString(name))
			l.Call(1, 0)
		}
		l.SetGlobal("obj", luaValue(l, object))
		must(t, l.DoString(string(script)))
		said, is := l.Get(-1).(*lua.LTable)
		if !is {
			t.Fatalf("the script returns %v", l.Get(-1))
		}
		return lua.LVAsString(said.RawGetString("status")), lua.LVAsString(said.RawGetString("message"))
	}
}

func luaValue(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, value := range v {
			table.RawSetString(key, luaValue(l, value))
		}
		return table
	case []any:
		table := l.NewTable()
		for _, value := range v {
			table.Append(luaValue(l, value))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	}
	return lua.LNil
}
