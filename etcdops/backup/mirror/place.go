package mirror

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Reasons for which a mirror ends, besides those of package reports and of clusters.
const (
	failed  = archive.Failed
	noSpace = archive.NoSpace
)

// place is how far a mirror is: JSON in the key Reserved + name of the destination. While Doing is empty, the keys of
// the destination are those of the source at Revision. Otherwise some of them are those at Towards.
type place struct {
	Format int `json:"format"`
	Scope
	// ClusterID of the source in hexadecimal, and its Revision; 0 before the first copy is whole.
	ClusterID string `json:"clusterID"`
	Revision  int64  `json:"revision"`
	// Sum of the records of Revision, by which another history of the source is noticed; empty when it is not known.
	Sum     string `json:"sum,omitempty"`
	Doing   string `json:"doing,omitempty"`
	Towards int64  `json:"towards,omitempty"`
	// WholeAt is the last revision of the destination at which the keys were those of Revision, while Doing is not
	// empty; 0 for none.
	WholeAt int64 `json:"wholeAt,omitempty"`
	// Ended: no mirror goes on, and others write here.
	Ended bool `json:"ended,omitempty"`
	// Session is the process that has written it, and Count how often, so that no two are alike.
	Session string `json:"session"`
	Count   int64  `json:"count"`
}

const format = 1

// What a mirror is doing while the destination is not whole.
const (
	// copying is the first copy, reconciling one after a gap.
	copying     = "Copying"
	reconciling = "Reconciling"
	// applying is a revision that is too large for one transaction.
	applying = "Applying"
	// ending takes back what was written since the destination was whole.
	ending = "Ending"
)

// op is what becomes of one key of the destination.
type op struct {
	key     string
	value   []byte
	deleted bool
}

// size is about that of the operation in a request, in bytes.
func (o op) size() int { return len(o.key) + len(o.value) + 32 }

const (
	// patience is how long an etcd may fail before a mirror ends with the reason, tryTime how long one try may take,
	// and pause is between two.
	patience = 2 * time.Minute
	tryTime  = 30 * time.Second
	pause    = time.Second
	// partSize is how many bytes of operations go into a transaction that could have fewer, and wholeSize how many are
	// written at once because they are of one revision: etcd takes 1.5 MiB (DefaultMaxRequestBytes in its embed).
	partSize  = 1 << 20
	wholeSize = 3<<19 - 16<<10
	// DefaultOps is how many operations etcd takes in one transaction unless --max-txn-ops says otherwise
	// (DefaultMaxTxnOps in its embed).
	DefaultOps = 128
)

// destination is the etcd that is written to, and the place of this mirror there.
type destination struct {
	client *clientv3.Client
	key    string
	// most is how many operations a transaction has, with that of the place.
	most    int
	session string
	count   int64
	// ends: this process ends the mirror, and writes though no mirror may. Hold tells that it still keeps them from it.
	ends bool
	hold <-chan *clientv3.LeaseKeepAliveResponse
	log  *slog.Logger
	// is the place, and at its revision in the destination; 0 for none.
	is place
	at int64
}

// keyOf is where the place of a mirror is.
func keyOf(name string) string { return Reserved + name }

// endSuffix makes the key beside a place that keeps mirrors from writing while a promotion is under way. It is gone
// heldFor after the process that has written it, in seconds: a promotion may be withdrawn.
const endSuffix, heldFor = "/end", 15

func reach(cluster archive.Cluster, name string, most int, log *slog.Logger) (*destination, error) {
	client, err := cluster.Dial()
	if err != nil {
		return nil, failure(archive.Unreachable, archive.ByEtcd(err), "the destination can't be reached")
	}
	return &destination{client: client, key: keyOf(name), most: cmp.Or(most, DefaultOps), session: rand.Text(),
		log: log}, nil
}

func (d *destination) close() { _ = d.client.Close() }

var (
	// errMoved: the place is not what it was believed to be.
	errMoved = errors.New("another process has written the place")
	// errEnding: a promotion is under way.
	errEnding = errors.New("the mirror is being ended")
)

func failure(reason string, cause error, format string, args ...any) error {
	return archive.Failure(reason, cause, format, args...)
}

// read reads the place. The revision is that of the destination at which it is so.
func (d *destination) read(ctx context.Context) (revision int64, err error) {
	answer, err := again(ctx, d.log, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return d.client.Get(ctx, d.key)
	})
	if err != nil {
		return 0, d.refusal(err, 0)
	}
	d.is = place{}
	d.at = 0
	if len(answer.Kvs) == 0 {
		return answer.Header.GetRevision(), nil
	}
	if d.is, err = placeOf(answer.Kvs[0].Value); err != nil {
		return 0, failure(failed, err, "the key %s of the destination can't be read", d.key)
	}
	d.at = answer.Kvs[0].ModRevision
	return answer.Header.GetRevision(), nil
}

func placeOf(text []byte) (p place, err error) {
	if json.Unmarshal(text, &p) != nil {
		return p, archive.OwnWords("it is not the place of a mirror")
	}
	if p.Format != format {
		return p, archive.OwnWords("it was written by a later version of Quorate")
	}
	return p, nil
}

// write writes operations and the next place in one transaction, if the place is still the one that is known. An answer
// that is lost is looked for in the place. The error is errMoved when another process was first.
func (d *destination) write(ctx context.Context, ops []op, next place, unless ...clientv3.Cmp) error {
	d.count++
	next.Format = format
	next.Session = d.session
	next.Count = d.count
	switch {
	case next.Doing == "":
		next.WholeAt = 0
		next.Towards = 0
	case d.is.Doing == "":
		next.WholeAt = d.at
	default:
		next.WholeAt = d.is.WholeAt
	}
	value, err := json.Marshal(next)
	if err != nil { // plain data always encodes
		return failure(failed, err, "the place can't be encoded")
	}
	then := make([]clientv3.Op, 0, len(ops)+1)
	size := 0
	for _, o := range ops {
		if size += o.size(); o.deleted {
			then = append(then, clientv3.OpDelete(o.key))
		} else {
			then = append(then, clientv3.OpPut(o.key, string(o.value)))
		}
	}
	then = append(then, clientv3.OpPut(d.key, string(value)))
	when := append(unless, clientv3.Compare(clientv3.ModRevision(d.key), "=", d.at))
	if d.at > 0 && !d.ends {
		when = append(when, clientv3.Compare(clientv3.Version(d.key+endSuffix), "=", 0))
	}
	for until := time.Now().Add(patience); ; sleep(ctx, pause) {
		at, err := d.try(ctx, when, then, value)
		switch {
		case err == nil:
			d.is = next
			d.at = at
			return nil
		case errors.Is(err, errMoved):
			return err
		case ctx.Err() != nil, lasting(err), time.Now().After(until):
			return d.refusal(err, size)
		}
		d.log.Warn("the destination has not taken a transaction yet", "reason", archive.Words(archive.ByEtcd(err)))
	}
}

// try makes one try of a transaction. It returns the revision at which the place has this value.
func (d *destination) try(ctx context.Context, when []clientv3.Cmp, then []clientv3.Op, value []byte) (int64, error) {
	trial, stop := context.WithTimeout(ctx, tryTime)
	defer stop()
	answer, err := d.client.Txn(trial).If(when...).Then(then...).Commit()
	if err == nil && answer.Succeeded {
		return answer.Header.GetRevision(), nil
	}
	if err != nil && lasting(err) {
		return 0, err
	}
	looking, end := context.WithTimeout(ctx, tryTime)
	defer end()
	found, lost := d.client.Get(looking, d.key)
	if lost != nil {
		return 0, cmp.Or(err, lost)
	}
	at := int64(0)
	is := []byte(nil)
	if len(found.Kvs) > 0 {
		at = found.Kvs[0].ModRevision
		is = found.Kvs[0].Value
	}
	switch {
	case bytes.Equal(is, value):
		return at, nil
	case err == nil, at != d.at:
		return 0, errMoved
	}
	return 0, err
}

// refusal is an error of the destination with its reason; size is that of the transaction in bytes.
func (d *destination) refusal(err error, size int) error {
	cause := archive.ByEtcd(err)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return failure(failed, cause, "the destination takes fewer than %d operations in a transaction: "+
			"--to-max-txn-ops must not be more than etcd's --max-txn-ops there", d.most)
	case tooLarge(err):
		return failure(failed, cause, "the destination does not take a transaction of about %d bytes: raise etcd's "+
			"--max-request-bytes there to what the source has", size)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return failure(noSpace, cause, "the destination has no space left: compact and defragment it, or raise its "+
			"quota, and clear the alarm")
	case lasting(err):
		return failure(archive.Denied, cause, "the destination refuses us: its user must be permitted to read and to "+
			"write below the prefix there and below %s", Reserved)
	}
	return failure(archive.Unreachable, cause, "the destination does not answer")
}

func tooLarge(err error) bool {
	return errors.Is(err, rpctypes.ErrRequestTooLarge) || strings.Contains(err.Error(), "larger than max")
}

// lasting reports whether etcd would answer the same once more.
func lasting(err error) bool {
	code := status.Code(err)
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		code = known.Code()
	}
	switch code {
	case codes.InvalidArgument, codes.OutOfRange, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition:
		return true
	default:
		return tooLarge(err)
	}
}

// again asks an etcd until there is an answer.
func again[T any](ctx context.Context, log *slog.Logger, ask func(context.Context) (T, error)) (T, error) {
	for until := time.Now().Add(patience); ; sleep(ctx, pause) {
		trial, stop := context.WithTimeout(ctx, tryTime)
		answer, err := ask(trial)
		stop()
		if err == nil || ctx.Err() != nil || lasting(err) || time.Now().After(until) {
			return answer, err
		}
		log.Warn("an etcd does not answer yet", "reason", archive.Words(archive.ByEtcd(err)))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// stopped reports whether a promotion keeps mirrors from writing.
func (d *destination) stopped(ctx context.Context) (bool, error) {
	answer, err := again(ctx, d.log, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return d.client.Get(ctx, d.key+endSuffix, clientv3.WithCountOnly())
	})
	if err != nil {
		return false, d.refusal(err, 0)
	}
	return answer.Count > 0, nil
}

// stop keeps mirrors from writing, or lets them write again.
func (d *destination) stop(ctx context.Context, stop bool) error {
	then := clientv3.OpDelete(d.key + endSuffix)
	if stop {
		lease, err := again(ctx, d.log, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
			return d.client.Grant(ctx, heldFor)
		})
		if err == nil {
			d.hold, err = d.client.KeepAlive(d.client.Ctx(), lease.ID)
		}
		if err != nil {
			return d.refusal(err, 0)
		}
		then = clientv3.OpPut(d.key+endSuffix, d.session, clientv3.WithLease(lease.ID))
	}
	_, err := again(ctx, d.log, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return d.client.Txn(ctx).If(clientv3.Compare(clientv3.Version(d.key), ">", 0)).Then(then).Commit()
	})
	if err != nil {
		return d.refusal(err, 0)
	}
	d.ends = stop
	return nil
}

// holds reports whether this process still keeps mirrors from writing.
func (d *destination) holds() bool {
	for {
		select {
		case _, open := <-d.hold:
			if !open {
				return false
			}
		default:
			return true
		}
	}
}

// found writes the first place of a mirror, if there is nothing yet of what it will write.
func (d *destination) found(ctx context.Context, first place) error {
	all, err := again(ctx, d.log, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return d.client.Get(ctx, Reserved, clientv3.WithPrefix())
	})
	if err != nil {
		return d.refusal(err, 0)
	}
	for _, kv := range all.Kvs {
		if strings.HasSuffix(string(kv.Key), endSuffix) {
			continue
		}
		other, err := placeOf(kv.Value)
		if err != nil {
			return failure(failed, err, "the key %s of the destination can't be read", kv.Key)
		}
		if !other.Ended && other.touches(first.Scope) {
			return failure(stores.MirrorOccupied, nil, "%s writes there already: mirrors must have prefixes of their "+
				"own at the destination", kv.Key)
		}
	}
	unless := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(Reserved), "<", all.Header.GetRevision()+1).
		WithPrefix()}
	for _, s := range first.toSpans() {
		some, err := again(ctx, d.log, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return d.client.Get(ctx, s.from, clientv3.WithRange(s.end), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		})
		if err != nil {
			return d.refusal(err, 0)
		}
		if len(some.Kvs) > 0 {
			return failure(stores.MirrorOccupied, nil, "the destination has keys that this mirror did not write: "+
				"delete what is below the prefix there, or mirror to another one")
		}
		unless = append(unless, clientv3.Compare(clientv3.CreateRevision(s.from), "=", 0).WithRange(s.end))
	}
	return d.write(ctx, []op{{key: d.key + endSuffix, deleted: true}}, first, unless...)
}
