package kubectl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/contents"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// The command top: who fills etcd, as a verified snapshot tells, or a member that is asked now.

// topping is what the flags of top say.
type topping struct {
	by, snapshot string
	depth        int
	live         bool
	watch        time.Duration
}

// measures are what prefixes can be sorted by.
var measures = map[string]func(p *v1beta1.PrefixContents) int64{
	"keys":      func(p *v1beta1.PrefixContents) int64 { return p.Keys },
	"bytes":     func(p *v1beta1.PrefixContents) int64 { return p.Bytes },
	"revisions": func(p *v1beta1.PrefixContents) int64 { return p.Revisions },
	"writes":    func(p *v1beta1.PrefixContents) int64 { return p.Writes },
}

const (
	mostLive = 64 << 20 // bytes of changes that a watch takes
	// growthOver is how far back a snapshot may lie by which growth is told, and growthLeast how far it must.
	growthOver, growthLeast = 7 * 24 * time.Hour, time.Hour
	mostDepth               = 5
	mostRows                = 50
)

func (a *invocation) topFlags(flags *flag.FlagSet) {
	a.format = "table"
	a.topping = topping{by: "bytes", watch: time.Minute}
	oneOf("a measure", "keys", "bytes", "revisions", "writes").flag(flags, &a.topping.by, "by", "what comes first: "+
		"keys, bytes, revisions or `writes`")
	flags.IntVar(&a.topping.depth, "depth", 0, "how `many` parts of a prefix are told; 0 for the first at which there "+
		"are several")
	snapshotName.flag(flags, &a.topping.snapshot, "snapshot", "`name` of a verified EtcdSnapshot; unset, the newest")
	flags.BoolVar(&a.topping.live, "live", false, "ask a member now, for its keys and what is written meanwhile")
	atLeast(time.Second, flags, &a.topping.watch, "for", "how `long` --live watches at most; unset, 1m")
	oneOf("a format", "table", "json").flag(flags, &a.format, "o", "`format`: table or json")
}

func (a *invocation) validTop() error {
	t := a.topping
	switch {
	case t.depth < 0 || t.depth > mostDepth:
		return misused("--depth must be from 0 to %d", mostDepth)
	case t.live && t.snapshot != "":
		return misused("--live asks a member, and --snapshot names an EtcdSnapshot: choose one")
	case t.live && t.by == "revisions":
		return misused("a member does not tell how many revisions it keeps: leave out --live")
	}
	return nil
}

// topDocument is what top prints for programs; fields are added, and none changes.
type topDocument struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Snapshot that tells; empty with --live, for which Writes and Bytes are those of Seconds.
	Snapshot string    `json:"snapshot,omitempty"`
	Time     time.Time `json:"time"`
	Seconds  float64   `json:"seconds,omitempty"`
	// Quota of the database in bytes, GrowthPerDay since a snapshot of the last seven days, and when it is FullAt.
	Quota        int64                     `json:"quota,omitempty"`
	GrowthPerDay int64                     `json:"growthPerDay,omitempty"`
	FullAt       time.Time                 `json:"fullAt,omitzero"`
	Contents     *v1beta1.SnapshotContents `json:"contents"`
	// Streams tell who wrote in the last hour.
	Streams []streamed `json:"streams,omitempty"`

	remarks []string
}

// streamed is what the stream of a schedule tells.
type streamed struct {
	Schedule string `json:"schedule"`
	stores.Writes
}

func (a *invocation) top(ctx context.Context) error {
	c, err := a.find(ctx)
	if err != nil {
		return err
	}
	d := &topDocument{Namespace: c.Namespace, Name: c.Name, Time: a.now()}
	if a.topping.live {
		err = a.topLive(ctx, c.EtcdCluster, d)
	} else {
		err = a.topStored(ctx, c.EtcdCluster, d)
		a.topStreams(ctx, c.EtcdCluster, d)
	}
	if err != nil {
		return err
	}
	if a.format == "json" {
		text, err := json.MarshalIndent(d, "", "  ")
		fmt.Fprintf(a.Out, "%s\n", text)
		return err
	}
	a.printTop(d)
	return nil
}

// topStored is what a snapshot tells.
func (a *invocation) topStored(ctx context.Context, c *v1beta1.EtcdCluster, d *topDocument) error {
	all, err := a.accounts(ctx, c)
	if err != nil {
		return err
	}
	of := objects.Filter(all, func(s v1beta1.EtcdSnapshot) bool {
		return a.topping.snapshot == "" || s.Name == a.topping.snapshot
	})
	if len(of) == 0 {
		return fmt.Errorf("no verified EtcdSnapshot%s of EtcdCluster %s/%s tells what fills it: take one with `kubectl "+
			"quorate snapshot %s`, or ask a member with --live", strings.TrimRight(" "+a.topping.snapshot, " "), c.Namespace,
			c.Name, c.Name)
	}
	s := of[len(of)-1].Status
	d.Snapshot = of[len(of)-1].Name
	d.Time = s.CompletionTime.Time
	d.Contents = s.Contents
	d.remarks = append(d.remarks, fmt.Sprintf("%s, %s: %s in use", d.Snapshot, moment(d.Time, a.now()),
		size(s.Contents.InUse)))
	if pods, err := a.podsOf(ctx, c); err == nil {
		for _, pod := range pods {
			if quota := defaults.Quota(pod); quota > 0 && (d.Quota == 0 || quota < d.Quota) {
				d.Quota = quota
			}
		}
	}
	d.grows(objects.Filter(all, func(old v1beta1.EtcdSnapshot) bool {
		before := d.Time.Sub(old.Status.CompletionTime.Time)
		return old.Status.ClusterID == s.ClusterID && before >= growthLeast && before <= growthOver
	}))
	if s.Contents.Estimated {
		d.remarks = append(d.remarks, "so many keys were changed since the last compaction that LIVE is an estimate")
	}
	if len(s.Contents.Prefixes) == 0 {
		d.remarks = append(d.remarks, "its status names no prefix: no key has a slash, or it is encrypted; of an encrypted "+
			"one `quorate-snapshot inspect --contents` tells them to those who can decrypt it; --live asks a member")
	}
	return nil
}

// accounts are the snapshots of a cluster that tell what fills it, the newest last.
func (a *invocation) accounts(ctx context.Context, c *v1beta1.EtcdCluster) ([]v1beta1.EtcdSnapshot, error) {
	out, err := a.kube.run(ctx, "get", snapshots, "-n", c.Namespace, "-o", "json")
	if err != nil {
		return nil, fmt.Errorf("the EtcdSnapshots of namespace %s can't be read: %w", c.Namespace, err)
	}
	var list struct{ Items []v1beta1.EtcdSnapshot }
	if err := objects.Read(out, &list); err != nil {
		return nil, fmt.Errorf("an EtcdSnapshot can't be read; is this plugin older than the CRD? %w", err)
	}
	all := objects.Filter(list.Items, func(s v1beta1.EtcdSnapshot) bool {
		return s.Spec.ClusterRef.Name == c.Name && s.Status.Contents != nil
	})
	slices.SortStableFunc(all, func(x, y v1beta1.EtcdSnapshot) int {
		return x.Status.CompletionTime.Compare(y.Status.CompletionTime.Time)
	})
	return all, nil
}

// grows tells how fast the database grows since the first of some snapshots, and when it reaches the quota.
func (d *topDocument) grows(since []v1beta1.EtcdSnapshot) {
	if len(since) == 0 {
		return
	}
	old := since[0].Status
	took := d.Time.Sub(old.CompletionTime.Time)
	grown := float64(d.Contents.InUse - old.Contents.InUse)
	d.GrowthPerDay = int64(grown / (took.Hours() / 24))
	words := fmt.Sprintf("%s a day more since %s", size(d.GrowthPerDay), since[0].Name)
	if d.GrowthPerDay <= 0 {
		words = "no more than in " + since[0].Name
	}
	if left := float64(d.Quota - d.Contents.InUse); d.Quota > 0 && d.GrowthPerDay > 0 {
		days := max(left, 0) / float64(d.GrowthPerDay)
		words += fmt.Sprintf(": the quota of %s is reached in %.0f days", size(d.Quota), days)
		if days < 10*365 {
			d.FullAt = d.Time.Add(time.Duration(days * 24 * float64(time.Hour)))
		}
	}
	d.remarks = append(d.remarks, words)
}

// topStreams is who writes, as the streams of a cluster tell. Where one does not, the rest is told all the same.
func (a *invocation) topStreams(ctx context.Context, c *v1beta1.EtcdCluster, d *topDocument) {
	all, err := a.schedulesOf(ctx, c)
	if err != nil {
		d.remarks = append(d.remarks, "no stream is asked who writes: "+err.Error())
	}
	for i := range all {
		stream := all[i].Status.Stream
		if stream == nil {
			continue
		}
		writes, err := a.writes(ctx, c.Namespace, stream.Pod)
		if err != nil {
			d.remarks = append(d.remarks, fmt.Sprintf("pod %s, the stream of %s, does not tell who writes: %s", stream.Pod,
				all[i].Name, err))
			continue
		}
		d.Streams = append(d.Streams, streamed{all[i].Name, *writes})
	}
}

const (
	writesWithin = 10 * time.Second
	writesLimit  = 1 << 20
)

// writes is what the pod of a stream tells.
func (a *invocation) writes(ctx context.Context, namespace, pod string) (*stores.Writes, error) {
	ctx, cancel := context.WithTimeout(ctx, writesWithin)
	defer cancel()
	address, stop, err := a.kube.forward(ctx, namespace, pod, snapshot.WritesPort)
	if err != nil {
		return nil, err
	}
	defer stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return nil, err
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request) // by no proxy
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	writes := &stores.Writes{}
	err = json.NewDecoder(io.LimitReader(answer.Body, writesLimit)).Decode(writes)
	if err == nil && writes.Contents == nil {
		err = errors.New("nothing has arrived yet")
	}
	return writes, err
}

// asked is an etcd that tells keys and changes.
type asked interface {
	Keys(ctx context.Context, endpoint observation.Endpoint, each func(key []byte, leased bool)) error
	Writes(ctx context.Context, endpoint observation.Endpoint, each func(key []byte, bytes int)) error
}

// topLive asks a member, one that does not lead where there is one, for its keys, and what is written meanwhile.
func (a *invocation) topLive(ctx context.Context, c *v1beta1.EtcdCluster, d *topDocument) error {
	pods, err := a.podsOf(ctx, c)
	if err != nil {
		return err
	}
	endpoints := facts.Endpoints(observed(c, pods))
	own, err := a.own(ctx, c)
	if err != nil {
		return err
	}
	ways := a.open(ctx, c.Namespace, endpoints)
	defer ways.close()
	etcd := a.etcd(own, ways.dial)
	l := ways.observe(ctx, etcd, endpoints)
	var from *observation.Endpoint
	for i, endpoint := range endpoints {
		h := l.health[endpoint.Name]
		if h.Err == "" && (from == nil || h.Leader != h.MemberID) {
			from = &endpoints[i]
		}
	}
	if from == nil {
		return fmt.Errorf("no member of EtcdCluster %s/%s answers: %s", c.Namespace, c.Name, cmp.Or(l.trouble,
			"`kubectl quorate status` says why"))
	}
	return a.count(ctx, etcd.(asked), *from, d)
}

// count asks one member.
func (a *invocation) count(ctx context.Context, etcd asked, from observation.Endpoint, d *topDocument) error {
	ctx, cancel := context.WithTimeout(ctx, a.topping.watch)
	defer cancel()
	account := contents.New()
	var lock sync.Mutex
	var all sync.WaitGroup
	var walked, watched error
	leased, brought := int64(0), 0
	began := a.now()
	all.Go(func() {
		walked = etcd.Keys(ctx, from, func(key []byte, goes bool) {
			lock.Lock()
			defer lock.Unlock()
			account.Count(key, v1beta1.PrefixContents{Keys: 1})
			if goes {
				leased++
			}
		})
	})
	watched = etcd.Writes(ctx, from, func(key []byte, bytes int) {
		lock.Lock()
		defer lock.Unlock()
		account.Count(key, v1beta1.PrefixContents{Writes: 1, Bytes: int64(bytes)})
		if brought += bytes; brought > mostLive {
			cancel()
		}
	})
	all.Wait()
	d.Seconds = a.now().Sub(began).Seconds()
	d.remarks = append(d.remarks, fmt.Sprintf("%s, asked now: its keys, and what was written in %.0f seconds", from.Name,
		d.Seconds))
	if walked != nil && ctx.Err() != nil {
		d.remarks = append(d.remarks, "it has more keys than it told in that time: --for=5m takes longer")
		walked = nil
	}
	d.Contents = account.Report(mostRows)
	d.Contents.LeasedKeys = leased
	if err := errors.Join(walked, watched); err != nil {
		return fmt.Errorf("%s does not tell its keys: %w", from.Name, err)
	}
	return nil
}

// Columns of the tables, behind the prefix.
var (
	storedColumns   = []string{"KIND", "KEYS", "LIVE", "REVISIONS", "BYTES", "WRITES", "MOST", "LARGEST"}
	liveColumns     = []string{"KEYS", "WRITES", "WRITTEN"}
	streamedColumns = []string{"KIND", "KEYS", "WRITES", "WRITTEN", "MOST", "LARGEST"}
)

// cells are what columns show of a row.
var cells = map[string]func(row *v1beta1.PrefixContents) string{
	"KIND": func(row *v1beta1.PrefixContents) string {
		_, kind, _ := strings.Cut(row.Kind, " ")
		return kind
	},
	"KEYS":      func(row *v1beta1.PrefixContents) string { return tally(row.Keys) },
	"LIVE":      func(row *v1beta1.PrefixContents) string { return amount(row.LiveBytes) },
	"REVISIONS": func(row *v1beta1.PrefixContents) string { return tally(row.Revisions) },
	"BYTES":     func(row *v1beta1.PrefixContents) string { return amount(row.Bytes) },
	"WRITES":    func(row *v1beta1.PrefixContents) string { return tally(row.Writes) },
	"WRITTEN":   func(row *v1beta1.PrefixContents) string { return amount(row.Bytes) },
	"MOST":      func(row *v1beta1.PrefixContents) string { return tally(row.MostRevisions) },
	"LARGEST":   func(row *v1beta1.PrefixContents) string { return amount(row.LargestValue) },
}

func tally(n int64) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func amount(n int64) string {
	if n <= 0 {
		return ""
	}
	if n < 10<<10 {
		return fmt.Sprintf("%d B", n)
	}
	return size(n)
}

// printTop prints tables.
func (a *invocation) printTop(d *topDocument) {
	for _, words := range d.remarks {
		a.wrap(words)
	}
	if a.topping.live {
		a.printPrefixes(d.Contents, liveColumns)
		fmt.Fprintf(a.Out, "%s with a lease\n", count(int(d.Contents.LeasedKeys), "key"))
		return
	}
	a.printPrefixes(d.Contents, storedColumns)
	fmt.Fprintf(a.Out, "%s with a lease; %s\n", count(int(d.Contents.LeasedKeys), "key"),
		count(int(d.Contents.Leases), "lease"))
	for _, s := range d.Streams {
		fmt.Fprintln(a.Out)
		a.wrap(fmt.Sprintf("written from %s to %s UTC, as the stream of %s saw it", s.From.UTC().Format("15:04"),
			s.To.UTC().Format("15:04"), s.Schedule))
		if len(s.Contents.Prefixes) == 0 && s.Contents.Total.Writes > 0 {
			a.wrap("it names no prefix: no key has a slash, or what it stores is encrypted; --live asks a member")
		}
		if s.Contents.Estimated {
			a.wrap("so many keys were written that they are not counted, and that MOST may be too few")
		}
		a.printPrefixes(s.Contents, streamedColumns)
	}
}

func (a *invocation) wrap(words string) {
	for _, line := range wrapped(words, width) {
		fmt.Fprintln(a.Out, line)
	}
}

// printPrefixes prints a table.
func (a *invocation) printPrefixes(of *v1beta1.SnapshotContents, columns []string) {
	rows := contents.At(of.Prefixes, a.topping.depth)
	by := measures[a.topping.by]
	slices.SortStableFunc(rows, func(x, y v1beta1.PrefixContents) int { return cmp.Compare(by(&y), by(&x)) })
	rest := of.Total
	for _, row := range rows {
		rest.Keys -= row.Keys
		rest.LiveBytes -= row.LiveBytes
		rest.Bytes -= row.Bytes
		rest.Revisions -= row.Revisions
		rest.Writes -= row.Writes
	}
	rest.MostRevisions = 0
	rest.LargestValue = 0
	lines := [][]string{append([]string{"PREFIX"}, columns...)}
	add := func(name string, row *v1beta1.PrefixContents) {
		line := []string{name}
		for _, column := range columns {
			line = append(line, cells[column](row))
		}
		lines = append(lines, line)
	}
	for _, row := range rows {
		name := row.Prefix
		if row.Partial {
			name += " (at least)"
		}
		add(name, &row)
	}
	if rest.Keys > 0 || rest.Revisions > 0 || rest.Writes > 0 {
		add("(others)", &rest)
	}
	add("(all)", &of.Total)
	page{a.Out}.columns("", lines)
}
