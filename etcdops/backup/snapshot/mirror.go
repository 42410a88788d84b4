package snapshot

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"runtime/debug"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/mirror"
	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// mirrorNames is what names of mirrors look like.
var mirrorNames = regexp.MustCompile(`^[0-9A-Za-z][-._0-9A-Za-z]{0,62}$`)

// mirroring is what the flags of mirror say.
type mirroring struct {
	mirror.Promotion
	from, to reaching
	stored   mirror.Stored
	listen   string
}

// Mirror is the command quorate-snapshot mirror, with promote and check; the result is its exit code. What came of it
// is told in the termination message, too.
func Mirror(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	act := "mirror"
	if len(args) > 0 && (args[0] == "promote" || args[0] == "check") {
		act = args[0]
		args = args[1:]
	}
	m, err := readMirroring(act, args, stderr)
	if err != nil {
		if !explained(err) {
			tell(stores.Mirror{Error: told(err)}, stdout)
		}
		return exitCode(err, stderr)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	var report stores.Mirror
	switch act {
	case "promote":
		report, err = mirror.Promote(ctx, m.Promotion)
	case "check":
		report, err = mirror.Compare(ctx, m.Options)
	default:
		report, err = m.run(ctx)
	}
	if err != nil {
		report.Reason = archive.ReasonOf(err)
		report.Error = told(err)
	}
	tell(report, stdout)
	return exitCode(err, stderr)
}

func (m *mirroring) run(ctx context.Context) (stores.Mirror, error) {
	monitor := mirror.NewMonitor()
	end, err := serve(m.listen, monitor, m.Log)
	if err != nil {
		return stores.Mirror{}, err
	}
	defer end()
	return mirror.Run(ctx, m.Options, monitor)
}

func readMirroring(act string, args []string, stderr io.Writer) (*mirroring, error) {
	m := &mirroring{}
	name := "quorate-snapshot mirror"
	if act != "mirror" {
		name += " " + act
	}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	m.from.flags(flags, "", "the source")
	m.to.flags(flags, "to-", "the destination")
	placeFlags(flags, &m.stored.Place, "instead of --endpoint, in which a stream of the source's changes is")
	flags.StringVar(&m.stored.Tail, "tail", "", tailUsage+"; with --store-url")
	flags.StringVar(&m.stored.ClusterID, "cluster-id", "", idUsage+"; empty is that of the newest snapshot")
	flags.StringVar(&m.stored.IdentityFile, "identity", "", "`file` with age identities, for what is encrypted")
	flags.StringVar(&m.stored.KeysFile, "stream-keys", "", keysUsage)
	flags.StringVar(&m.stored.Scratch, "scratch", "", "`directory` for a snapshot and as much again")
	flags.StringVar(&m.Name, "name", "default", "`name` of the mirror: its place is the key "+mirror.Reserved+
		"<name> of the destination")
	flags.IntVar(&m.MostOps, "to-max-txn-ops", mirror.DefaultOps,
		"`number` of operations that the destination takes in a transaction: its --max-txn-ops")
	toPrefix := func() {}
	switch act {
	case "promote":
		flags.Int64Var(&m.Revision, "revision", 0,
			"`revision` of the source that must be there; 0 asks the source for its last one")
		flags.BoolVar(&m.Force, "force", false, "end at what the destination has, and don't ask the source")
	case "mirror":
		toPrefix = m.scopeFlags(flags)
		flags.BoolVar(&m.CompareOnStart, "compare-on-start", false,
			"compare all keys first; the source may be another cluster, or have another history, than before")
		flags.StringVar(&m.listen, "listen", ":2390", listenUsage)
	}
	if err := command.Parse(flags, args); err != nil {
		return nil, err
	}
	toPrefix()
	m.Log = slog.New(slog.NewJSONHandler(stderr, nil))
	err := m.valid(act != "promote" || m.Revision == 0 && !m.Force)
	if m.stored.Place.URL != "" {
		m.Stored = &m.stored
	} else if err == nil {
		m.Source, err = m.from.read()
	}
	if err == nil {
		m.Destination, err = m.to.read()
	}
	return m, err
}

// valid says which flags are missing or can't be; asked tells whether the source is.
func (m *mirroring) valid(asked bool) error {
	if err := m.validSource(asked); err != nil {
		return err
	}
	switch {
	case len(m.to.cluster.Endpoints) == 0:
		return command.Errorf("--endpoint and --to-endpoint are required")
	case !mirrorNames.MatchString(m.Name):
		return command.Errorf("--name must be at most 63 letters, digits, '-', '_' and '.'")
	case m.MostOps < 2 || m.MostOps > 100_000:
		return command.Errorf("--to-max-txn-ops must be from 2 to 100000")
	case m.Revision < 0 || m.Force && m.Revision != 0:
		return command.Errorf("--revision must be positive, and not be with --force")
	}
	if err := m.Scope.Check(); err != nil {
		return command.Errorf("--prefix, --to-prefix and --exclude: %s", archive.Words(err))
	}
	return nil
}

// validSource is valid about the source.
func (m *mirroring) validSource(asked bool) error {
	live := len(m.from.cluster.Endpoints) > 0
	kept := m.stored.Place.URL != ""
	switch {
	case asked && !live && !kept:
		return command.Errorf("--endpoint and --to-endpoint are required")
	case live && kept:
		return command.Errorf("--endpoint and --store-url are two sources: use one of them")
	case kept && !tailGrammar.MatchString(m.stored.Tail) || !kept && m.stored.Tail != "":
		return command.Errorf("--store-url and --tail belong together; --tail is names of letters, digits, '-', '_' and " +
			"'.', with '/' between")
	case !clusterIDs.MatchString(m.stored.ClusterID):
		return command.Errorf("--cluster-id must be at most 16 hexadecimal digits")
	}
	return nil
}

// scopeFlags are the flags that say which keys are mirrored. The function puts the prefix at the destination in where
// it was not given.
func (m *mirroring) scopeFlags(flags *flag.FlagSet) func() {
	given := false
	flags.StringVar(&m.Scope.Prefix, "prefix", "", "`prefix` of the keys that are mirrored; empty is all")
	flags.Func("to-prefix", "`prefix` that takes its place at the destination; it is the same unless given",
		func(value string) error {
			m.Scope.ToPrefix = value
			given = true
			return nil
		})
	flags.Func("exclude", fmt.Sprintf("`prefix` of keys that are not mirrored; may be repeated, up to %d times",
		mirror.MostExcluded), add(&m.Scope.Exclude))
	return func() {
		if !given {
			m.Scope.ToPrefix = m.Scope.Prefix
		}
	}
}
