package snapshot

import (
	"cmp"
	"context"
	"flag"
	"io"
	"strconv"
	"time"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/seed"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/etcdops/datadir"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// restoring is what the command restore is told.
type restoring struct {
	seed.Options
	source   archive.Source
	member   archive.Cluster // to fetch from, at the URL from, by these files
	from     string
	files    tlsFiles
	tokenKey string
	marker   string
	tailURL  string
	keysFile string
}

// Restore is the command quorate-snapshot restore; the result is its exit code.
func Restore(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	r, err := readRestoring(args, getenv, stderr)
	if err != nil {
		return exitCode(err, stderr)
	}
	report, err := r.run(ctx)
	if err != nil {
		report.Error = told(err)
		report.Reason = archive.ReasonOf(err)
	}
	tell(report, stdout)
	return exitCode(err, stderr)
}

func readRestoring(args []string, getenv func(string) string, stderr io.Writer) (*restoring, error) {
	r := &restoring{}
	flags := flag.NewFlagSet("quorate-snapshot restore", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&r.DataDir, "data-dir", objects.DataDir, "etcd's data `directory`, which is created")
	flags.StringVar(&r.WALDir, "wal-dir", "",
		"`directory` of etcd's write-ahead log, where it is not in the data directory")
	flags.StringVar(&r.marker, "marker", objects.MarkerFile,
		"`file` that shows that this pod has started before: if it exists, nothing is done")
	flags.StringVar(&r.Name, "name", "", "`name` of the member; required")
	flags.StringVar(&r.PeerURL, "peer-url", "", "`URL` of the member for its peers; required")
	flags.StringVar(&r.EtcdVersion, "etcd-version", "",
		"`version` of the etcd that will run, and of the programs here; required")
	flags.StringVar(&r.Programs.Etcd, "etcd", "/usr/local/bin/etcd", "`file` of etcd")
	flags.StringVar(&r.Programs.Etcdutl, "etcdutl", "/usr/local/bin/etcdutl", "`file` of etcdutl")
	r.revisionFlag(flags)
	r.sourceFlags(flags)
	r.memberFlags(flags)
	if err := command.Parse(flags, args); err != nil {
		return nil, err
	}
	if r.from != "" {
		r.member.Endpoints = []string{r.from}
	}
	var err error
	if r.member.Visitor, err = visitor("--token-key", r.tokenKey); err != nil {
		return nil, err
	}
	if r.member.TLS, err = r.files.config(); err != nil {
		return nil, err
	}
	r.source.SHA256 = cmp.Or(r.source.SHA256, getenv(facts.EnvSHA256))
	if text := getenv(facts.EnvUntil); text != "" && r.UntilRevision == 0 {
		if r.UntilRevision, err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, command.Errorf("the variable %s is no revision", facts.EnvUntil)
		}
	}
	r.InitialCluster = getenv("ETCD_INITIAL_CLUSTER")
	r.Token = getenv("ETCD_INITIAL_CLUSTER_TOKEN")
	for _, needed := range [][2]string{
		{"--name", r.Name}, {"--peer-url", r.PeerURL}, {"--etcd-version", r.EtcdVersion},
		{"ETCD_INITIAL_CLUSTER", r.InitialCluster}, {"ETCD_INITIAL_CLUSTER_TOKEN", r.Token},
	} {
		if needed[1] == "" {
			return nil, command.Errorf("%s is required", needed[0])
		}
	}
	return r, r.valid()
}

// valid says which flags don't go together.
func (r *restoring) valid() error {
	sources := 0
	for _, named := range []bool{r.source.URL != "", r.FromData != "", len(r.member.Endpoints) > 0, r.Empty} {
		if named {
			sources++
		}
	}
	switch {
	case sources != 1:
		return command.Errorf("one of --url, --from-data, --from-member and --empty is required, and only one: where " +
			"the data comes from")
	case r.UntilRevision < 0, r.tailURL != "" && r.source.URL == "", r.tailURL == "" && r.streamed():
		return command.Errorf("--tail-url goes with --url, and --until-revision, --until-time, --as-far-as-possible " +
			"and --stream-keys with --tail-url: a stream is replayed behind a snapshot, up to some revision")
	case r.BeginAfter != nil && *r.BeginAfter < 0:
		return command.Errorf("--begin-after must not be negative: revisions only rise")
	}
	return nil
}

// streamed reports whether a flag is given that is about a stream.
func (r *restoring) streamed() bool {
	return r.UntilRevision != 0 || !r.UntilTime.IsZero() || r.AsFarAsPossible || r.keysFile != ""
}

// revisionFlag says above which revision the member begins.
func (r *restoring) revisionFlag(flags *flag.FlagSet) {
	const beginAfter = "raise the revision to 1000000000 above this `revision` and above that of the data, and mark " +
		"all before as compacted"
	flags.Func("begin-after", beginAfter, func(text string) error {
		revision, err := strconv.ParseInt(text, 10, 64)
		r.BeginAfter = &revision
		return err
	})
}

// sourceFlags are the flags that say where the data comes from.
func (r *restoring) sourceFlags(flags *flag.FlagSet) {
	flags.StringVar(&r.source.URL, "url", "", "`URL` of the artifact to restore")
	flags.StringVar(&r.source.StoreURL, "store-url", "",
		"`URL` of its folder, with the query that says how to reach it")
	flags.StringVar(&r.source.StoreDir, "store-dir", "",
		"`directory` in which the claim of a URL file:///folder is mounted")
	flags.StringVar(&r.source.CAFile, "store-ca", "", "`file` with the authorities that sign the store's certificate")
	flags.StringVar(&r.source.IdentityFile, "identity", "", "`file` with age identities, for an encrypted artifact")
	flags.StringVar(&r.source.SHA256, "sha256", "",
		"`SHA-256` that the database of the artifact must have, in hexadecimal; else that of the variable "+
			facts.EnvSHA256)
	flags.StringVar(&r.tailURL, "tail-url", "",
		"`URL` of the folder <tail>/<cluster ID> of a stream, whose changes are replayed behind the artifact")
	flags.StringVar(&r.keysFile, "stream-keys", "", keysUsage)
	flags.Int64Var(&r.UntilRevision, "until-revision", 0,
		"`revision` that is the last to be replayed; else that of the variable "+facts.EnvUntil+", else that of "+
			"--until-time, else the last that is stored without a gap")
	flags.Func("until-time", "`time` as in 2026-01-31T12:00:00Z: replay what had arrived by then",
		func(text string) (err error) {
			r.UntilTime, err = time.Parse(time.RFC3339, text)
			return err
		})
	flags.BoolVar(&r.AsFarAsPossible, "as-far-as-possible", false, "without --until-revision: end the replay before "+
		"what can't be followed, such as a damaged file or a change of users, instead of failing")
	flags.StringVar(&r.FromData, "from-data", "",
		"data `directory` of a member whose epoch is over, instead of an artifact; nothing in it is changed")
	flags.BoolVar(&r.Empty, "empty", false, "begin without data, instead of an artifact")
	flags.StringVar(&r.FromWAL, "from-wal", "",
		"`directory` of its write-ahead log, where it is not in the data directory")
}

// memberFlags are the flags by which a member that runs is reached, to fetch its data.
func (r *restoring) memberFlags(flags *flag.FlagSet) {
	flags.StringVar(&r.from, "from-member", "",
		"client `URL` of a member that runs, whose data is fetched, instead of an artifact")
	flags.StringVar(&r.files.ca, "ca", "",
		"`file` with those who sign its certificate; without it plain text is spoken")
	flags.StringVar(&r.files.cert, "cert", "", "`file` with the certificate that it is shown")
	flags.StringVar(&r.tokenKey, "token-key", "", tokenKeyUsage)
	flags.StringVar(&r.files.key, "cert-key", "", "`file` with the private key of that")
}

// run fills the data directory, unless there is something to lose: when the member has data, or this pod has started
// before, it is for prepare to say what follows (S10).
func (r *restoring) run(ctx context.Context) (stores.Restore, error) {
	data, err := datadir.HasData(r.DataDir, r.WALDir)
	if err != nil {
		return stores.Restore{}, command.Errorf("the data directory %s can't be read: %s", r.DataDir,
			archive.Words(err))
	}
	started, err := datadir.Exists(r.marker)
	if err != nil {
		return stores.Restore{}, command.Errorf("the marker %s can't be read: %s", r.marker, archive.Words(err))
	}
	if data {
		return seed.Restored(r.DataDir), seed.Finish(r.DataDir)
	}
	if started {
		return seed.Restored(r.DataDir), nil
	}
	if len(r.member.Endpoints) > 0 {
		r.Fetch = r.member.Copy
	}
	if r.source.URL != "" {
		if r.Size, err = archive.SizeOf(ctx, r.source); err != nil {
			return stores.Restore{}, err
		}
		r.Fetch = func(ctx context.Context, to string) (*stores.Artifact, error) {
			return archive.Fetch(ctx, r.source, to)
		}
	}
	if r.tailURL != "" {
		if err := r.openTail(ctx); err != nil {
			return stores.Restore{}, err
		}
		defer r.Tail.Close()
	}
	return seed.Restore(ctx, r.Options)
}

// openTail lists what is stored of the stream. A store may refuse the list to a restore that goes as far as possible:
// a stream with these credentials would have been refused, too. Then nothing is followed, and the report says why.
func (r *restoring) openTail(ctx context.Context) error {
	place, err := archive.FolderOf(r.tailURL, r.source)
	if err == nil {
		r.Tail, err = stream.OpenTail(ctx, place, stream.Opening{IdentityFile: r.source.IdentityFile,
			KeysFile: r.keysFile})
	}
	if r.AsFarAsPossible && r.Tail != nil && archive.ReasonOf(err) == archive.Denied {
		r.TailFlaw = archive.Words(err)
		err = nil
	}
	return err
}
