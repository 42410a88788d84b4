package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
)

// scoped is a server that looks after the namespace shop and the label by=blue.
func scoped(t *testing.T, namespaces []string, selector string) *Server {
	t.Helper()
	s, _ := scheduleServer("2026-11-22T03:30:00Z")
	s.options.Scope.Namespaces = namespaces
	if selector != "" {
		parsed, err := labels.Parse(selector)
		require.NoError(t, err)
		s.options.Scope.Selector = parsed
	}
	return s
}

func labelled(value string) func(map[string]any) {
	return func(r map[string]any) { at(r, "parent", "metadata")["labels"] = map[string]any{"by": value} }
}

// calls are one to each hook of each kind, by its path.
func calls(t *testing.T, edit func(map[string]any)) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		"/sync": edited(t, edit), "/customize": edited(t, edit),
		"/snapshots/sync": aSnapshotCall(t, edit), "/snapshots/customize": aSnapshotCall(t, edit),
		"/schedules/sync": aScheduleCall(t, edit),
	}
}

// finals are those to the hook finalize.
func finals(t *testing.T, edit func(map[string]any)) map[string][]byte {
	t.Helper()
	return map[string][]byte{"/finalize": edited(t, edit), "/snapshots/finalize": aSnapshotCall(t, edit),
		"/schedules/finalize": aScheduleCall(t, edit)}
}

// TestOtherNamespacesAreRefused: nothing is answered about them, so that Metacontroller changes nothing there.
func TestOtherNamespacesAreRefused(t *testing.T) {
	leave := func(map[string]any) {}
	for path, body := range calls(t, leave) {
		require.Equal(t, http.StatusOK, post(scoped(t, []string{"shop", "b"}, "").Handler(), path, body).Code, path)
		w := post(scoped(t, []string{"b", "c"}, "").Handler(), path, body)
		require.Equal(t, http.StatusForbidden, w.Code, path)
		require.Contains(t, errorOf(t, w), "is in a namespace that this Quorate does not look after, so nothing is "+
			"changed: it was installed with --only-namespaces=b,c")
		require.Contains(t, errorOf(t, w), " shop/")
	}
	for path, body := range finals(t, being(true)) {
		require.Equal(t, http.StatusOK, post(scoped(t, []string{"shop"}, "").Handler(), path, body).Code, path)
		require.Equal(t, http.StatusForbidden, post(scoped(t, []string{"b"}, "").Handler(), path, body).Code, path)
	}
}

// TestOtherLabelsAreRefused: also when Metacontroller does not know the selector and asks about everything.
func TestOtherLabelsAreRefused(t *testing.T) {
	for _, value := range []string{"green", "blue"} {
		for path, body := range calls(t, labelled(value)) {
			w := post(scoped(t, nil, "by=blue").Handler(), path, body)
			// which only says what to send along
			if value == "blue" || path == "/customize" || path == "/snapshots/customize" {
				require.Equal(t, http.StatusOK, w.Code, path)
				continue
			}
			require.Equal(t, http.StatusForbidden, w.Code, path)
			require.Contains(t, errorOf(t, w), "so nothing is changed: it was installed with --selector=by=blue")
		}
	}
}

// TestLetGo: what has other labels now is left to the Quorate they belong to: nothing is changed, the finalizer goes,
// whether or not it is being deleted. What has ours stays until it has been finalized.
func TestLetGo(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		for path, body := range finals(t, func(r map[string]any) {
			being(deleted)(r)
			r["finalizing"] = true
			labelled("green")(r)
			at(r, "parent", "spec")["deletionProtection"] = true
		}) {
			w := post(scoped(t, nil, "by=blue").Handler(), path, body)
			require.Equal(t, http.StatusOK, w.Code, "%s: %s", path, w.Body.String())
			require.Equal(t, true, generic(t, w.Body.Bytes())["finalized"], path)
			given := 0
			for _, group := range at(generic(t, body), "children") {
				given += len(group.(map[string]any))
			}
			require.Len(t, generic(t, w.Body.Bytes())["children"], given, "%s: all children stay", path)
			require.JSONEq(t, asJSON(t, at(generic(t, body), "parent")["status"]),
				asJSON(t, generic(t, w.Body.Bytes())["status"]), path)
		}
	}
	protected := func(r map[string]any) {
		being(true)(r)
		labelled("blue")(r)
		at(r, "parent", "spec")["deletionProtection"] = true
	}
	w := post(scoped(t, nil, "by=blue").Handler(), "/finalize", edited(t, protected))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Equal(t, false, generic(t, w.Body.Bytes())["finalized"])
	w = post(scoped(t, nil, "by=blue").Handler(), "/finalize",
		edited(t, func(r map[string]any) { r["finalizing"] = true; labelled("blue")(r) }))
	require.Equal(t, http.StatusBadRequest, w.Code, "ours, and not being deleted")
}

// TestWhatIsWrongFirst: of all that is wrong with a call the same is said for each kind: that its namespace is
// another's, then that it came to the wrong hook, then that its labels are another's, and last that its parent is not
// being deleted. None of these is answered.
func TestWhatIsWrongFirst(t *testing.T) {
	const elsewhere, misplaced, labels = "does not look after, so nothing is changed", "finaliz", "has not the labels"
	for _, c := range []struct {
		namespace, by             string
		sync, finalizing, deleted bool
		code                      int
		says                      string
	}{
		{namespace: "bank", by: "green", sync: true, finalizing: true, code: 403, says: elsewhere},
		{namespace: "bank", by: "green", code: 403, says: elsewhere},
		{namespace: "shop", by: "green", sync: true, finalizing: true, deleted: true, code: 400, says: misplaced},
		{namespace: "shop", by: "green", code: 400, says: misplaced},
		{namespace: "shop", by: "green", sync: true, code: 403, says: labels},
		{namespace: "shop", by: "blue", finalizing: true, code: 400, says: misplaced},
		{namespace: "shop", by: "blue", sync: true, code: 200},
		{namespace: "shop", by: "blue", finalizing: true, deleted: true, code: 200},
		{namespace: "shop", by: "green", finalizing: true, code: 200},
	} {
		edit := func(r map[string]any) {
			being(c.deleted)(r)
			r["finalizing"] = c.finalizing
			labelled(c.by)(r)
		}
		to := finals(t, edit)
		if c.sync {
			to = calls(t, edit)
		}
		for path, body := range to {
			if strings.HasSuffix(path, "/customize") {
				continue
			}
			w := post(scoped(t, []string{c.namespace}, "by=blue").Handler(), path, body)
			require.Equal(t, c.code, w.Code, "%s %+v: %s", path, c, w.Body.String())
			require.Contains(t, w.Body.String(), c.says, path)
		}
	}
}

// TestSnapshotsOfASchedule have its label, or the Quorate that looks after the schedule would not look after them.
func TestSnapshotsOfASchedule(t *testing.T) {
	body := aScheduleCall(t, labelled("blue"))
	for name, told := range toldOf(t, post(scoped(t, nil, "by in (blue, azure)").Handler(), "/schedules/sync",
		body).Body.Bytes()) {
		require.Equal(t, "blue", at(told, "metadata", "labels")["by"], name)
	}
	for name, told := range toldOf(t, post(scoped(t, nil, "").Handler(), "/schedules/sync", body).Body.Bytes()) {
		require.NotContains(t, at(told, "metadata", "labels"), "by", name)
	}
	let := aScheduleCall(t, labelled("green"), func(r map[string]any) {
		r["finalizing"] = true
		at(r, "children", groupSnapshots, running, "metadata", "labels")["by"] = "blue"
	})
	told := toldOf(t, post(scoped(t, nil, "by=blue").Handler(), "/schedules/finalize", let).Body.Bytes())
	require.Equal(t, "blue", at(told[running], "metadata", "labels")["by"], "until the next Quorate gives it its own")
}

func asJSON(t *testing.T, o any) string {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	return string(text)
}
