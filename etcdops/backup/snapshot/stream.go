package snapshot

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// tailGrammar is what names under which streams are stored look like, and clusterIDs what those of clusters do.
var (
	tailGrammar = regexp.MustCompile(`^[0-9A-Za-z][-._0-9A-Za-z]*(/[0-9A-Za-z][-._0-9A-Za-z]*)*$`)
	clusterIDs  = regexp.MustCompile(`^([0-9a-f]{1,16})?$`)
)

const (
	tailUsage   = "`prefix` in the folder under which streams are, each in a folder of its cluster's ID"
	listenUsage = "`address` of /health, /status and /metrics; empty is none"
	idUsage     = "`ID` of the cluster in hexadecimal"
	keysUsage   = "`file` with the keys of the stream, one on a line: what none of them has signed is not followed; " +
		"empty believes all that is in the store"
)

// streaming is what the flags of stream say.
type streaming struct {
	ordering
	stream.Options
	listen string
}

// Stream is the command quorate-snapshot stream; the result is its exit code. It ends when it is told to, or can't go
// on, and what came of it is told in the termination message.
func Stream(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := readStreaming(args, stderr)
	if err != nil {
		if !explained(err) {
			tell(stores.Stream{Error: told(err)}, stdout)
		}
		return exitCode(err, stderr)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	monitor := stream.NewMonitor(s.FlushAfter)
	report := monitor.Report()
	end, err := serve(s.listen, monitor, s.Options.Log)
	if err == nil {
		defer end()
		defer s.serveWrites(monitor.Writes)()
		report, err = stream.Run(ctx, s.Options, monitor)
	}
	if err != nil {
		report.Reason = archive.ReasonOf(err)
		report.Error = told(err)
	}
	tell(report, stdout)
	return exitCode(err, stderr)
}

func readStreaming(args []string, stderr io.Writer) (*streaming, error) {
	s := &streaming{ordering: ordering{Order: archive.Order{}}}
	flags := flag.NewFlagSet("quorate-snapshot stream", flag.ContinueOnError)
	flags.SetOutput(stderr)
	s.clusterFlags(flags)
	placeFlags(flags, &s.ordering.Place, "required")
	s.formFlags(flags)
	flags.StringVar(&s.Tail, "tail", "", tailUsage+"; required")
	flags.StringVar(&s.ClusterID, "cluster-id", "", idUsage+" that is expected; empty takes any")
	flags.Int64Var(&s.FromRevision, "from-revision", 0, "`revision` of the snapshot to follow on; required")
	flags.StringVar(&s.KeysFile, "stream-keys", "",
		"`file` with the keys of the stream, one on a line: the first signs what is stored; empty signs nothing")
	flags.DurationVar(&s.FlushAfter, "flush-after", 10*time.Second, "how `long` a change waits to be stored at most")
	flags.IntVar(&s.MaxSize, "max-size", 8<<20, "`bytes` of changes that are stored at once, before compression")
	flags.StringVar(&s.listen, "listen", ":2390", listenUsage)
	if err := command.Parse(flags, args); err != nil {
		return nil, err
	}
	if len(s.from.cluster.Endpoints) == 0 || s.ordering.Place.URL == "" || s.Tail == "" || s.FromRevision < 1 {
		return nil, command.Errorf("--endpoint, --store-url, --tail and --from-revision are required")
	}
	if !tailGrammar.MatchString(s.Tail) || !clusterIDs.MatchString(s.ClusterID) {
		return nil, command.Errorf("--tail must be names of letters, digits, '-', '_' and '.', with '/' between, and " +
			"--cluster-id at most 16 hexadecimal digits")
	}
	if s.FlushAfter < 100*time.Millisecond || s.FlushAfter > time.Hour || s.MaxSize < 1<<10 ||
		s.MaxSize > stream.LargestSize {
		return nil, command.Errorf("--flush-after must be from 100ms to 1h, and --max-size from 1024 to %d",
			stream.LargestSize)
	}
	if err := s.readCommon(); err != nil {
		return nil, err
	}
	s.Options.Cluster = s.ordering.Cluster
	s.Options.Place = s.ordering.Place
	s.Options.Form = s.ordering.Form
	s.Options.Log = slog.New(slog.NewJSONHandler(stderr, nil))
	return s, nil
}

// serveWrites tells who writes, where it tells how it is. A stream goes on without it.
func (s *streaming) serveWrites(writes *stream.Writes) (end func()) {
	writes.Nameless = len(s.Options.Form.Recipients) > 0
	if s.listen == "" {
		return func() {}
	}
	end, err := serve(fmt.Sprintf("127.0.0.1:%d", snapshot.WritesPort), writes, s.Options.Log)
	if err != nil {
		s.Options.Log.Warn("the stream does not tell who writes", "reason", archive.Words(err))
		return func() {}
	}
	return end
}

// serve tells over HTTP how something is, until the function is called.
func serve(listen string, monitor http.Handler, log *slog.Logger) (end func(), err error) {
	if listen == "" {
		return func() {}, nil
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", listen)
	if err != nil {
		return nil, command.Errorf("--listen: the address can't be listened at: %s", archive.Words(err))
	}
	server := &http.Server{Handler: monitor, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: time.Minute}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Warn("nothing is told over HTTP any more", "error", archive.Words(err))
		}
	}()
	return func() { _ = server.Close() }, nil
}

// lookFlags are the flags of look that are about a stream.
func lookFlags(flags *flag.FlagSet, asked *stream.Asked) {
	flags.StringVar(&asked.Prefix, "tail", "", tailUsage+"; instead of --key")
	flags.StringVar(&asked.ClusterID, "cluster-id", "", idUsage+"; empty where only one is stored")
	flags.Int64Var(&asked.FromRevision, "from-revision", 0,
		"`revision` that the changes are to follow on, of a snapshot; 0 is where they begin")
	flags.Func("until-time", "`time` as in 2026-01-31T12:00:00Z: say which revision had arrived by then",
		func(text string) (err error) {
			asked.UntilTime, err = time.Parse(time.RFC3339, text)
			return err
		})
	flags.StringVar(&asked.KeysFile, "stream-keys", "", keysUsage)
	flags.StringVar(&asked.IdentityFile, "identity", "",
		"`file` with age identities; for --contents, and without them times of what is encrypted are by the clock of the "+
			"store")
}

// lookAtTail is what look does with --tail.
func lookAtTail(ctx context.Context, asked stream.Asked, stdout, stderr io.Writer) int {
	var err error
	var report stores.Tail
	if !tailGrammar.MatchString(asked.Prefix) || !clusterIDs.MatchString(asked.ClusterID) {
		err = command.Errorf("--tail or --cluster-id can't be one")
	} else {
		report, err = stream.Look(ctx, asked)
	}
	if err != nil {
		report.Reason = archive.ReasonOf(err)
		report.Error = told(err)
	}
	tell(report, stdout)
	return exitCode(err, stderr)
}
