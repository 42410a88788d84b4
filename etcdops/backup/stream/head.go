package stream

import (
	"context"
	"encoding/json"
	"time"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

// Head is a sign of life that a stream leaves beside its segments: a reader of the store alone learns from it that
// nothing was written, which no segment says, and up to when.
type Head struct {
	ClusterID string `json:"clusterID"`
	// Revision is the last one that is stored. All that was written before At is.
	Revision int64     `json:"revision"`
	At       time.Time `json:"at"`
	// AuthRevision of users and roles, when it was looked last; 0 before.
	AuthRevision int64 `json:"authRevision,omitempty"`
	// MAC of all that, in hexadecimal; empty of a stream without keys.
	MAC string `json:"mac,omitempty"`
}

// headName is no name of a segment; headSize is more than it takes.
const headName, headSize = "head.json", 4 << 10

// headEvery is how often a head is written at most.
const headEvery = 10 * time.Second

// beat writes heads until the context ends, and a last one then. A stream goes on without it.
func (s session) beat(ctx context.Context) {
	folder, err := archive.OpenFolder(ctx, s.Place, "", true)
	if err != nil {
		return // the stream tells
	}
	defer folder.Close()
	tick := time.NewTicker(max(s.FlushAfter, headEvery))
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		s.leaveHead(ctx, folder)
	}
}

func (s session) leaveHead(ctx context.Context, folder *archive.Folder) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer stop()
	head := s.monitor.head()
	if head.At.IsZero() {
		return
	}
	keys, err := ReadKeys(s.KeysFile)
	var text []byte
	if err == nil {
		text, err = json.Marshal(head.signed(keys))
	}
	if err == nil {
		err = folder.Replace(ctx, s.prefix+headName, text)
	}
	if err != nil {
		s.Log.Warn("the stream's sign of life is not stored", "reason", archive.Words(err))
	}
}

// readHead reads that of a cluster; empty where there is none that can be read, or none that a key has signed. What it
// says is no more than a hint.
func (t *Tail) readHead(ctx context.Context) {
	var head Head
	text, _, err := t.folder.Get(ctx, t.prefix+headName, headSize)
	if err == nil && json.Unmarshal(text, &head) == nil && head.ClusterID == t.clusterID && head.signedBy(t.keys) {
		t.Head = head
	}
}

// Headless says that a stream with keys has not told how far it has come; empty when it has.
func (t *Tail) Headless() string {
	switch {
	case len(t.keys) == 0 || t.Head != Head{}:
		return ""
	case len(t.spans) == 0:
		return "no stream has stored anything in " + t.prefix
	}
	return t.prefix + headName + ", which says how much is stored, is missing or no key of the stream has signed it"
}

// Trusted reports whether the stream has keys, so that others can't have written what is read.
func (t *Tail) Trusted() bool { return len(t.keys) > 0 }

// Whole is the time up to which all that was written is stored, as far as is known of the chain behind a revision: by
// the stream's sign of life, or by the last segment. Zero when neither is known.
func (t *Tail) Whole(ctx context.Context, from int64) (time.Time, error) {
	links, reach := chain(t.spans, from)
	if t.Head.Revision > 0 && t.Head.Revision <= reach {
		return t.Head.At, nil
	}
	if len(links) == 0 {
		return time.Time{}, nil
	}
	last, err := t.header(ctx, links[len(links)-1])
	if err != nil {
		return time.Time{}, err
	}
	return last.Arrived(), nil
}
