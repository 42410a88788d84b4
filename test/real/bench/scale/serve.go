//go:build linux

package main

import (
	"context"
	"flag"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server"
	"github.com/quorate-dev/quorate/server/metrics"
)

// serve is `quorate serve` with a profile of its processor time in $SCALE_PROFILE, which the product has no door for.
// It takes the flags that startQuorate passes.
func serve(ctx context.Context, args []string) error {
	var callers server.CallerFiles
	var listen, pages, image, namespace, domain string
	var drain time.Duration
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.StringVar(&listen, "listen", "", "")
	flags.StringVar(&pages, "metrics-listen", "", "")
	flags.StringVar(&image, "image", "", "")
	flags.StringVar(&namespace, "namespace", "", "")
	flags.StringVar(&domain, "cluster-domain", "", "")
	flags.StringVar(&callers.Cert, "tls-cert", "", "")
	flags.StringVar(&callers.Key, "tls-key", "", "")
	flags.StringVar(&callers.Token, "token-file", "", "")
	flags.DurationVar(&drain, "drain-delay", 0, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	file, err := os.Create(os.Getenv("SCALE_PROFILE"))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	debug.SetGCPercent(400) // as memory.go does under load
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	who, err := server.NewCallers(callers, log)
	if err != nil {
		return err
	}
	told := metrics.New("profiled", "")
	s := server.New(server.Options{
		Etcd: &etcdops.Etcd{Observer: told.EtcdCall}, Callers: who, Metrics: told, Log: log, DrainDelay: drain,
		Settings: observation.Settings{Images: objects.Images{Image: image}, Namespace: namespace,
			ClusterDomain: domain},
	})
	hooksAt, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	pagesAt, err := net.Listen("tcp", pages)
	if err != nil {
		return err
	}
	return s.Serve(ctx, hooksAt, pagesAt)
}
