//go:build unix

package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// recorded is the record of the order's artifact; nil for none. Without an artifact there is none.
func recorded(t *testing.T, o Order) *stores.Snapshot {
	t.Helper()
	object := filepath.Join(o.Place.Dir, "folder", o.Key)
	text, err := os.ReadFile(object + ".json")
	if err != nil {
		require.NoFileExists(t, object)
		return nil
	}
	require.FileExists(t, object)
	var report stores.Snapshot
	require.NoError(t, json.Unmarshal(text, &report))
	return &report
}

func TestTake(t *testing.T) {
	c := fakes(t, 3, 20)
	o := c.order(t, "well")
	before := time.Now()
	report, err := Take(soon(t), o)
	require.NoError(t, err)
	for _, at := range []time.Time{report.Started, report.Completed, report.VerifiedAt} {
		assert.False(t, at.Before(before), "no time is earlier than it was")
		before = at
	}
	assert.EqualValues(t, 21, report.Revision)
	assert.EqualValues(t, 20, report.Keys)
	assert.EqualValues(t, 1, report.AuthRevision)
	assert.Equal(t, "c1", report.ClusterID)
	assert.Equal(t, "demo-1", report.Member, "a follower")
	assert.Equal(t, "demo-2", report.HashOf, "another one")
	assert.Equal(t, "demo-2", report.KeysOf)
	assert.False(t, report.VerifiedAt.IsZero())
	assert.Equal(t, &report, recorded(t, o))
	left, err := os.ReadDir(o.Scratch)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestWhatAStoreRefuses: a client that may not read may still write. One that the store does not know may do nothing,
// and is told so before anything is sent: a store that answers in the middle of an upload, and hangs up, seems to be
// out of reach.
func TestWhatAStoreRefuses(t *testing.T) {
	const alone = "QUORATE_TEST_ALONE" // what a process trusts, it trusts for good
	if os.Getenv(alone) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWhatAStoreRefuses$")
		cmd.Env = append(os.Environ(), alone+"=1", "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=wrong")
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", said)
		return
	}
	for code, writes := range map[string]bool{"SignatureDoesNotMatch": false, "InvalidAccessKeyId": false,
		"AccessDenied": true, "AuthorizationPermissionMismatch": true} {
		t.Run(code, func(t *testing.T) {
			var uploads atomic.Int32
			s3 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut || r.Method == http.MethodPost {
					uploads.Add(1)
					panic(http.ErrAbortHandler) // it hangs up
				}
				w.WriteHeader(http.StatusForbidden)
				_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
			}))
			t.Cleanup(s3.Close)
			o := fakes(t, 1, 20).order(t, "refused")
			o.Place = Place{URL: "s3://bucket/folder?use_path_style=true&region=r&endpoint=" + s3.URL}
			_, err := Take(soon(t), o)
			require.Equal(t, writes, uploads.Load() > 0)
			if !writes {
				require.Equal(t, Denied, ReasonOf(err))
				require.ErrorContains(t, err, "check the credentials of the store")
				return
			}
			require.Equal(t, Unreachable, ReasonOf(err))
		})
	}
}

// TestNeverOlderThanAsked: what was written before a snapshot was asked for is in it, whatever the member says that
// gives it.
func TestNeverOlderThanAsked(t *testing.T) {
	t.Run("a follower that lags is not taken", func(t *testing.T) {
		c := fakes(t, 3, 20)
		c.holds(t, 10, c.members[1], c.members[2])
		report, err := Take(soon(t), c.order(t, "well"))
		require.NoError(t, err)
		assert.Equal(t, "demo-0", report.Member)
		assert.EqualValues(t, 21, report.Revision)
	})
	t.Run("one that catches up in time is", func(t *testing.T) {
		c := fakes(t, 3, 20)
		database := c.members[0].database
		c.holds(t, 10, c.members[1], c.members[2])
		o := c.order(t, "well")
		o.Cluster.patience = time.Minute
		asked := 0
		c.asked = func(f *fake, question string) {
			if asked++; f.id == 3 && question == "status" && asked > 15 {
				f.database, f.revision, f.keys, f.hash = database, 21, 20, c.members[0].hash
			}
		}
		report, err := Take(soon(t), o)
		require.NoError(t, err)
		assert.Equal(t, "demo-2", report.Member)
		assert.EqualValues(t, 21, report.Revision)
	})
	t.Run("one that lags in entries that raise no revision, such as those of users, is not", func(t *testing.T) {
		c := fakes(t, 2, 20)
		c.members[0].applied = 30
		report, err := Take(soon(t), c.order(t, "well"))
		require.NoError(t, err)
		assert.Equal(t, "demo-0", report.Member)
	})
	t.Run("one whose database lags behind its status is not believed", func(t *testing.T) {
		c := fakes(t, 3, 20)
		c.holds(t, 10, c.members[1])
		c.members[1].revision = 21
		o := c.order(t, "well")
		report, err := Take(soon(t), o)
		require.NoError(t, err)
		assert.Equal(t, "demo-2", report.Member)
		assert.EqualValues(t, 21, report.Revision)
		assert.Equal(t, &report, recorded(t, o))
	})
	t.Run("nor one whose users lag", func(t *testing.T) {
		c := fakes(t, 2, 20)
		c.authRevision = 5
		c.holds(t, 20, c.members[0])
		report, err := Take(soon(t), c.order(t, "well"))
		require.NoError(t, err)
		assert.Equal(t, "demo-0", report.Member)
		assert.EqualValues(t, 5, report.AuthRevision)
	})
	t.Run("when no member has it, what there is is kept and not verified", func(t *testing.T) {
		c := fakes(t, 1, 20)
		c.members[0].revision, c.revision = 22, 22
		o := c.order(t, "well")
		report, err := Take(soon(t), o)
		require.Error(t, err)
		assert.Equal(t, stale, ReasonOf(err), "%v", err)
		assert.NotEmpty(t, report.URI)
		assert.True(t, recorded(t, o).VerifiedAt.IsZero())
		assert.EqualValues(t, 22, report.Revision, "the bound")
	})
	t.Run("when no member has come so far, nothing is taken", func(t *testing.T) {
		c := fakes(t, 2, 20)
		c.revision = 30
		_, err := Take(soon(t), c.order(t, "well"))
		assert.Equal(t, Unreachable, ReasonOf(err), "%v", err)
		assert.Zero(t, c.taken())
	})
	t.Run("a run without verification has the bound as its revision", func(t *testing.T) {
		c := fakes(t, 1, 20)
		o := c.order(t, "well")
		o.Verify = false
		report, err := Take(soon(t), o)
		require.NoError(t, err)
		assert.EqualValues(t, 21, report.Revision)
		assert.Empty(t, report.Hash)
	})
}

// TestOnlyEndpoints: members advertise URLs that an administrator did not allow.
func TestOnlyEndpoints(t *testing.T) {
	c := fakes(t, 3, 20)
	o := c.order(t, "well")
	o.Cluster.OnlyEndpoints = true
	o.Cluster.Endpoints = []string{c.members[0].url, c.members[2].url,
		strings.Replace(c.members[2].url, "127.0.0.1", "localhost", 1)}
	asked := map[string]bool{}
	c.asked = func(f *fake, _ string) { asked[f.name] = true }
	report, err := Take(soon(t), o)
	require.NoError(t, err)
	assert.Equal(t, "demo-2", report.Member, "a follower")
	assert.Equal(t, "demo-0", report.HashOf, "the only other one, since the third URL is the second again")
	assert.Equal(t, map[string]bool{"demo-0": true, "demo-2": true}, asked)

	require.NoError(t, Discard(soon(t), o.Place, o.Key))
	o.Cluster.Endpoints = []string{c.members[2].url}
	report, err = Take(soon(t), o)
	require.NoError(t, err)
	assert.Empty(t, report.HashOf, "no other member is asked")
}

// TestUnless: what need not be stored again is the same cluster with the same keys and the same users.
func TestUnless(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Unless)
		skipped bool
	}{
		"as it was":       {func(*Unless) {}, true},
		"another cluster": {func(u *Unless) { u.ClusterID = "c2" }, false},
		"other keys":      {func(u *Unless) { u.Revision-- }, false},
		"other users":     {func(u *Unless) { u.AuthRevision-- }, false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := fakes(t, 3, 20)
			cluster.holds(t, 10, cluster.members[1]) // what lags does not make a change look like none
			o := cluster.order(t, "well")
			o.Unless = &Unless{Revision: 21, ClusterID: "c1", AuthRevision: 1}
			c.change(o.Unless)
			report, err := Take(soon(t), o)
			require.NoError(t, err)
			assert.Equal(t, c.skipped, report.Skipped)
			assert.Equal(t, c.skipped, cluster.taken() == 0)
			assert.Equal(t, []any{int64(21), int64(1), "c1"},
				[]any{report.Revision, report.AuthRevision, report.ClusterID})
			assert.Equal(t, c.skipped, report.URI == "")
		})
	}
}

// TestStoppedWhileVerifying: what was stored whole stays, with a record, and the next run verifies it and takes no
// other.
func TestStoppedWhileVerifying(t *testing.T) {
	for _, at := range []string{"etcd hangs", "hash"} {
		t.Run(at, func(t *testing.T) {
			c := fakes(t, 3, 20)
			o := c.order(t, at)
			ctx, stop := context.WithCancel(soon(t))
			c.asked = func(_ *fake, question string) {
				switch {
				case question == at:
					stop()
				case question == "snapshot" && at == "etcd hangs":
					time.AfterFunc(time.Second, stop)
				}
			}
			report, err := Take(ctx, o)
			require.Error(t, err)
			assert.NotEqual(t, Damaged, ReasonOf(err), "%v", err)
			assert.NotEmpty(t, report.Error)
			assert.NotEmpty(t, report.URI, "it is stored")
			left := recorded(t, o)
			require.NotNil(t, left, "what was stored stays")
			assert.True(t, left.VerifiedAt.IsZero())
			assert.Equal(t, left.Artifact, report.Artifact)

			t.Setenv(envPrograms, "well")
			c.asked = func(*fake, string) {}
			again, err := Take(soon(t), o)
			require.NoError(t, err)
			assert.Equal(t, 1, c.taken(), "the next run verifies what there is")
			assert.False(t, again.VerifiedAt.IsZero())
			assert.Equal(t, &again, recorded(t, o))
		})
	}
}

// TestNextRun: whatever an earlier run has left, the next one ends with an artifact that is verified, and takes
// another only where that one does not do.
func TestNextRun(t *testing.T) {
	for name, c := range map[string]struct {
		left  func(t *testing.T, c *fakeCluster, o Order)
		taken int
	}{
		"whole": {func(*testing.T, *fakeCluster, Order) {}, 1},
		"whole, and etcd has written since": {func(t *testing.T, c *fakeCluster, _ Order) {
			c.holds(t, 30, c.members...)
		}, 1},
		"whole, and the cluster has no quorum": {func(_ *testing.T, c *fakeCluster, _ Order) {
			for _, f := range c.members {
				f.silent = true
			}
		}, 1},
		"whole, and the cluster was made again": {func(t *testing.T, c *fakeCluster, _ Order) {
			c.id = 0xC2
			for _, f := range c.members {
				f.hash++ // other data at the same revision
			}
		}, 1},
		"cut off": {func(t *testing.T, _ *fakeCluster, o Order) {
			object := filepath.Join(o.Place.Dir, "folder", o.Key)
			info, err := os.Stat(object)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(object, info.Size()-1))
		}, 2},
		"changed": {func(t *testing.T, _ *fakeCluster, o Order) {
			object := filepath.Join(o.Place.Dir, "folder", o.Key)
			raw, err := os.ReadFile(object)
			require.NoError(t, err)
			put(t, object, flipped(raw, len(raw)/2))
		}, 2},
		"without a record": {func(t *testing.T, _ *fakeCluster, o Order) {
			require.NoError(t, os.Remove(filepath.Join(o.Place.Dir, "folder", o.Key+".json")))
		}, 2},
		"with half a record": {func(t *testing.T, _ *fakeCluster, o Order) {
			require.NoError(t, os.Truncate(filepath.Join(o.Place.Dir, "folder", o.Key+".json"), 20))
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := fakes(t, 3, 20)
			o := cluster.order(t, "etcd can't start")
			_, err := Take(soon(t), o)
			require.Error(t, err)
			require.NotNil(t, recorded(t, o))
			require.Equal(t, 1, cluster.taken())
			c.left(t, cluster, o)
			t.Setenv(envPrograms, "well")
			// what is stored by this very run is no reason to skip it
			o.Unless = &Unless{Revision: 21, ClusterID: "c1", AuthRevision: 1}
			if c.taken > 1 {
				o.Unless = nil
			}
			report, err := Take(soon(t), o)
			require.NoError(t, err)
			assert.False(t, report.Skipped)
			assert.False(t, report.VerifiedAt.IsZero())
			assert.Equal(t, c.taken, cluster.taken())
			assert.Equal(t, &report, recorded(t, o))
		})
	}
}

// TestNextRunOfAnEncryptedOne: no later run can open what an earlier one has encrypted, so another one is taken; until
// that is whole the first one stays.
func TestNextRunOfAnEncryptedOne(t *testing.T) {
	c := fakes(t, 3, 20)
	o := c.order(t, "etcd can't start")
	o.Form = Form{Compression: v1beta1.CompressZstd, Recipients: []age.Recipient{identity(t).Recipient()}}
	first, err := Take(soon(t), o)
	require.Error(t, err)
	require.True(t, first.Encrypted)

	for _, f := range c.members { // it breaks off, or can't be asked
		f.database = f.database[:len(f.database)-1]
	}
	second, err := Take(soon(t), o)
	require.Error(t, err)
	assert.Equal(t, first.Artifact, second.Artifact)
	assert.Equal(t, first.Artifact, recorded(t, o).Artifact, "what was stored stays")
	c.revision = 1000
	_, err = Take(soon(t), o)
	require.Error(t, err)
	assert.Equal(t, first.Artifact, recorded(t, o).Artifact)

	t.Setenv(envPrograms, "well")
	c.holds(t, 25, c.members...)
	c.revision = 26
	third, err := Take(soon(t), o)
	require.NoError(t, err)
	assert.EqualValues(t, 26, third.Revision)
	assert.False(t, third.VerifiedAt.IsZero())
	assert.Equal(t, &third, recorded(t, o))
}

// TestLook reports what is stored and takes nothing.
func TestLook(t *testing.T) {
	c := fakes(t, 1, 20)
	o := c.order(t, "etcd can't start")
	none, err := Look(soon(t), o.Place, o.Key)
	require.NoError(t, err)
	assert.Equal(t, stores.Snapshot{Absent: true}, none)
	_, err = Take(soon(t), o)
	require.Error(t, err)
	found, err := Look(soon(t), o.Place, o.Key)
	require.NoError(t, err)
	assert.Equal(t, recorded(t, o), &found)
	require.NoError(t, os.Truncate(filepath.Join(o.Place.Dir, "folder", o.Key), 7))
	none, err = Look(soon(t), o.Place, o.Key)
	require.NoError(t, err)
	assert.Equal(t, stores.Snapshot{Absent: true}, none, "what is not whole is nothing")
	_, err = Look(soon(t), o.Place, "../elsewhere")
	assert.Error(t, err)
}

// TestVerificationThatFails: what disproves the artifact removes it, and another member is asked. Whatever else goes
// wrong leaves it.
func TestVerificationThatFails(t *testing.T) {
	for behaviour, c := range map[string]struct {
		reason string
		kept   bool
		taken  int
	}{
		"a page is damaged":         {Damaged, false, 3},
		"a page is lost":            {Damaged, false, 3},
		"etcdutl panics":            {Differs, true, 3},
		"etcd panics":               {Differs, true, 3},
		"etcd counts otherwise":     {Differs, true, 3},
		"the restore can't read it": {Failed, true, 1},
		"the disk forgets":          {Failed, true, 1},
		"the disk loses a part":     {Failed, true, 1},
		"the disk is full":          {NoSpace, true, 1},
		"etcd has no room":          {NoSpace, true, 1},
		"etcd is killed":            {Failed, true, 1},
		"etcd can't start":          {Failed, true, 1},
	} {
		t.Run(behaviour, func(t *testing.T) {
			cluster := fakes(t, 3, 20)
			cluster.wrong(behaviour)
			o := cluster.order(t, behaviour)
			report, err := Take(soon(t), o)
			require.Error(t, err)
			assert.Equal(t, c.reason, ReasonOf(err), "%v", err)
			assert.True(t, report.VerifiedAt.IsZero())
			assert.Equal(t, c.kept, recorded(t, o) != nil, "%v", err)
			assert.Equal(t, c.kept, report.URI != "", "%v", err)
			assert.Equal(t, !c.kept, report.Absent)
			assert.Equal(t, c.taken, cluster.taken())
			assert.NotContains(t, err.Error(), "file://")
		})
	}
}

// wrong gives all members a database that is wrong, sealed all the same.
func (c *fakeCluster) wrong(behaviour string) {
	for _, f := range c.members {
		raw := bytes.Clone(f.database[:len(f.database)-sha256.Size])
		size := os.Getpagesize()
		switch behaviour {
		case "a page is damaged":
			for at := 2 * size; at < len(raw); at += size {
				raw[at+8] = 0x20 // no kind of page
			}
		case "a page is lost": // from the list of free pages
			for at := 2 * size; at < len(raw); at += size {
				if raw[at+8] == 0x10 {
					raw[at+10]--
				}
			}
		default:
			return
		}
		f.database = sealed(raw)
	}
}

// TestKilledWhileOnTrial: who reads the error knows which limit of memory to set, also when the kernel kills the
// whole container with etcd: then what was told before etcd was started is all that is left.
func TestKilledWhileOnTrial(t *testing.T) {
	// the latter is that of a limit of 640Mi
	for limit, want := range map[string]string{"": "320Mi", "603979776": "960Mi"} {
		t.Run(want, func(t *testing.T) {
			o := fakes(t, 3, 20).order(t, "etcd is killed")
			t.Setenv("GOMEMLIMIT", limit)
			var told []*stores.Snapshot
			o.Tell = func(r *stores.Snapshot) { told = append(told, r) }
			report, err := Take(soon(t), o)
			require.Error(t, err)
			words := "because it was out of memory: there are 20 keys in 20 records; set " +
				"spec.job.resources.limits.memory to " + want
			assert.Contains(t, report.Error, "etcd was killed while it starts on the "+
				"restored snapshot, most likely "+words)
			require.Len(t, told, 2)
			assert.Equal(t, report.Artifact, told[0].Artifact)
			assert.Contains(t, told[0].Error, "the pod was killed")
			assert.Contains(t, told[0].Error, words)
			assert.Nil(t, told[1], "etcd runs no longer")
		})
	}
}

// TestWitnesses: one member that says otherwise disproves nothing.
func TestWitnesses(t *testing.T) {
	for name, c := range map[string]struct {
		members int
		change  func(c *fakeCluster)
		reason  string // empty: it is verified
		kept    bool
		hashOf  string
		warning string
	}{
		"all agree":                        {3, func(*fakeCluster) {}, "", true, "demo-2", ""},
		"one lags: the leader is asked":    {3, func(c *fakeCluster) { c.members[2].revision-- }, "", true, "demo-0", ""},
		"one is down: the leader is asked": {3, func(c *fakeCluster) { c.members[2].stop() }, "", true, "demo-0", ""},
		"one lags, and the leader has another": {3,
			func(c *fakeCluster) { c.members[2].revision--; c.members[0].hash++ }, Failed, true, "", ""},
		"the leader can't say either": {3,
			func(c *fakeCluster) { c.members[2].silent, c.members[0].silent = true, true }, "", true, "", ""},
		"one of five lags":        {5, func(c *fakeCluster) { c.members[4].revision-- }, "", true, "demo-3", ""},
		"one has compacted since": {3, func(c *fakeCluster) { c.members[2].compacted = 5 }, "", true, "demo-0", ""},
		"all have compacted since": {3,
			func(c *fakeCluster) { c.members[0].compacted, c.members[2].compacted = 5, 5 }, "", true, "", ""},
		"no other member is there": {1, func(*fakeCluster) {}, "", true, "", ""},
		"one has another hash": {3, func(c *fakeCluster) { c.members[2].hash++ }, "", true, "any",
			"demo-2 has the hash"},
		"one has another number of keys": {3, func(c *fakeCluster) { c.members[2].keys++ }, "", true, "any",
			"demo-2 has 21 keys instead of 20"},
		"two of five": {5, func(c *fakeCluster) { c.members[4].hash++; c.members[3].hash++ },
			"", true, "any", "demo-3 has the hash"},
		"most: the snapshot of another is taken": {3,
			func(c *fakeCluster) { c.hold(t, 20, 'x', c.members[0], c.members[2]) }, "", true, "any",
			"demo-1 has the hash"},
		"the source itself, and another": {3, func(c *fakeCluster) { c.members[1].hash++; c.members[2].hash++ },
			Damaged, false, "", ""},
		"one of two": {2, func(c *fakeCluster) { c.members[1].hash++; c.members[0].taken = 0 }, "", true, "demo-0", ""},
		"one, and another can't say": {3,
			func(c *fakeCluster) { c.members[2].hash++; c.members[0].silent = true }, Failed, true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := fakes(t, c.members, 20)
			o := cluster.order(t, "well")
			c.change(cluster)
			scans := map[string]int{}
			cluster.asked = func(f *fake, question string) {
				if question == "hash" {
					scans[f.name]++
				}
			}
			report, err := Take(soon(t), o)
			if c.hashOf == "demo-2" || c.hashOf == "demo-3" || name == "all have compacted since" {
				assert.Zero(t, scans["demo-0"], "the leader is spared")
			}
			if c.reason == "" {
				require.NoError(t, err)
			} else {
				require.Error(t, err)
				assert.Equal(t, c.reason, ReasonOf(err), "%v", err)
			}
			assert.Equal(t, c.kept, recorded(t, o) != nil)
			assert.Equal(t, c.reason == "", !report.VerifiedAt.IsZero())
			if c.hashOf != "any" {
				assert.Equal(t, c.hashOf, report.HashOf)
			} else {
				assert.NotEmpty(t, report.HashOf)
			}
			if c.warning == "" {
				assert.Empty(t, report.Warning)
			} else {
				assert.Contains(t, report.Warning, c.warning)
			}
		})
	}
}

// TestExamineStopped: a look at a database that is stopped, or that can't be opened, does not say that it is damaged.
func TestExamineStopped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	makeDatabase(t, file, 10000, 1, 0)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	_, err := Examine(ctx, file)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, Failed, ReasonOf(err), "%v", err)
	_, err = Examine(soon(t), file+"-none")
	assert.Equal(t, Failed, ReasonOf(err), "%v", err)
	require.NoError(t, os.Truncate(file, 9000))
	_, err = Examine(soon(t), file)
	assert.Equal(t, Damaged, ReasonOf(err), "%v", err)
}
