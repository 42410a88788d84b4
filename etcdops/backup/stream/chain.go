package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Span is a segment by its name.
type Span struct {
	First, Last int64
	archive.Object
}

// names of segments: <first>-<last>.seg, and how they are compressed and encrypted.
var names = regexp.MustCompile(`^([1-9][0-9]{0,18})-([1-9][0-9]{0,18})\.seg(\.zst)?(\.age)?$`)

func nameOf(first, last int64, form archive.Form) string {
	return fmt.Sprintf("%d-%d%s%s", first, last, archive.SegmentSuffix, form.Suffix())
}

// spanOf reads a name. What is not a segment's is left alone: a store may hold other things.
func spanOf(name string) (s Span, ok bool) {
	parts := names.FindStringSubmatch(name)
	if parts == nil {
		return s, false
	}
	var err, wrong error
	s.First, err = strconv.ParseInt(parts[1], 10, 64)
	s.Last, wrong = strconv.ParseInt(parts[2], 10, 64)
	return s, err == nil && wrong == nil && s.First <= s.Last
}

// spans lists the segments in a folder below another one, "" for that itself, in the order of their revisions.
func spans(ctx context.Context, folder *archive.Folder, prefix string) ([]Span, error) {
	objects, err := folder.List(ctx, prefix)
	if err != nil {
		if archive.ReasonOf(err) == archive.NotFound {
			return nil, nil
		}
		return nil, err
	}
	var all []Span
	for _, o := range objects {
		if s, ok := spanOf(strings.TrimPrefix(o.Name, prefix)); ok && o.Size > 0 { // else a store had no room for it
			s.Object = o
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(b.Last, a.Last))
	})
	return all, nil
}

// chain are the segments that follow on a revision without a gap, and the last revision that they reach. Two writers
// may have cut at different revisions: segments may overlap, and of several the longest is taken.
func chain(all []Span, from int64) (links []Span, reach int64) {
	reach = from
	for i := 0; ; {
		best := Span{Last: reach}
		for ; i < len(all) && all[i].First <= reach+1; i++ {
			if all[i].Last > best.Last {
				best = all[i]
			}
		}
		if best.Last == reach {
			return links, reach
		}
		links = append(links, best)
		reach = best.Last
	}
}

// largest is what a segment has at most, before compression: with what reads it, half of what a restore may take. A few
// KB in a store may say that they are much more.
const largest = 128 << 20

// Tail are the stored segments of one cluster.
type Tail struct {
	folder    *archive.Folder
	prefix    string
	clusterID string
	spans     []Span
	keys      Keys
	// Head is the stream's sign of life; empty for none.
	Head Head
	// OnlyEncrypted refuses segments that are not, where no key tells: they may be of anyone who can write to the
	// store.
	OnlyEncrypted bool
}

// OpenTail lists the segments in a folder <tail>/<cluster ID in hexadecimal>, which is there once a segment is. Where
// there is none, nothing follows, in a bucket as on a claim. The folder above both must be there.
func OpenTail(ctx context.Context, place archive.Place, by Opening) (*Tail, error) {
	url, err := stores.ParseURL(place.URL)
	tails, id := url.Split()
	above, tail := tails.Split()
	if err != nil || tail == "" || !clusterIDs.MatchString(id) {
		return nil, failure(failed, nil, "the URL of a stream of changes must end with a folder and the ID of its "+
			"cluster, in hexadecimal")
	}
	place.URL = above.String()
	kept, err := OpenKept(ctx, place, by, tail)
	if err != nil {
		return nil, err
	}
	return kept.Tail(ctx, id)
}

var clusterIDs = regexp.MustCompile(`^[0-9a-f]{1,16}$`)

// Empty reports whether no stream has left anything.
func (t *Tail) Empty() bool { return len(t.spans) == 0 && t.Head == Head{} }

// Close ends the use of the tail.
func (t *Tail) Close() error { return t.folder.Close() }

// ClusterID whose changes they are, in hexadecimal.
func (t *Tail) ClusterID() string { return t.clusterID }

// Reach is the last revision of the unbroken chain behind a revision; that itself when nothing follows on it.
func (t *Tail) Reach(from int64) int64 {
	_, reach := chain(t.spans, from)
	return reach
}

// Missing says what is missing behind a revision that the chain ends at, for people; empty when nothing behind it is
// or was stored.
func (t *Tail) Missing(reach int64) string {
	for _, s := range t.spans {
		if s.First > reach {
			return fmt.Sprintf("%d to %d are missing", reach+1, s.First-1)
		}
	}
	if t.Head.Revision > reach {
		return fmt.Sprintf("%d to %d are missing", reach+1, t.Head.Revision)
	}
	return ""
}

// Gap says that in any case.
func (t *Tail) Gap(reach int64) string {
	return cmp.Or(t.Missing(reach), "nothing behind it is stored")
}

// Arrived is when the last revision of the unbroken chain behind a revision had arrived; zero when nothing follows.
func (t *Tail) Arrived(ctx context.Context, from int64) (time.Time, error) {
	links, _ := chain(t.spans, from)
	if len(links) == 0 {
		return time.Time{}, nil
	}
	last, err := t.header(ctx, links[len(links)-1])
	if err != nil {
		return time.Time{}, err
	}
	return last.Arrived(), nil
}

// Until is the last revision of that chain that had arrived at a time; 0 when none had. It may be before from.
func (t *Tail) Until(ctx context.Context, from int64, at time.Time) (int64, error) {
	links, _ := chain(t.spans, from)
	return t.until(ctx, links, at)
}

// Next reads the segment that has the revision behind reach and goes furthest. Of several that have it, one that is
// unusable is passed over. Nil when there is none.
func (t *Tail) Next(ctx context.Context, reach int64) (*Segment, error) {
	var fits []Span
	for _, s := range t.spans {
		if s.First <= reach+1 && s.Last > reach {
			fits = append(fits, s)
		}
	}
	slices.SortFunc(fits, func(a, b Span) int { return cmp.Compare(b.Last, a.Last) })
	var wrong error
	for _, span := range fits {
		s, err := t.read(ctx, span)
		if err == nil {
			return s, nil
		}
		if !Unusable(err) {
			return nil, err
		}
		wrong = cmp.Or(wrong, err)
	}
	return nil, wrong
}

// Unusable reports whether an error is about one segment and lasts: it is damaged, gone, of others or for others.
func Unusable(err error) bool {
	return slices.Contains([]string{damaged, archive.NotFound, archive.WrongKey}, archive.ReasonOf(err))
}

func (t *Tail) read(ctx context.Context, span Span) (*Segment, error) {
	whole, encrypted, err := t.folder.Get(ctx, span.Name, largest)
	if archive.ReasonOf(err) == archive.WrongKey {
		return nil, failure(archive.WrongKey, err, "the segment %d-%d of the stream can't be read", span.First, span.Last)
	}
	if err != nil {
		return nil, err
	}
	if t.OnlyEncrypted && !encrypted && !t.Trusted() {
		return nil, failure(damaged, nil, "%s is not encrypted, and what it follows is: others may have put it there",
			span.Name)
	}
	s, err := decode(whole, t.keys)
	if err == nil {
		err = s.Each(func(Change) error { return nil })
	}
	if err == nil && !t.fits(s, span) {
		err = errAnother
	}
	if err != nil {
		return nil, failure(damaged, err, "%s is not a segment of the stream that can be followed", span.Name)
	}
	s.Name = span.Name
	return s, nil
}

// fits reports whether a segment has the revisions of its name, and is of the cluster whose stream this is.
func (t *Tail) fits(s *Segment, span Span) bool {
	if t.clusterID != "" && s.ClusterID != t.clusterID {
		return false
	}
	return s.First == span.First && s.Last == span.Last
}

// Asked is what Look is asked.
type Asked struct {
	Place archive.Place
	Opening
	// Prefix under which streams are; ClusterID in hexadecimal, empty when there is only one.
	Prefix, ClusterID string
	// FromRevision that the chain is to follow on; 0 for whatever is stored first.
	FromRevision int64
	// UntilTime that the revision is asked of; zero for none.
	UntilTime time.Time
}

// Look says what is stored of a stream, without a gap. The time of a segment that can't be read without an identity
// is that by the clock of the store.
func Look(ctx context.Context, asked Asked) (stores.Tail, error) {
	keys, err := ReadKeys(asked.KeysFile)
	if err != nil {
		return stores.Tail{}, err
	}
	folder, err := archive.OpenFolder(ctx, asked.Place, asked.IdentityFile, false)
	if err != nil {
		if archive.ReasonOf(err) == archive.NotFound {
			return stores.Tail{}, nil
		}
		return stores.Tail{}, err
	}
	defer folder.Close()
	id, err := asked.cluster(ctx, folder)
	if err != nil || id == "" {
		return stores.Tail{}, err
	}
	t := &Tail{folder: folder, clusterID: id, prefix: folderOf(asked.Prefix, id), keys: keys}
	if t.spans, err = spans(ctx, folder, t.prefix); err != nil {
		return stores.Tail{}, err
	}
	return t.look(ctx, asked)
}

func folderOf(prefix, clusterID string) string {
	return strings.Trim(prefix, "/") + "/" + clusterID + "/"
}

// cluster is the one that is asked for, or the only one; empty for none.
func (asked Asked) cluster(ctx context.Context, folder *archive.Folder) (string, error) {
	if asked.ClusterID != "" {
		return asked.ClusterID, nil
	}
	ids, err := folder.Folders(ctx, strings.Trim(asked.Prefix, "/")+"/")
	if err != nil && archive.ReasonOf(err) != archive.NotFound {
		return "", err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !clusterIDs.MatchString(id) })
	switch len(ids) {
	case 0:
		return "", nil
	case 1:
		return ids[0], nil
	}
	return "", failure(failed, nil, "streams of %d clusters are stored (%s): say which by --cluster-id", len(ids),
		strings.Join(ids, ", "))
}

func (t *Tail) look(ctx context.Context, asked Asked) (stores.Tail, error) {
	report := stores.Tail{ClusterID: t.clusterID}
	from := asked.FromRevision
	if from == 0 && len(t.spans) > 0 {
		from = t.spans[0].First - 1
	}
	links, reach := chain(t.spans, from)
	if len(links) == 0 {
		return report, nil
	}
	report.FirstRevision = max(from+1, links[0].First)
	report.StoredRevision = reach
	report.Segments = int64(len(links))
	for _, s := range links {
		report.Bytes += s.Size
	}
	last, err := t.header(ctx, links[len(links)-1])
	if err != nil {
		return report, err
	}
	report.StoredTime = last.Arrived()
	if asked.UntilTime.IsZero() {
		return report, nil
	}
	report.UntilRevision, err = t.until(ctx, links, asked.UntilTime)
	return report, err
}

// until is the last revision that had arrived at a time. Segments of a chain are of times that rise.
func (t *Tail) until(ctx context.Context, links []Span, at time.Time) (int64, error) {
	var wrong error
	n, _ := slices.BinarySearchFunc(links, at, func(s Span, at time.Time) int {
		h, err := t.header(ctx, s)
		wrong = errors.Join(wrong, err)
		if err != nil || h.Arrived().After(at) {
			return 1
		}
		return -1
	})
	if wrong != nil {
		return 0, wrong
	}
	revision := int64(0)
	if n > 0 {
		revision = links[n-1].Last
	}
	if n < len(links) { // a part of it may have arrived
		h, err := t.header(ctx, links[n])
		if err != nil {
			return 0, err
		}
		revision = max(revision, h.Until(at))
	}
	return revision, nil
}

// header reads that of a segment, or makes one by what the store tells of a segment that is encrypted for others.
func (t *Tail) header(ctx context.Context, span Span) (*Header, error) {
	s, err := t.read(ctx, span)
	switch {
	case err == nil:
		return &s.Header, nil
	case archive.ReasonOf(err) == archive.WrongKey:
		stored := Mark{Revision: span.Last, At: span.Stored.UTC()}
		return &Header{First: span.First, Last: span.Last, Times: []Mark{stored}}, nil
	}
	return nil, err
}
