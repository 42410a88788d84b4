//go:build linux

// Command scale measures how many clusters one `quorate serve` looks after on one core. The server is the real one,
// with HTTPS hooks and a token as `quorate install` sets them up. Stubbed are its two neighbours:
//
//   - Metacontroller's calls, in the way of 1.5.20: every resync period all parents enter the queue at once, a fixed number of workers
//     empties it, each call is a new http.Client over the default transport, and a refused call is repeated with backoff.
//   - etcd's members: one server on the loopback interface that answers Status and MemberList of every member at an address of its
//     own, by TLS with the certificates of that cluster, and a little later than it could.
//
// What a call holds was recorded from a real cluster (scale record); each cluster gets its own identity, addresses
// and certificates.
//
//	make bench-scale
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options of one run.
type options struct {
	quorate   string
	recording string
	memory    string
	core      string
	clusters  int
	workers   int
	resync    time.Duration
	measure   time.Duration
	latency   time.Duration
	snapshots int
	silent    int
	writes    time.Duration
	header    bool
	plain     bool
	patient   bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "record":
			return record(ctx, args[1:])
		case "serve":
			return serve(ctx, args[1:])
		}
	}
	var o options
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.StringVar(&o.quorate, "quorate", "bin/quorate", "the `binary` to measure; with \"serve\" as its first "+
		"argument it must serve")
	flags.StringVar(&o.recording, "recording", recordingFile, "`file` with the call to repeat")
	flags.StringVar(&o.memory, "memory", "128000000", "GOMEMLIMIT of the server, as the Deployment sets it")
	flags.StringVar(&o.core, "core", "0", "the `core` that the server has for itself; run this program on another one")
	flags.IntVar(&o.clusters, "clusters", 10000, "how many clusters")
	flags.IntVar(&o.workers, "workers", 20, "workers of Metacontroller")
	flags.DurationVar(&o.resync, "resync", 30*time.Second, "resync period")
	flags.DurationVar(&o.measure, "for", 90*time.Second, "how long to measure, after every cluster was asked about "+
		"once")
	flags.DurationVar(&o.latency, "latency", time.Millisecond,
		"by how much each answer and each handshake of etcd is late")
	flags.IntVar(&o.snapshots, "snapshots", 0, "how many EtcdSnapshots there are besides")
	flags.IntVar(&o.silent, "silent", 0, "how many clusters there are besides, all of one other namespace, whose "+
		"members take connections and say nothing")
	flags.DurationVar(&o.writes, "write-every", 10*time.Second,
		"with snapshots: how often the status of one cluster changes, which asks about all of them")
	flags.BoolVar(&o.header, "header", false, "print the head of the table too")
	flags.BoolVar(&o.plain, "reuse", false, "let the caller keep its connections, which Metacontroller does for two "+
		"of them only")
	flags.BoolVar(&o.patient, "patient", false, "ask again when a 429 says, as Metacontroller 4.17.2 does, and not "+
		"by backoff, as 1.5.20 does")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, err := o.run(ctx)
	if err != nil {
		return err
	}
	if o.header {
		fmt.Print(tableHead)
	}
	fmt.Print(r.row(o))
	return nil
}

// run is one measurement, from nothing to nothing.
func (o options) run(ctx context.Context) (*result, error) {
	f, err := newFleet(o.recording, o.clusters+o.silent)
	if err != nil {
		return nil, err
	}
	f.hush(o.clusters)
	etcd := &members{fleet: f, latency: o.latency}
	stop, err := etcd.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	q, err := startQuorate(ctx, o, f)
	if err != nil {
		return nil, err
	}
	defer q.stop()
	return measure(ctx, o, f, q)
}
