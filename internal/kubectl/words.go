package kubectl

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// words are what may stand in one place of the line: after the command, or after a flag. Whatever else stands there is
// refused before Kubernetes is asked anything.
type words struct {
	// what they are, for people.
	what string
	// optional words may be left out where others follow, and of many there may be any number, or none.
	optional, many bool
	are            func(word string) bool
	// put hands one over; nil for those of flags.
	put func(a *invocation, word string)
	// known are those that there are, for who completes a line; nil where nothing tells.
	known func(ctx context.Context, a *invocation) []string
}

// How names look in the API: those of EtcdClusters and members, and all others.
var (
	likeClusters = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`).MatchString
	likeObjects  = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`).MatchString
)

// The words that commands and flags take.
var (
	clusterName = words{
		what: "NAME, that of an EtcdCluster, such as demo", optional: true, are: likeClusters, known: names(clusters),
		put: func(a *invocation, word string) { a.cluster = word },
	}
	newName = words{
		what: "NAME, that of the EtcdCluster to be, such as demo", are: likeClusters,
		put: func(a *invocation, word string) { a.cluster = word },
	}
	memberName = words{
		what: "a MEMBER, such as demo-1; `kubectl quorate status` lists them", are: likeClusters, known: members,
		put: func(a *invocation, word string) { a.word = word },
	}
	claimNames = words{
		what: "the name of a claim, such as data-demo-0", many: true, are: likeObjects, known: names("pvc"),
		put: func(a *invocation, word string) { a.adopting.claims = append(a.adopting.claims, word) },
	}
	policy = oneOf("a POLICY", v1beta1.RecoverFromSurvivor, v1beta1.RecoverFromSnapshot, v1beta1.RecoverRecreate)
	shell  = oneOf("a SHELL", "bash", "zsh", "fish")

	snapshotName = words{what: "the name of an EtcdSnapshot", are: likeObjects, known: names(snapshots)}
	scheduleName = words{what: "the name of an EtcdSnapshotSchedule", are: likeObjects, known: names(schedules)}
	inNamespace  = words{what: "the name of a namespace", are: likeObjects, known: names("namespaces")}
	userName     = words{what: "the name of a user in etcd", are: likeObjects, known: usersOf}
	etcdVersion  = words{what: "a version of etcd, such as 3.6.16", are: regexp.MustCompile(
		`^3[.][567][.][0-9]{1,4}$`).MatchString}
)

// oneOf are words of which all are known.
func oneOf[T ~string](what string, all ...T) words {
	list := make([]string, len(all))
	for i := range all {
		list[i] = string(all[i])
	}
	return words{
		what:  fmt.Sprintf("%s: %s or %s", what, strings.Join(list[:len(list)-1], ", "), list[len(list)-1]),
		are:   func(word string) bool { return slices.Contains(list, word) },
		known: func(context.Context, *invocation) []string { return list },
		put:   func(a *invocation, word string) { a.word = word },
	}
}

// names are those of the objects of a kind in the namespace of the command.
func names(resource string) func(context.Context, *invocation) []string {
	return func(ctx context.Context, a *invocation) (list []string) {
		out, err := a.kube.run(ctx, a.in("get", resource, "-o", "json")...)
		if err != nil {
			return nil
		}
		for _, m := range metadataIn(out) {
			list = append(list, m.Name)
		}
		return list
	}
}

// members of the EtcdCluster that the line names, or of all in the namespace.
func members(ctx context.Context, a *invocation) (list []string) {
	for _, c := range a.named(ctx) {
		for _, m := range c.Status.Members {
			list = append(list, m.Name)
		}
	}
	return list
}

// usersOf are those of etcd that the EtcdCluster declares, and root.
func usersOf(ctx context.Context, a *invocation) []string {
	list := []string{root}
	for _, c := range a.named(ctx) {
		if c.Spec.Auth == nil {
			continue
		}
		for _, user := range c.Spec.Auth.Users {
			list = append(list, user.Name)
		}
	}
	return list
}

// named are the EtcdCluster that the line names, or all in the namespace; none where they can't be read.
func (a *invocation) named(ctx context.Context) []*found {
	all, _ := a.list(ctx)
	return objects.Filter(all, func(c *found) bool { return a.cluster == "" || c.Name == a.cluster })
}

// word is the value of a flag.
type word struct {
	words
	to *string
}

// String implements [flag.Value].
func (w word) String() string {
	if w.to == nil {
		return ""
	}
	return *w.to
}

// Set implements [flag.Value].
func (w word) Set(value string) error {
	if !w.are(value) {
		return fmt.Errorf("it must be %s", w.what)
	}
	*w.to = value
	return nil
}

// flag makes a flag of these words; what it has already is the default.
func (w words) flag(flags *flag.FlagSet, to *string, name, usage string) {
	flags.Var(word{w, to}, name, usage)
}

// atLeast is a flag that takes a time span of at least this.
func atLeast(least time.Duration, flags *flag.FlagSet, to *time.Duration, name, usage string) {
	flags.Func(name, usage, func(value string) error {
		d, err := time.ParseDuration(value)
		switch {
		case err != nil:
			return errors.New("it must be a time span such as 90s, 5m or 1h30m")
		case d < least:
			return fmt.Errorf("it must be at least %s", objects.Brief(least))
		}
		*to = d
		return nil
	})
}
