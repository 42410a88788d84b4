//go:build unix && releases

package conformance

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/seed"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/reports"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// layouts are where others have the data directory in a member's volume, by their public sources.
var layouts = map[string]string{
	"Quorate":                    "data",
	"Bitnami's chart":            "data",         // mounted at /bitnami/etcd, ETCD_DATA_DIR=/bitnami/etcd/data
	"coreos/etcd-operator":       "data",         // mounted at /var/etcd, --data-dir=/var/etcd/data
	"etcd-io/etcd-operator":      ".",            // mounted at ETCD_DATA_DIR
	"cozystack, before v1alpha2": "default.etcd", // mounted at /var/run/etcd, --data-dir=/var/run/etcd/default.etcd
	"cozystack":                  ".",            // mounted at --data-dir=/var/lib/etcd
	"gardener/etcd-druid":        "new.etcd",     // mounted at /var/etcd/data, data-dir: /var/etcd/data/new.etcd
}

// TestClaimsInEveryLayout: the volumes of three members, as others leave them. Of two of them, one has all that was
// acknowledged, and tells that they are a quorum. None is changed.
func TestClaimsInEveryLayout(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "former", 3)
		client := old.Members[0].Client()
		put(t, client, "acknowledged", 100)
		_, err := seed.Survey(old.Members[0].DataDir(), "")
		require.ErrorContains(t, err, "in use")
		killAll(old)

		volumes, begun := t.TempDir(), map[string]bool{}
		at := func(m *etcdproc.Member, path string) string { return filepath.Join(volumes, m.Name, path) }
		for layout, path := range layouts {
			for _, m := range old.Members { // the volume is made afresh, and has the directory there
				place := at(m, path)
				require.NoError(t, os.RemoveAll(at(m, "")))
				require.NoError(t, os.MkdirAll(filepath.Dir(place), 0o700))
				require.NoError(t, os.Symlink(m.DataDir(), place))
			}
			told := map[string]reports.Survey{}
			best := old.Members[0]
			for _, m := range old.Members[:2] {
				report, err := seed.Survey(at(m, path), "")
				require.NoError(t, err, layout)
				told[m.Name] = report
				most := told[best.Name]
				if report.LastTerm > most.LastTerm || report.LastTerm == most.LastTerm &&
					report.LastIndex > most.LastIndex {
					best = m
				}
			}
			one, other := told["former-0"], told["former-1"]
			require.Equal(t, one.ClusterID, other.ClusterID)
			require.Equal(t, one.Electorates, other.Electorates)
			require.Len(t, one.Electorates, 1)
			require.Len(t, one.Electorates[0], 3)
			require.Equal(t, "former-0", one.Members[one.MemberID])
			require.Equal(t, "former-1", one.Members[other.MemberID])
			if begun[path] {
				continue // it is the same place
			}
			begun[path] = true
			fresh, _ := surviveFrom(t, version, "fresh", at(best, path), 0)
			fresh.WaitServing(fresh.Members...)
			client := fresh.Members[0].Client()
			require.EqualValues(t, 100, count(t, client, "acknowledged"), layout)
			killAll(fresh)
		}
	})
}

// TestWhoCouldVote: a member's directory tells whose votes may count, also by changes of members that only its log has.
func TestWhoCouldVote(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "old", 1, lazy...)
		first := old.Members[0]
		learner := old.NewMember("old-1")
		settle(t, old, decision.AddLearner{Name: learner.Name, PeerURL: learner.PeerURL})
		old.Join(learner, first)
		old.WaitServing(first, learner)
		m, _ := look(t, old.Endpoints())
		ids := []string{strconv.FormatUint(idOf(t, m, first), 16), strconv.FormatUint(idOf(t, m, learner), 16)}
		killAll(old)

		told, err := seed.Survey(first.DataDir(), "")
		require.NoError(t, err)
		require.Len(t, told.Electorates, 2, "%+v", told)
		require.Equal(t, ids[:1], told.Electorates[0], "it votes alone")
		require.ElementsMatch(t, ids, told.Electorates[1], "and if the learner voted")
		require.Contains(t, told.Members, ids[1])
	})
}
