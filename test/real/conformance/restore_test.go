//go:build unix && releases

package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/seed"
	"github.com/quorate-dev/quorate/hooks/stores"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// snapshotOf saves a snapshot of a member as people do.
func snapshotOf(t *testing.T, version string, m *etcdproc.Member) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "snapshot.db")
	said, err := exec.Command(etcdproc.Program(t, version, "etcdctl"), "--endpoints="+m.ClientURL, "snapshot", "save",
		file).CombinedOutput()
	require.NoError(t, err, string(said))
	return file
}

// fetching hands over a copy of a snapshot.
func fetching(file string) func(context.Context, string) (*stores.Artifact, error) {
	return func(_ context.Context, to string) (*stores.Artifact, error) {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		return &stores.Artifact{URI: file, SHA256: sumOf(raw)}, os.WriteFile(to, raw, 0o600)
	}
}

func sumOf(raw []byte) string { return fmt.Sprintf("%x", sha256.Sum256(raw)) }

// TestSnapshotsBetweenVersions: newer etcd takes what older etcd wrote. The other way round we refuse, where etcd
// does not always.
func TestSnapshotsBetweenVersions(t *testing.T) {
	t.Parallel()
	for i, written := range etcdproc.Versions {
		t.Run("from "+written, func(t *testing.T) {
			t.Parallel()
			old := etcdproc.Start(t, written, "old", 1)
			client := old.Members[0].Client()
			revision := put(t, client, "key", 50)
			etcdproc.Eventually(t, "its database has the version that it is of", func(ctx context.Context) error {
				status, err := client.Status(ctx, old.Members[0].ClientURL)
				if err != nil {
					return err
				}
				if of := written[:3] + ".0"; clusterVersion(old.Members[0]) != of ||
					status.StorageVersion != of && !strings.HasPrefix(written, "3.5.") {
					return fmt.Errorf("it is %s", status.StorageVersion)
				}
				return nil
			})
			file := snapshotOf(t, written, old.Members[0])
			for j, version := range etcdproc.Versions {
				t.Run("to "+version, func(t *testing.T) {
					fresh := etcdproc.StartSeeded(t, version, "fresh", 1,
						func(m *etcdproc.Member, initial, token string) {
							options := of(t, version, seed.Options{Fetch: fetching(file)}, m, initial, token)
							_, err := seed.Restore(t.Context(), options)
							if i > j {
								require.Equal(t, seed.OtherVersion, archive.ReasonOf(err), "%v", err)
								require.NoDirExists(t, m.DataDir())
								options.EtcdVersion = written // to see what etcd itself would do
								_, err = seed.Restore(t.Context(), options)
							}
							require.NoError(t, err)
						})
					if written == "3.7.3" && version == "3.6.16" {
						require.Equal(t, 1, fresh.Members[0].ExitCode(etcdproc.Patience))
						require.True(t, fresh.Members[0].Said(`version \"3.7.0\" is not supported`))
						return
					}
					fresh.WaitServing(fresh.Members...)
					client := fresh.Members[0].Client()
					require.EqualValues(t, 50, count(t, client, "key"))
					require.Equal(t, revision+1, put(t, client, "more", 1))
				})
			}
		})
	}
}

// TestRestoredClusterIsNoticed: three members restore one snapshot, with their logs in directories of their own. A
// client that has seen more than the snapshot has is told that it must look again.
func TestRestoredClusterIsNoticed(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "old", 1)
		client := old.Members[0].Client()
		revision := put(t, client, "key", 50)
		file := snapshotOf(t, version, old.Members[0])
		seen := put(t, client, "later", 10)
		old.Members[0].Kill()

		fresh, reports := seeded(t, version, "fresh", 3, seed.Options{BeginAfter: new(int64), Fetch: fetching(file)})
		for i, m := range fresh.Members {
			require.Equal(t, reports[i], seed.Restored(m.DataDir()))
		}
		fresh.WaitServing(fresh.Members...)
		require.Equal(t, revision+seed.BeginGap, reports[0].Revision)
		require.EqualValues(t, 50, reports[0].Keys)
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, sumOf(raw), reports[0].SHA256)
		require.Equal(t, reports[0], reports[1])
		require.Equal(t, reports[0], reports[2])
		client = fresh.Members[1].Client()
		require.EqualValues(t, 50, count(t, client, "key"))
		require.Zero(t, count(t, client, "later"))
		ctx, cancel := context.WithTimeout(t.Context(), etcdproc.Patience)
		defer cancel()
		answer, open := <-client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(seen+1))
		require.True(t, open)
		require.ErrorIs(t, answer.Err(), rpctypes.ErrCompacted)
		require.Equal(t, revision+seed.BeginGap, answer.CompactRevision)
		require.Equal(t, revision+seed.BeginGap+1, put(t, client, "more", 1))
	})
}

// TestRestoredAsEtcdutlDoes: a data directory is what etcdutl makes of the same snapshot, record by record and file
// by file, although etcdutl is shown a few pages of the database only.
func TestRestoredAsEtcdutlDoes(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "old", 1)
		old.WaitServing(old.Members...)
		empty := snapshotOf(t, version, old.Members[0])
		client := old.Members[0].Client()
		writeAllKinds(t, client)
		full := snapshotOf(t, version, old.Members[0])
		old.Members[0].Kill()
		for file, beyond := range map[string]int64{empty: 1, full: 0} {
			for _, after := range []*int64{nil, new(int64)} {
				t.Run(fmt.Sprintf("empty: %t, raised: %t", file == empty, after != nil), func(t *testing.T) {
					dir := t.TempDir()
					var flags []string
					// etcdutl counts from the last record, and Quorate from etcd's revision, which is 1 without any
					if after != nil {
						flags = []string{fmt.Sprintf("--bump-revision=%d", seed.BeginGap+beyond), "--mark-compacted"}
					}
					etcdutlRestores(t, version, file, filepath.Join(dir, "etcdutl"), flags...)
					o := oneOfTwo(t, version, filepath.Join(dir, "quorate"), file)
					o.BeginAfter = after
					_, err := seed.Restore(t.Context(), o)
					require.NoError(t, err)
					require.Equal(t, files(t, filepath.Join(dir, "etcdutl")), files(t, filepath.Join(dir, "quorate")))
				})
			}
		}
	})
}

// writeAllKinds leaves something in each of etcd's buckets.
func writeAllKinds(t *testing.T, client *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*etcdproc.Patience)
	defer cancel()
	revision := put(t, client, "key", 2000)
	lease, err := client.Grant(ctx, 3600)
	require.NoError(t, err)
	ok := done(t)
	ok(client.Put(ctx, "leased", strings.Repeat("x", 1<<20), clientv3.WithLease(lease.ID)))
	ok(client.Delete(ctx, "key-1", clientv3.WithPrefix()))
	ok(client.Compact(ctx, revision))
	ok(client.UserAdd(ctx, "alice", "secret"))
	ok(client.RoleAdd(ctx, "reader"))
	raw := etcdserverpb.NewMaintenanceClient(client.ActiveConnection())
	_, err = raw.Alarm(ctx, &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: 7,
		Alarm: etcdserverpb.AlarmType_NOSPACE})
	require.NoError(t, err)
}

// files are the contents of a data directory by path, and those of its database by bucket and record, as checksums.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if filepath.Ext(name) == ".snap" { // etcdutl itself writes the members in any order
			found[name] = fmt.Sprint(info.Size())
			return nil
		}
		if name != filepath.Join("member", "snap", "db") {
			raw, err := os.ReadFile(path)
			found[name] = sumOf(raw)
			return err
		}
		require.Zero(t, info.Size()%512, "the hash is cut off")
		db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, Timeout: time.Second})
		if err != nil {
			return err
		}
		defer db.Close()
		return db.View(func(tx *bolt.Tx) error {
			return tx.ForEach(func(bucket []byte, b *bolt.Bucket) error {
				found[name+" "+string(bucket)] = ""
				return b.ForEach(func(record, value []byte) error {
					found[fmt.Sprintf("%s %s %q", name, bucket, record)] = sumOf(value)
					return nil
				})
			})
		})
	}))
	return found
}

// TestRestoreOfNoKeys: a cluster that was never written to is restored like any other.
func TestRestoreOfNoKeys(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "old", 1)
		old.WaitServing(old.Members...)
		file := snapshotOf(t, version, old.Members[0])
		old.Members[0].Kill()
		for name, after := range map[string]*int64{"fresh": nil, "raised": new(int64)} {
			fresh, _ := seeded(t, version, name, 1,
				seed.Options{BeginAfter: after, Fetch: fetching(file)})
			fresh.WaitServing(fresh.Members...)
			client := fresh.Members[0].Client()
			require.Equal(t, after != nil, put(t, client, "first", 1) > seed.BeginGap)
		}
	})
}

// TestRestoreIsAllOrNothing: it was told to end at any point, and killed at any point. What is made in the end is
// what etcdutl makes.
func TestRestoreIsAllOrNothing(t *testing.T) {
	t.Parallel()
	const version = "3.6.16"
	old := etcdproc.Start(t, version, "old", 1)
	client := old.Members[0].Client()
	writeAllKinds(t, client)
	file := snapshotOf(t, version, old.Members[0])
	old.Members[0].Kill()
	for _, ownLog := range []bool{false, true} {
		t.Run(fmt.Sprintf("log of its own: %t", ownLog), func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(dir, "log"), 0o700))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700)) // an empty one is nothing to lose
			o, flags := once(t, dir, file, ownLog), []string(nil)
			log := filepath.Join(o.DataDir, "member", "wal")
			if ownLog {
				log, flags = o.WALDir, []string{"--wal-dir=" + filepath.Join(dir, "etcdutl", "wal")}
			}
			remove := func() {
				require.NoError(t, os.RemoveAll(o.DataDir))
				require.NoError(t, os.RemoveAll(filepath.Join(dir, "log", "wal")))
			}
			for wait, done := time.Millisecond, false; !done; wait += 25 * time.Millisecond {
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				_, err := seed.Restore(ctx, o)
				cancel()
				require.NoDirExists(t, o.DataDir+".restoring")
				if err == nil {
					remove()
				}
				require.NoDirExists(t, o.DataDir)
				done = killed(t, dir, file, ownLog, wait)
				if _, err := os.Stat(log); err == nil {
					done = true // it was killed when all was in place
				}
			}
			whole := tree(t, log)
			require.NotEmpty(t, whole)
			if ownLog { // as when it was killed right after the second move
				require.NoError(t, os.WriteFile(filepath.Join(o.DataDir, "unfinished-restore"), nil, 0o600))
			}
			_, err := seed.Restore(t.Context(), o)
			require.ErrorContains(t, err, "nothing was changed")
			require.Equal(t, whole, tree(t, log))

			etcdutlRestores(t, version, file, filepath.Join(dir, "etcdutl", "data"), flags...)
			require.Equal(t, files(t, filepath.Join(dir, "etcdutl", "data")), files(t, o.DataDir))
			if !ownLog {
				return
			}
			require.Equal(t, files(t, filepath.Join(dir, "etcdutl", "wal")), files(t, o.WALDir))
			// The power went between the two moves.
			require.NoError(t, os.RemoveAll(o.WALDir))
			require.NoError(t, os.WriteFile(filepath.Join(o.DataDir, "unfinished-restore"), nil, 0o600))
			_, err = seed.Restore(t.Context(), o)
			require.NoError(t, err)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, left, 4, "data, data.restored, etcdutl and log: %v", left)
			require.NoFileExists(t, filepath.Join(o.DataDir, "unfinished-restore"))
		})
	}
}

// once are the options of a restore into a directory, of a member of two.
func once(t *testing.T, dir, file string, ownLog bool) seed.Options {
	t.Helper()
	o := oneOfTwo(t, "3.6.16", filepath.Join(dir, "data"), file)
	if ownLog {
		o.WALDir = filepath.Join(dir, "log", "wal")
	}
	return o
}

// oneOfTwo are the options of a restore into a directory, of a member of two.
func oneOfTwo(t *testing.T, version, dir, file string) seed.Options {
	t.Helper()
	return seed.Options{
		DataDir: dir, Name: "a", PeerURL: "http://127.0.0.1:2",
		InitialCluster: "a=http://127.0.0.1:2,b=http://127.0.0.1:3", Token: "t",
		EtcdVersion: version, Programs: programs(t, version), Fetch: fetching(file),
	}
}

// killed restores in a process of its own, which is killed with its children after a time. It reports whether that
// was done before.
func killed(t *testing.T, dir, file string, ownLog bool, after time.Duration) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestRestoreOnce$")
	cmd.Env = append(os.Environ(), "RESTORE_ONCE="+strings.Join([]string{dir, file, fmt.Sprint(ownLog)}, ","))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	kill := time.AfterFunc(after, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer kill.Stop()
	return cmd.Wait() == nil
}

// TestRestoreOnce is the process that is killed.
func TestRestoreOnce(t *testing.T) {
	told := strings.Split(os.Getenv("RESTORE_ONCE"), ",")
	if len(told) != 3 {
		t.Skip("it is for TestRestoreIsAllOrNothing")
	}
	_, err := seed.Restore(t.Context(), once(t, told[0], told[1], told[2] == "true"))
	require.NoError(t, err)
}

// etcdutlRestores makes a data directory of the member of once.
func etcdutlRestores(t *testing.T, version, file, dataDir string, flags ...string) {
	t.Helper()
	args := append([]string{"snapshot", "restore", file, "--data-dir=" + dataDir, "--name=a",
		"--initial-cluster=a=http://127.0.0.1:2,b=http://127.0.0.1:3",
		"--initial-advertise-peer-urls=http://127.0.0.1:2", "--initial-cluster-token=t"}, flags...)
	said, err := exec.Command(etcdproc.Program(t, version, "etcdutl"), args...).CombinedOutput()
	require.NoError(t, err, string(said))
}

// keysLeaf is the page of the third leaf of the keys in a database, and the size of pages.
func keysLeaf(t *testing.T, raw []byte, path string) (page, size int) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	size = db.Info().PageSize
	require.NoError(t, db.View(func(tx *bolt.Tx) error {
		root := raw[int(tx.Bucket([]byte("key")).Root())*size:]
		require.EqualValues(t, 1, binary.LittleEndian.Uint16(root[8:]), "a branch")
		page = int(binary.LittleEndian.Uint64(root[16+2*16+8:]))
		return nil
	}))
	return page, size
}

// TestDamagedSurvivor: a page of the keys makes no sense. That is said, and leaves nothing behind: bbolt would end
// the process, in a goroutine of its own.
func TestDamagedSurvivor(t *testing.T) {
	t.Parallel()
	const version = "3.6.16"
	old := etcdproc.Start(t, version, "old", 1)
	old.Members[0].Put(2000)
	old.Members[0].Stop()
	path := filepath.Join(old.Members[0].DataDir(), "member", "snap", "db")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	page, size := keysLeaf(t, raw, path)
	for name, damage := range map[string]func(page []byte){
		"another number": func(page []byte) { copy(page, "password") },
		"zeros":          func(page []byte) { clear(page) },
		"a bucket":       func(page []byte) { page[16] = 1 }, // the flag of its first record
	} {
		t.Run(name, func(t *testing.T) {
			damaged := slices.Clone(raw)
			damage(damaged[page*size : (page+1)*size])
			require.NoError(t, os.WriteFile(path, damaged, 0o600))
			o := once(t, t.TempDir(), "", false)
			o.Fetch, o.FromData = nil, old.Members[0].DataDir()
			_, err := seed.Restore(t.Context(), o)
			require.Error(t, err)
			require.Equal(t, archive.Damaged, archive.ReasonOf(err), "%v", err)
			require.NotContains(t, err.Error(), "password")
			require.NoDirExists(t, o.DataDir+".restoring")
		})
	}
}

// TestWrongListOfFreePages: etcd keeps such a list in a database that it has just defragmented. One that names a page
// of keys would have it written over.
func TestWrongListOfFreePages(t *testing.T) {
	t.Parallel()
	const version = "3.6.16"
	old := etcdproc.Start(t, version, "old", 1)
	old.Members[0].Put(2000)
	file := snapshotOf(t, version, old.Members[0])
	old.Members[0].Kill()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	plain := filepath.Join(t.TempDir(), "plain.db")
	require.NoError(t, os.WriteFile(plain, raw[:len(raw)-sha256.Size], 0o600))
	db, err := bolt.Open(plain, 0o600, nil) // it writes the list
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("x"), []byte("y"))
	}))
	require.NoError(t, db.Close())
	for _, wrong := range []bool{false, true} {
		t.Run(fmt.Sprintf("wrong: %t", wrong), func(t *testing.T) {
			raw, err := os.ReadFile(plain)
			require.NoError(t, err)
			leaf, size := keysLeaf(t, raw, plain)
			if meta := raw[16:]; wrong { // the newer of two: txid and freelist in internal/common/meta.go of bbolt
				if second := raw[size+16:]; binary.LittleEndian.Uint64(second[48:]) > binary.LittleEndian.Uint64(meta[48:]) {
					meta = second
				}
				list := raw[int(binary.LittleEndian.Uint64(meta[32:]))*size:]
				binary.LittleEndian.PutUint16(list[10:], 1)
				binary.LittleEndian.PutUint64(list[16:], uint64(leaf))
			}
			sum := sha256.Sum256(raw)
			signed := filepath.Join(t.TempDir(), "snapshot.db")
			require.NoError(t, os.WriteFile(signed, append(raw, sum[:]...), 0o600))
			o := once(t, t.TempDir(), signed, false)
			_, err = seed.Restore(t.Context(), o)
			if !wrong {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			require.Equal(t, archive.Damaged, archive.ReasonOf(err), "%v", err)
			require.NoDirExists(t, o.DataDir)
		})
	}
}

// TestRevisionThatIsNotRaised: an etcdutl of another release, that does not raise a revision when it is told to, is
// noticed.
func TestRevisionThatIsNotRaised(t *testing.T) {
	t.Parallel()
	const version = "3.6.16"
	old := etcdproc.Start(t, version, "old", 1)
	old.Members[0].Put(20)
	o := once(t, t.TempDir(), snapshotOf(t, version, old.Members[0]), false)
	old.Members[0].Kill()
	o.BeginAfter = new(int64)
	deaf := filepath.Join(t.TempDir(), "etcdutl")
	require.NoError(t, os.WriteFile(deaf, []byte(`#!/bin/sh
for a; do shift; case "$a" in --bump-revision*|--mark-compacted) ;; *) set -- "$@" "$a" ;; esac; done
exec `+o.Programs.Etcdutl+` "$@"
`), 0o700))
	o.Programs.Etcdutl = deaf
	_, err := seed.Restore(t.Context(), o)
	require.ErrorContains(t, err, `etcdutl made 0 unexpected changes in the bucket "key"`)
	require.NoDirExists(t, o.DataDir)
}
