package snapshot

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/seed"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// reportLimit is what Kubernetes keeps of a termination message, in bytes.
const reportLimit = 4096

// Take is the command quorate-snapshot snapshot; the result is its exit code. What came of it is told in the
// termination message, too.
func Take(ctx context.Context, args []string, stderr io.Writer) int {
	order, err := snapshotOrder(args, stderr)
	if err != nil {
		if !explained(err) {
			command.TerminationMessage(reportOf(stores.Snapshot{Error: told(err)}))
		}
		return exitCode(err, stderr)
	}
	// The buffers have a fixed size; garbage piles up to the double of what is in use unless it is told otherwise.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	order.Tell = func(report *stores.Snapshot) {
		if report == nil {
			command.TerminationMessage("")
			return
		}
		command.TerminationMessage(reportOf(*report))
	}
	report, err := archive.Take(ctx, order)
	command.TerminationMessage(reportOf(report))
	return exitCode(err, stderr)
}

// ordering is what the flags of snapshot say.
type ordering struct {
	archive.Order
	from        reaching
	etcdutl     string
	compression string
	recipients  []string
	unless      archive.Unless
	lock        archive.Lock
}

const tokenKeyUsage = "`file` with the key that signs etcd's tokens, PEM; for members that ask for no certificate"

// snapshotOrder reads the flags of snapshot.
func snapshotOrder(args []string, stderr io.Writer) (archive.Order, error) {
	o := ordering{Order: archive.Order{Log: slog.New(slog.NewJSONHandler(stderr, nil))}}
	flags := flag.NewFlagSet("quorate-snapshot snapshot", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o.flags(flags)
	err := command.Parse(flags, args)
	if err == nil {
		err = o.read()
	}
	return o.Order, err
}

func (o *ordering) flags(flags *flag.FlagSet) {
	o.clusterFlags(flags)
	storeFlags(flags, &o.Place, &o.Key)
	o.formFlags(flags)
	flags.BoolVar(&o.Verify, "verify", true,
		"fetch what was stored, restore it on trial, and compare it with the cluster")
	flags.StringVar(&o.Etcd, "etcd", "etcd", "`binary` of that name, of the members' version; for --verify")
	flags.StringVar(&o.etcdutl, "etcdutl", "etcdutl", "`binary` of that name, of the members' version; for --verify")
	flags.StringVar(&o.Scratch, "scratch", "",
		"`directory` with room for the database and 256 MiB, for --verify; empty is that of temporary files")
	flags.Int64Var(&o.unless.Revision, "unless-revision", 0,
		"take none while the keys have this `revision`, and the rest is as the other two flags say; 0 takes one")
	flags.StringVar(&o.unless.ClusterID, "unless-cluster", "", "`ID` of the cluster, in hexadecimal")
	flags.Int64Var(&o.unless.AuthRevision, "unless-auth-revision", 0, "`revision` of users and roles")
}

// clusterFlags are the flags by which a cluster is reached.
func (o *ordering) clusterFlags(flags *flag.FlagSet) {
	o.from.flags(flags, "", "the cluster")
	flags.BoolVar(&o.from.cluster.OnlyEndpoints, "only-endpoints", false,
		"ask members at these URLs alone, not at those that they advertise")
}

// formFlags are the flags that say how something is stored.
func (o *ordering) formFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.compression, "compression", "zstd", "zstd or none: `how` what is stored is compressed")
	flags.Func("recipient", "public `key` of age that what is stored is encrypted for; may be repeated",
		add(&o.recipients))
	flags.StringVar(&o.lock.Mode, "lock", "", "governance or compliance: `how` S3 locks what is stored; empty is not")
	flags.DurationVar(&o.lock.For, "retain-for", 0, "how `long` S3 keeps it then")
}

// read makes the order of what was given, and says which flags are missing or can't be read.
func (o *ordering) read() error {
	if len(o.from.cluster.Endpoints) == 0 || o.Key == "" || o.Place.URL == "" {
		return command.Errorf("--endpoint, --store-url and --key are required")
	}
	if o.unless != (archive.Unless{}) {
		if o.unless.Revision == 0 || o.unless.ClusterID == "" || o.unless.AuthRevision == 0 {
			return command.Errorf("--unless-revision, --unless-cluster and --unless-auth-revision belong together")
		}
		o.Unless = &o.unless
	}
	return o.readCommon()
}

// readCommon reads what the flags of the cluster and of the form say.
func (o *ordering) readCommon() error {
	o.Restore = seed.Programs{Etcd: o.Etcd, Etcdutl: o.etcdutl}.OnTrial
	if o.lock != (archive.Lock{}) {
		if err := o.lock.Check(o.Place); err != nil {
			return command.Errorf("--lock and --retain-for: %s", err)
		}
		o.Form.Lock = &o.lock
	}
	var err error
	if o.Form.Compression, err = compressionOf(o.compression); err != nil {
		return err
	}
	if o.Form.Recipients, err = archive.ParseRecipients(o.recipients); err != nil {
		return err
	}
	o.Cluster, err = o.from.read()
	return err
}

// line is what a file holds, without the end of its line; empty for no file.
func line(flag, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", command.Errorf("%s: the file %s can't be read: %s", flag, file, archive.Words(err))
	}
	return strings.TrimRight(string(raw), "\r\n"), nil
}

// storeFlags are the flags by which a store is reached, and the name of an artifact in it.
func storeFlags(flags *flag.FlagSet, place *archive.Place, key *string) {
	placeFlags(flags, place, "required")
	flags.StringVar(key, "key", "", "`name` of the artifact in the folder; required")
}

func placeFlags(flags *flag.FlagSet, place *archive.Place, more string) {
	flags.StringVar(&place.URL, "store-url", "", "`URL` of the folder: s3://, gs://, azblob:// or file:///; "+more)
	flags.StringVar(&place.Dir, "store-dir", "", "`directory` that file:///folder is in; empty is that of this machine")
	flags.StringVar(&place.CAFile, "store-ca", "",
		"`file` with PEM certificates of those who sign the store's certificate, besides the public authorities")
}

// add collects the values of a flag that may be repeated.
func add(values *[]string) func(string) error {
	return func(value string) error {
		*values = append(*values, value)
		return nil
	}
}

func compressionOf(word string) (v1beta1.Compression, error) {
	for _, known := range []v1beta1.Compression{v1beta1.CompressZstd, v1beta1.CompressNone} {
		if strings.EqualFold(word, string(known)) {
			return known, nil
		}
	}
	return "", command.Errorf("--compression must be zstd or none")
}

// reportOf is a report as a termination message. Of prefixes that are too many for it, and of an error that is too
// long, the end is left out.
func reportOf(report stores.Snapshot) string {
	for {
		text, err := json.Marshal(report)
		if err != nil {
			return ""
		}
		if c := report.Contents; len(text) > reportLimit && c != nil && len(c.Prefixes) > 0 {
			shorter := *c
			shorter.Prefixes = c.Prefixes[:len(c.Prefixes)-1]
			report.Contents = &shorter
			continue
		}
		if len(text) <= reportLimit || report.Error == "" {
			return string(text)
		}
		report.Error = strings.ToValidUTF8(report.Error[:len(report.Error)*3/4], "")
	}
}

// Inspect is the command quorate-snapshot inspect; the result is its exit code. What is stored is told in the
// termination message, as by snapshot; with --tail, what is stored of a stream.
func Inspect(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var place archive.Place
	var key string
	var tail stream.Asked
	var latest string
	var wait bool
	var contents bool
	flags := flag.NewFlagSet("quorate-snapshot inspect", flag.ContinueOnError)
	flags.SetOutput(stderr)
	storeFlags(flags, &place, &key)
	lookFlags(flags, &tail)
	flags.BoolVar(&contents, "contents", false, "say what fills the database, by prefix, as it is stored beside the "+
		"artifact")
	flags.StringVar(&latest, "latest", "", "`folder` below that of the store, whose newest snapshot is told")
	flags.BoolVar(&wait, "wait", false, "with --latest: fail where there is no snapshot, so that another look follows")
	err := command.Parse(flags, args)
	asked := slices.DeleteFunc([]string{key, tail.Prefix, latest}, func(name string) bool { return name == "" })
	if err == nil && (place.URL == "" || len(asked) != 1) {
		err = command.Errorf("--store-url and one of --key, --tail and --latest are required")
	}
	if explained(err) {
		return exitCode(err, stderr)
	}
	if err == nil && latest != "" {
		return lookForLatest(ctx, place, latest, wait, stdout, stderr)
	}
	if err == nil && tail.Prefix != "" {
		tail.Place = place
		return lookAtTail(ctx, tail, stdout, stderr)
	}
	if err == nil && contents {
		return inspectContents(ctx, place, key, tail.IdentityFile, stdout, stderr)
	}
	var report stores.Snapshot
	if err == nil {
		report, err = archive.Look(ctx, place, key)
	}
	if err != nil {
		report.Error = told(err)
	}
	text := reportOf(report)
	command.TerminationMessage(text)
	fmt.Fprintln(stdout, text)
	return exitCode(err, stderr)
}

// lookForLatest is what inspect does with --latest.
func lookForLatest(ctx context.Context, place archive.Place, folder string, wait bool, stdout, stderr io.Writer) int {
	report, err := archive.Latest(ctx, place, folder)
	if err == nil && report.None && wait {
		err = archive.Failure(archive.NotFound, nil, "the folder %s has no snapshot", folder)
	}
	if err != nil {
		report.Error = told(err)
		report.Reason = archive.ReasonOf(err)
	}
	tell(report, stdout)
	return exitCode(err, stderr)
}

// inspectContents is what inspect does with --contents. It is for people, and no report.
func inspectContents(ctx context.Context, place archive.Place, key, identity string, stdout, stderr io.Writer) int {
	c, err := archive.ContentsOf(ctx, place, key, identity)
	if err == nil {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(c)
	}
	return exitCode(err, stderr)
}

// Delete is the command quorate-snapshot delete; the result is its exit code.
func Delete(ctx context.Context, args []string, stderr io.Writer) int {
	var place archive.Place
	var key string
	flags := flag.NewFlagSet("quorate-snapshot delete", flag.ContinueOnError)
	flags.SetOutput(stderr)
	storeFlags(flags, &place, &key)
	err := command.Parse(flags, args)
	if err == nil && (place.URL == "" || key == "") {
		err = command.Errorf("--store-url and --key are required")
	}
	if err == nil {
		err = archive.Discard(ctx, place, key)
	}
	if err != nil && !explained(err) {
		command.TerminationMessage(reportOf(stores.Snapshot{Error: told(err),
			Locked: archive.ReasonOf(err) == archive.Locked}))
	}
	return exitCode(err, stderr)
}
