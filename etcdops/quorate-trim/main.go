// quorate-trim keeps a member's write-ahead log short, beside etcd. It is a program of its own because it runs in every
// pod of a member: with Go's own library alone, it takes a few megabytes of memory.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/quorate-dev/quorate/etcdops/trim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	os.Exit(trim.Run(ctx, os.Args[1:], os.Stderr))
}
