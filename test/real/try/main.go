// Try is Quorate without Kubernetes, containers or root: the API server, Metacontroller and the kubelet of
// test/simulated/world in memory, the shipped hook server on the wire format of Metacontroller, and a real etcd
// process for each pod. It plays a tour, and then takes commands.
//
// It is one program that runs itself for its parts: as etcd, as the init container prepare, as etcdctl, and as the
// keeper that cleans up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"golang.org/x/term"

	"github.com/quorate-dev/quorate/etcdops/prepare"
	"github.com/quorate-dev/quorate/hooks/objects"
)

func main() {
	switch command := part(os.Args); command {
	case "etcdctl":
		ctlv3.MustStart()
	case "etcd":
		resolveNames()
		etcdmain.Main(os.Args[1:])
	case "prepare":
		os.Exit(runPrepare(os.Args[2:]))
	case "keep":
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		os.Exit(keep(os.Args[2]))
	default:
		os.Exit(run(os.Args[1:]))
	}
}

// part is which one this program is run for; empty for the whole.
func part(args []string) string {
	if filepath.Base(args[0]) == "etcdctl" {
		return "etcdctl"
	}
	if len(args) > 1 {
		switch args[1] {
		case "etcd", "prepare", "keep":
			return args[1]
		}
	}
	return ""
}

func runPrepare(args []string) int {
	var c prepare.Command
	flags := flag.NewFlagSet("prepare", flag.ExitOnError)
	c.Flags(flags)
	_ = flags.Parse(args) // it ends the program
	err := c.Run(context.Background())
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	if errors.Is(err, prepare.ErrDataLost) {
		return objects.ExitDataLost
	}
	return 1
}

// run is the whole program.
func run(args []string) int {
	flags := flag.NewFlagSet("make try", flag.ExitOnError)
	once := flags.Bool("once", false, "end after the tour, also on a terminal")
	bare := flags.Bool("no-tour", false, "begin with the prompt, and without a cluster")
	page := flags.Bool("ui", false, "show it on a page, too, as kubectl quorate ui does")
	_ = flags.Parse(args)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	terminal := term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
	c := &console{out: os.Stdout, began: time.Now(), live: terminal}
	t, err := newTry(c.rule)
	if err != nil {
		fmt.Fprintf(os.Stderr, "make try: %v\n", err)
		return 1
	}
	defer t.close()
	turning, end := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() { t.loop(turning); close(stopped) }()
	defer func() { end(); <-stopped }()
	if *page {
		go func() { _ = t.plugin("ui")(turning, c, nil) }()
	}
	return t.show(ctx, c, !*bare, terminal && !*once)
}

// show plays the tour, and then takes commands.
func (t *try) show(ctx context.Context, c *console, plays, asks bool) int {
	if plays {
		err := (&tour{try: t, c: c, ctx: ctx}).play()
		switch {
		case ctx.Err() != nil:
			return 130
		case err != nil:
			c.say("The tour ends here: %v. The logs are in %s", err, t.kubelet.logs())
			if !asks {
				t.tails(c)
				return 1
			}
		}
	}
	if !asks {
		return 0
	}
	if err := t.prompt(ctx, c); err != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintf(os.Stderr, "make try: %v\n", err)
		return 1
	}
	return 0
}
