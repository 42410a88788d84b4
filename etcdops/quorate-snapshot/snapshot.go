package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"github.com/quorate-dev/quorate/etcdops/archive"
	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/reports"
)

// reportLimit is what Kubernetes keeps of a termination message, in bytes.
const reportLimit = 4096

// runSnapshot is the command snapshot; the result is the exit code. What came of it is told in the termination message, too.
func runSnapshot(ctx context.Context, args []string, stderr io.Writer) int {
	order, err := snapshotOrder(args, stderr)
	if err != nil {
		if !explained(err) {
			command.TerminationMessage(reportOf(reports.Snapshot{Error: told(err)}))
		}
		return exitCode(err, stderr)
	}
	// The buffers have a fixed size; garbage piles up to the double of what is in use unless it is told otherwise.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	order.Tell = func(report *reports.Snapshot) {
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

// snapshotOrder reads the flags of snapshot.
func snapshotOrder(args []string, stderr io.Writer) (archive.Order, error) {
	o := archive.Order{Log: slog.New(slog.NewJSONHandler(stderr, nil))}
	var (
		ca, cert, certKey string
		compression       string
		recipients        []string
		unless            archive.Unless
	)
	flags := flag.NewFlagSet("quorate-snapshot snapshot", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Func("endpoint", "client `URL` of the cluster; may be repeated; required", add(&o.Cluster.Endpoints))
	flags.StringVar(&ca, "ca", "", "`file` with PEM certificates of those who sign the members' certificates")
	flags.StringVar(&cert, "cert", "", "`file` with the certificate that members are shown, PEM")
	flags.StringVar(&certKey, "cert-key", "", "`file` with its private key, PEM")
	storeFlags(flags, &o.Place, &o.Key)
	flags.StringVar(&compression, "compression", "zstd", "zstd or none: `how` what is stored is compressed")
	flags.Func("recipient", "public `key` of age that what is stored is encrypted for; may be repeated", add(&recipients))
	flags.BoolVar(&o.Verify, "verify", true, "fetch what was stored, restore it on trial, and compare it with the cluster")
	flags.StringVar(&o.Etcd, "etcd", "etcd", "`binary` of that name, of the members' version; for --verify")
	flags.StringVar(&o.Etcdutl, "etcdutl", "etcdutl", "`binary` of that name, of the members' version; for --verify")
	flags.StringVar(&o.Scratch, "scratch", "", "`directory` with room for twice the database and 128 MiB, for --verify; empty is that of temporary files")
	flags.Int64Var(&unless.Revision, "unless-revision", 0, "take none while the keys have this `revision`, and the rest is as the other two flags say; 0 takes one")
	flags.StringVar(&unless.ClusterID, "unless-cluster", "", "`ID` of the cluster, in hexadecimal")
	flags.Int64Var(&unless.AuthRevision, "unless-auth-revision", 0, "`revision` of users and roles")
	if err := command.Parse(flags, args); err != nil {
		return o, err
	}
	if len(o.Cluster.Endpoints) == 0 || o.Key == "" || o.Place.URL == "" {
		return o, command.Errorf("--endpoint, --store-url and --key are required")
	}
	if unless != (archive.Unless{}) {
		if unless.Revision == 0 || unless.ClusterID == "" || unless.AuthRevision == 0 {
			return o, command.Errorf("--unless-revision, --unless-cluster and --unless-auth-revision belong together")
		}
		o.Unless = &unless
	}
	var err error
	if o.Form.Compression, err = compressionOf(compression); err != nil {
		return o, err
	}
	if o.Form.Recipients, err = archive.ParseRecipients(recipients); err != nil {
		return o, err
	}
	o.Cluster.TLS, err = clusterTLS(ca, cert, certKey)
	return o, err
}

// storeFlags are the flags by which a store is reached, and the name of an artifact in it.
func storeFlags(flags *flag.FlagSet, place *archive.Place, key *string) {
	flags.StringVar(&place.URL, "store-url", "", "`URL` of the folder: s3://, gs://, azblob:// or file:///; required")
	flags.StringVar(&place.Dir, "store-dir", "", "`directory` that file:///folder is in; empty is that of this machine")
	flags.StringVar(&place.CAFile, "store-ca", "", "`file` with PEM certificates of those who sign the store's certificate, besides the public authorities")
	flags.StringVar(key, "key", "", "`name` of the artifact in the folder; required")
}

// add collects the values of a flag that may be repeated.
func add(values *[]string) func(string) error {
	return func(value string) error {
		*values = append(*values, value)
		return nil
	}
}

func compressionOf(word string) (v1alpha1.Compression, error) {
	for _, known := range []v1alpha1.Compression{v1alpha1.CompressZstd, v1alpha1.CompressNone} {
		if strings.EqualFold(word, string(known)) {
			return known, nil
		}
	}
	return "", command.Errorf("--compression must be zstd or none")
}

// clusterTLS is how the members are talked to; nil for plain text, when no file is named.
func clusterTLS(ca, cert, key string) (*tls.Config, error) {
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if ca != "" {
		authorities, err := os.ReadFile(ca)
		if err != nil {
			return nil, command.Errorf("--ca: the file %s can't be read: %s", ca, archive.Words(err))
		}
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, command.Errorf("--ca: the file %s holds no certificate in PEM", ca)
		}
	}
	if cert != "" || key != "" {
		own, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, command.Errorf("--cert and --cert-key: %s and %s are no certificate and its key in PEM that can be read", cert, key)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// reportOf is a report as a termination message. Of an error that is too long for it, the end is left out.
func reportOf(report reports.Snapshot) string {
	for {
		text, err := json.Marshal(report)
		if err != nil {
			return ""
		}
		if len(text) <= reportLimit || report.Error == "" {
			return string(text)
		}
		report.Error = strings.ToValidUTF8(report.Error[:len(report.Error)*3/4], "")
	}
}

// runLook is the command look; the result is the exit code. What is stored is told in the termination message, as by snapshot.
func runLook(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var place archive.Place
	var key string
	flags := flag.NewFlagSet("quorate-snapshot look", flag.ContinueOnError)
	flags.SetOutput(stderr)
	storeFlags(flags, &place, &key)
	err := command.Parse(flags, args)
	if err == nil && (place.URL == "" || key == "") {
		err = command.Errorf("--store-url and --key are required")
	}
	if explained(err) {
		return exitCode(err, stderr)
	}
	var report reports.Snapshot
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

// runDiscard is the command discard; the result is the exit code.
func runDiscard(ctx context.Context, args []string, stderr io.Writer) int {
	var place archive.Place
	var key string
	flags := flag.NewFlagSet("quorate-snapshot discard", flag.ContinueOnError)
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
		command.TerminationMessage(told(err))
	}
	return exitCode(err, stderr)
}
