package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/internal/install"
	"github.com/quorate-dev/quorate/server"
	"github.com/quorate-dev/quorate/server/metrics"
)

// serving is what the flags of quorate serve say.
type serving struct {
	options  server.Options
	callers  server.CallerFiles
	keys     string
	listen   string
	pages    string
	policy   string
	caller   string
	only     string
	selector string
	tenants  install.Tenants
	logLevel slog.Level
}

func (v *serving) flags() *flag.FlagSet {
	o := &v.options
	callers := &v.callers
	flags := flag.NewFlagSet("quorate serve", flag.ContinueOnError)
	flags.StringVar(&v.listen, "listen", ":8080", "`address` of the hooks")
	flags.StringVar(&v.pages, "metrics-listen", ":8081",
		"`address` of /metrics, /healthz and /readyz, which are plain HTTP for all callers")
	flags.StringVar(&callers.Cert, "tls-cert", "",
		"`file` with the certificate of the hooks, PEM, with its chain; makes them HTTPS. Files are read again when "+
			"they change")
	flags.StringVar(&callers.Key, "tls-key", "", "`file` with its private key, PEM")
	flags.StringVar(&callers.ClientCA, "client-ca", "",
		"`file` with PEM certificates of those who sign callers' certificates; callers must then have one")
	flags.StringVar(&callers.Token, "token-file", "",
		"`file` with the token that callers must send as a bearer token, or as the password of Basic authentication; "+
			"two lines while one takes the other's place")
	flags.StringVar(&v.keys, "record-keys", "",
		"`file` with keys that seal the records of clusters and make those of streams, one on a line: the first seals, "+
			"and what any has sealed is believed. Empty believes every ConfigMap and what is in stores")
	flags.StringVar(&o.Settings.Image, "image", "",
		"`image` of Quorate itself, for the init container of members' pods; required")
	flags.StringVar(&o.Settings.EtcdRepository, "etcd-repository", objects.DefaultEtcdRepository,
		"`repository` of etcd's image, without a tag, for clusters that do not name one; another one exchanges the "+
			"image of every member of theirs, one after the other")
	flags.StringVar(&o.Settings.Namespace, "namespace", "",
		"`namespace` that Quorate runs in, which members' NetworkPolicies let in; empty lets in pods of Quorate's in "+
			"any")
	flags.StringVar(&o.Settings.ClusterDomain, "cluster-domain", "",
		"`domain` of the Kubernetes cluster, for names in certificates; empty for the one that /etc/resolv.conf has, or "+
			"else cluster.local")
	flags.StringVar(&v.only, "namespaces", "",
		"`namespaces`, with commas between, whose clusters are looked after; calls about others are refused. Empty "+
			"for all")
	flags.StringVar(&v.selector, "selector", "",
		"label `selector` of the clusters, snapshots and schedules that are looked after; calls about others are "+
			"refused. Empty for all")
	v.tenants.Flags(flags)
	flags.StringVar(&v.caller, "metacontroller-version", "1.5",
		"`version` of the Metacontroller that calls. 4.16 and later remember by UID what is related to an object, so "+
			"that less is asked for")
	flags.StringVar(&v.policy, "image-pull-policy", "",
		"pull `policy` of that image: Always, IfNotPresent or Never; empty leaves it to Kubernetes")
	flags.Int64Var(&o.MaxBody, "max-body", 8<<20, "largest request in `bytes`")
	flags.DurationVar(&o.CallTimeout, "call-timeout", 8*time.Second,
		"how `long` one call may take; keep it below the webhook's timeout in the CompositeController")
	flags.DurationVar(&o.DrainDelay, "drain-delay", 2*time.Second,
		"how `long` /readyz fails before the server stops listening at shutdown; negative for not at all")
	flags.IntVar(&o.ClusterMetrics, "cluster-metrics", 1000,
		"how `many` clusters have gauges of their own at most, some 25 series each; negative for none")
	flags.BoolVar(&o.Verify, "verify", false, "check every decision against the rules of safety before it counts")
	flags.StringVar(&o.JournalDir, "journal-dir", "",
		"`folder` on a volume where the journal is kept too, in files of 4 MiB; empty for memory alone")
	flags.Int64Var(&o.JournalBytes, "journal-bytes", 256<<20, "how many `bytes` it has there; the oldest file goes first")
	flags.TextVar(&v.logLevel, "log-level", slog.LevelInfo, "least `level` to log: debug, info, warn or error")
	return flags
}

// check finds what can't be served by.
func (v *serving) check() error {
	o := &v.options
	if o.Settings.Image == "" {
		return errors.New("the image of Quorate is not set: pass --image or QUORATE_IMAGE, such as the image of this " +
			"very container")
	}
	if err := install.CheckImages(o.Settings.Image, o.Settings.EtcdRepository); err != nil {
		return err
	}
	if err := v.tenants.Check(); err != nil {
		return err
	}
	o.Settings.AllowedRepositories = v.tenants.Repositories
	o.Settings.AllowedEndpoints = v.tenants.Endpoints
	o.Settings.SharedIssuers = v.tenants.SharedIssuers
	var err error
	if o.RelatedByUID, err = install.RelatesByUID(v.caller); err != nil {
		return err
	}
	if o.Scope.Namespaces, err = install.Namespaces(v.only); err != nil {
		return err
	}
	if v.selector != "" {
		if o.Scope.Selector, err = labels.Parse(v.selector); err != nil {
			return fmt.Errorf("--selector: %w", err)
		}
	}
	switch o.Settings.ImagePullPolicy = corev1.PullPolicy(v.policy); o.Settings.ImagePullPolicy {
	case "", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
	default:
		return fmt.Errorf("--image-pull-policy must be Always, IfNotPresent or Never, not %q", v.policy)
	}
	if o.MaxBody <= 0 || o.CallTimeout <= 0 {
		return errors.New("--max-body and --call-timeout must be more than 0")
	}
	if o.JournalDir != "" && o.JournalBytes < 8<<20 {
		return errors.New("--journal-bytes must be 8388608 or more: a file has half of that")
	}
	if o.CallTimeout > facts.CallsEnd/2 {
		return fmt.Errorf("--call-timeout may be %s at most: members are removed %s after they were added, when no "+
			"call from before can be left", facts.CallsEnd/2, facts.CallsEnd)
	}
	return nil
}

// domainIn is the domain of the Kubernetes cluster in which this is the resolv.conf of a pod, by its search list; empty
// for none.
func domainIn(resolv string) string {
	for line := range strings.Lines(resolv) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "search" {
			continue
		}
		for _, name := range fields[1:] {
			if domain, is := strings.CutPrefix(name, "svc."); is {
				return strings.TrimSuffix(domain, ".")
			}
		}
	}
	return ""
}

// serve answers hooks until ctx ends. Logs go to stderr as JSON.
func serve(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) error {
	var v serving
	flags := v.flags()
	flags.SetOutput(stderr)
	if err := command.ParseWithEnv(flags, args, getenv); err != nil {
		return err
	}
	if err := v.check(); err != nil {
		return err
	}
	tuneMemory(ctx, getenv)
	if v.options.Settings.ClusterDomain == "" {
		if resolv, err := os.ReadFile("/etc/resolv.conf"); err == nil {
			v.options.Settings.ClusterDomain = domainIn(string(resolv))
		}
	}
	o := v.options
	o.Log = slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: v.logLevel}))
	slog.SetDefault(o.Log)
	o.Metrics = metrics.New(build.Version, build.Commit)
	o.Settings.Since = time.Now()
	var err error
	if o.Traces, err = server.NewTraces(ctx, getenv, build.Version, o.Log); err != nil {
		o.Log.Warn("no traces are sent", "error", err)
	}
	o.Etcd = &etcdops.Etcd{Observer: o.Metrics.EtcdCall, Tracer: o.Traces.Tracer(), Disks: &etcdops.Disks{}}
	if o.Callers, err = server.NewCallers(v.callers, o.Log); err != nil {
		return err
	}
	if o.RecordKeys, err = server.NewRecordKeys(v.keys, o.Log); err != nil {
		return err
	}
	o.Log.Info("quorate", "version", build.Version, "commit", build.Commit, "image", o.Settings.Image, "verify",
		o.Verify)
	o.Version = build.String()
	return v.run(ctx, server.New(o), &o)
}

// run serves until ctx ends, and then sees to what is not written and sent yet.
func (v *serving) run(ctx context.Context, s *server.Server, o *server.Options) error {
	if err := keepJournal(ctx, s, v.listen); err != nil {
		o.Log.Warn("no one can ask for the journal", "error", err)
	}
	keeping, end := context.WithCancel(context.WithoutCancel(ctx))
	kept := make(chan struct{})
	go func() { defer close(kept); s.KeepJournal(keeping) }()
	err := listenAndServe(ctx, s, v.listen, v.pages)
	end()
	select {
	case <-kept:
	case <-time.After(journalEnds):
		o.Log.Warn("the end of the journal is not on its volume, which is too slow")
	}
	sending, stop := context.WithTimeout(context.WithoutCancel(ctx), tracesEnd)
	defer stop()
	if err := o.Traces.Close(sending); err != nil {
		o.Log.Warn("the last traces are not sent: the collector is too slow")
	}
	return err
}

// journalEnds is how long the volume has when the server has ended, and tracesEnd the collector of traces after that.
// Kubernetes gives 30 s for all.
const journalEnds, tracesEnd = 5 * time.Second, 5 * time.Second

// keepJournal tells the journal to those who ask in this pod.
func keepJournal(ctx context.Context, s *server.Server, hooksAt string) error {
	at, err := server.JournalSocket(hooksAt)
	if err != nil {
		return err
	}
	socket, err := net.Listen("unix", at)
	if err != nil {
		return err
	}
	go s.ServeJournal(ctx, socket)
	return nil
}

// listenAndServe serves hooks and pages at their addresses.
func listenAndServe(ctx context.Context, s *server.Server, hooksAt, pagesAt string) error {
	hooks, err := net.Listen("tcp", hooksAt)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	pages, err := net.Listen("tcp", pagesAt)
	if err != nil {
		return errors.Join(fmt.Errorf("--metrics-listen: %w", err), hooks.Close())
	}
	return s.Serve(ctx, hooks, pages)
}
