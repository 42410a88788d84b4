package kubectl

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// The command size: a manifest for a load, by the account in hooks/defaults/load.go.

// mostKeys, mostWrites and mostHistory are far beyond what etcd is for.
const (
	mostKeys    = 1_000_000_000
	mostWrites  = 100_000
	mostHistory = 7 * 24 * time.Hour
)

// loadFlags are the flags of the command size.
func loadFlags(flags *flag.FlagSet, l *defaults.Load) {
	l.Value = 1 << 10
	number(flags, "keys", &l.Keys, mostKeys, "how `many` keys there are, such as 100k")
	number(flags, "value", &l.Value, defaults.LargestValue, "how many `bytes` a key has with its value; by default 1Ki")
	number(flags, "writes", &l.Writes, mostWrites, "how `many` keys are written in a second")
	flags.DurationVar(&l.History, "history", defaults.Retention, "how `long` clients can read and watch back: "+
		"autoCompaction.retention")
}

// number is a flag that takes 1 up to most, in words such as 100k or 2Mi.
func number(flags *flag.FlagSet, name string, to *int64, most int64, what string) {
	flags.Func(name, what, func(value string) error {
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return errors.New("it must be a number such as 200, 100k or 2Mi")
		}
		if q.CmpInt64(1) < 0 || q.CmpInt64(most) > 0 {
			return fmt.Errorf("it must be from 1 to %d", most)
		}
		*to = q.Value()
		return nil
	})
}

// validLoad says what is missing or wrong on the line.
func validLoad(l defaults.Load) error {
	switch {
	case l.Keys == 0:
		return misused("size needs --keys, how many keys there are, such as --keys=100k")
	case l.Writes == 0:
		return misused("size needs --writes, how many keys are written in a second, such as --writes=200")
	case l.History < time.Second || l.History > mostHistory || l.History%time.Second != 0:
		return misused("--history must be from 1s to %s, in whole seconds, not %s", objects.Brief(mostHistory), l.History)
	}
	return nil
}

// size prints the EtcdCluster that is large enough for a load, and what that comes from.
func (a *invocation) size() error {
	l := a.load
	n := l.Need()
	options := fmt.Sprintf("autoCompaction: {retention: %s}", objects.Brief(l.History))
	if n.Quota > defaults.MostQuota {
		options = fmt.Sprintf("quotaBackendBytes: %d, %s", n.Quota, options)
		fmt.Fprintf(a.Err, "warning: a quota of %s is more than the %s that etcd suggests at most "+
			"(https://etcd.io/docs/v3.6/dev-guide/limit/): shorten --history, write less, or use several clusters\n",
			size(n.Quota), size(defaults.MostQuota))
	}
	memory := resource.NewQuantity(n.Memory, resource.BinarySI)
	fmt.Fprintf(a.Out, `# %d keys of %d bytes, %d writes a second; etcd keeps up to %s of history
# database: %s for the keys, %s for history
# quota:    %s, which storage.size has room for, beside the log and the copy of a defragmentation
# memory:   the quota, %s for etcd's index, %s for the program and the end of the log
# %s
apiVersion: %s
kind: %s
metadata: {name: demo}
spec:
  replicas: 3
  version: %s
  storage: {size: %s}
  resources: {requests: {memory: %s}, limits: {memory: %s}}
  options: {%s}
`, l.Keys, l.Value, l.Writes, objects.Brief(defaults.Kept(l.History)),
		size(n.Live), size(n.Past), size(n.Quota), size(n.Index), size(n.Fixed), binds(&n),
		v1beta1.GroupVersion, v1beta1.Kind, defaults.Newest[len(defaults.Newest)-1],
		resource.NewQuantity(n.Volume, resource.BinarySI), memory, memory, options)
	return nil
}

// binds says what is too small first when there are more keys and writes.
func binds(n *defaults.Need) string {
	disk, memory, quota := n.Growth()
	first := "disk"
	if memory < disk {
		first = "memory"
	}
	if quota < min(disk, memory) {
		first = "quota"
	}
	return fmt.Sprintf("binds:    the %s; the disk takes %.1f times this load, the memory %.1f, etcd's largest quota %.1f",
		first, disk, memory, quota)
}
