package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"filippo.io/age"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/hooks"
)

// verify fetches what is stored, restores it on trial, and compares: the bytes with those that were written, the restored database with the
// fetched one, and both with a member that runs. The artifact in the report then says what it holds. An error with the reason Damaged
// says that it is not what the cluster has; any other, that this is not known.
func (o Order) verify(ctx context.Context, store *Store, members []member, back age.Identity, report *hooks.SnapshotReport) (err error) {
	scratch, err := os.MkdirTemp(o.Scratch, "verify-")
	if err != nil {
		return localFailure(err, o.Scratch)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	file := filepath.Join(scratch, "snapshot.db")
	var identities []age.Identity
	if back != nil {
		identities = append(identities, back)
	}
	found, err := store.fetchFile(ctx, o.Key, identities, file)
	if err == nil {
		err = agree(store.named(o.Key), &report.Artifact, found, "")
	}
	if err != nil {
		return err
	}
	fetched, err := Examine(ctx, file)
	if err != nil {
		return err
	}
	restored, err := o.restore(ctx, file, filepath.Join(scratch, "restored"))
	if err != nil {
		return err
	}
	if fetched.Sum != restored.Sum || fetched.Revision != restored.Revision {
		return failure(Damaged, nil, "restored on trial, the snapshot has the revision %d and the checksum %08x, and before %d and %08x: etcdutl did not restore it", restored.Revision, restored.Sum, fetched.Revision, fetched.Sum)
	}
	if fetched.Revision < report.Revision {
		return failure(Damaged, nil, "the snapshot ends at revision %d, and the member was at %d before it was taken", fetched.Revision, report.Revision)
	}
	if err := o.compare(ctx, members, fetched); err != nil {
		return err
	}
	report.Revision, report.CompactRevision, report.Hash = fetched.Revision, fetched.CompactRevision, fetched.Hash
	report.Keys = max(fetched.Keys, 0)
	return nil
}

// restore restores a snapshot with etcdutl, and says what came of it.
func (o Order) restore(ctx context.Context, file, dir string) (*Contents, error) {
	var said bytes.Buffer
	command := exec.CommandContext(ctx, o.Etcdutl, "snapshot", "restore", file, "--data-dir="+dir,
		"--name=trial", "--initial-cluster=trial=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380")
	command.Stdout, command.Stderr, command.Env = &said, &said, BareEnviron()
	err := command.Run()
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, failure(Failed, ctx.Err(), "the restoring on trial was stopped")
	case errors.Is(err, os.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		return nil, failure(Failed, err, "there is no etcdutl to restore the snapshot on trial: the container must run in an image of etcd")
	case err != nil && strings.Contains(said.String(), "no space left on device"):
		return nil, failure(NoSpace, nil, "there is no space left to restore the snapshot on trial in %s: twice the size of the database is needed, and 64 MiB; raise job.scratchSize or make room on the node", o.Scratch)
	case err != nil:
		return nil, failure(Failed, OwnWords("%s: %s", Words(err), lastLine(said.String())), "etcdutl can't restore the snapshot on trial")
	}
	return Examine(ctx, filepath.Join(dir, "member", "snap", "db"))
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// compare compares a snapshot with a member that runs: another follower than the one it came from where there is one, so that two members'
// data are compared by the way. The leader is spared, even when there is nobody else. Where history was compacted since, there is nothing to compare.
func (o Order) compare(ctx context.Context, members []member, with *Contents) error {
	var witness *member
	for i := range members {
		if !members[i].leader {
			witness = &members[i] // the last one: the first gave the snapshot
		}
	}
	if witness == nil {
		return nil
	}
	client, err := o.Cluster.client(witness.urls...)
	if err != nil {
		return nil // whoever can't be asked disproves nothing
	}
	defer client.Close()
	ctx, stop := context.WithTimeout(ctx, hashTime)
	defer stop()
	if err := o.compareKeys(ctx, client, witness.name, with); err != nil {
		return err
	}
	if with.Hash == "" {
		return nil
	}
	live, err := pb.NewMaintenanceClient(client.ActiveConnection()).HashKV(ctx, &pb.HashKVRequest{Revision: with.Revision})
	if err != nil || max(live.GetCompactRevision(), 0) != with.CompactRevision {
		o.Log.Info("the hash was not compared with that of a member", "member", witness.name, "compacted", live.GetCompactRevision(), "snapshotCompacted", with.CompactRevision, "error", err)
		return nil
	}
	if hash := fmt.Sprintf("%08x", live.GetHash()); hash != with.Hash {
		return failure(Damaged, nil, "at revision %d the snapshot has the hash %s, and member %s has %s: the data of members differ; see the cluster's alarms", with.Revision, with.Hash, witness.name, hash)
	}
	o.Log.Info("the hash is that of a member", "member", witness.name, "revision", with.Revision, "hash", with.Hash)
	return nil
}

// compareKeys compares the number of keys with what a member counts, and fills it in where the database alone did not tell.
func (o Order) compareKeys(ctx context.Context, client *clientv3.Client, name string, with *Contents) error {
	answer, err := client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly(), clientv3.WithRev(with.Revision), clientv3.WithSerializable())
	switch {
	case err != nil: // compacted since, or busy: nothing follows
		return nil //nolint:nilerr // see above
	case with.Keys < 0:
		with.Keys = answer.Count
	case with.Keys != answer.Count:
		return failure(Damaged, nil, "at revision %d the snapshot has %d keys, and member %s has %d: the data of members differ; see the cluster's alarms", with.Revision, with.Keys, name, answer.Count)
	}
	return nil
}
