package defaults

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// ExtraArg is a flag of etcd's that a spec may say in options.extraArgs.
type ExtraArg struct {
	// Form of its value, in words, and one of these values.
	Form, Example string
	fits          func(value string) bool
	// in35 is its name in etcd 3.5, which has experimental flags; empty for one that came with 3.6.
	in35 string
}

// ExtraArgs are all of them, by their names in etcd 3.6 and 3.7, which have the same: a member goes between these with
// its flags (SameFlags). All others are refused. A flag belongs in here when no value of it can lose data or a quorum,
// move a member, let anyone in, fill a volume, or make etcd refuse to start; and when nothing that Quorate does depends
// on it. Every release of a minor version has it, from the first one that Quorate runs.
var ExtraArgs = map[string]ExtraArg{
	"backend-batch-interval":      duration("100ms").known(),
	"backend-batch-limit":         count("10000", 1, 1e9).known(),
	"backend-bbolt-freelist-type": either("array", "map").known(),
	"bcrypt-cost":                 count("10", 4, 14).known(),
	"compact-hash-check-time":     duration("1m").experimental(),
	"compaction-batch-limit":      count("1000", 1, 1e9).experimental(),
	"compaction-sleep-interval":   duration("10ms").experimental(),
	"corrupt-check-time":          duration("4h").experimental(),
	"cors": text("a list of origins with ports",
		`^(\*|https?://[-.0-9A-Za-z]+:[0-9]{1,5}(,https?://[-.0-9A-Za-z]+:[0-9]{1,5})*)$`, "https://a.example:443").known(),
	"distributed-tracing-address": text("a host and a port", `^[-.\[\]:0-9A-Za-z]+:[0-9]{1,5}$`,
		"otel:4317").experimental(),
	"distributed-tracing-sampling-rate": count("1000", 0, 1e6).experimental(),
	"distributed-tracing-service-name":  text("a name", `^[-._0-9A-Za-z]+$`, "etcd").experimental(),
	"enable-distributed-tracing":        either("true", "false").experimental(),
	"enable-grpc-gateway":               either("true", "false").known(),
	"grpc-keepalive-interval":           duration("2h").known(),
	"grpc-keepalive-min-time":           duration("5s").known(),
	"grpc-keepalive-timeout":            duration("20s").known(),
	"initial-election-tick-advance":     either("true", "false").known(),
	"log-format":                        either("json", "console"),
	"max-concurrent-streams":            count("1000", 100, 1<<32-1).known(),
	"max-txn-ops":                       count("128", 1, 100_000).known(),
	"metrics":                           either("basic", "extensive").known(),
	"warning-apply-duration":            duration("100ms").experimental(),
	"warning-unary-request-duration":    duration("300ms"),
	"watch-progress-notify-interval":    duration("10m").experimental(),
}

// sameName has etcd 3.5 know the flag by its name.
const sameName, experimentalName = "--", "--experimental-"

func (a ExtraArg) known() ExtraArg {
	a.in35 = sameName
	return a
}

// experimental has etcd 3.5 know the flag as an experimental one.
func (a ExtraArg) experimental() ExtraArg {
	a.in35 = experimentalName
	return a
}

func duration(example string) ExtraArg {
	return ExtraArg{Form: "a duration such as " + example + ", from 1ms to 24h", Example: example,
		fits: func(value string) bool {
			d, err := time.ParseDuration(value)
			return err == nil && d >= time.Millisecond && d <= 24*time.Hour
		}}
}

func count(example string, low, high int64) ExtraArg {
	return ExtraArg{Form: fmt.Sprintf("a number from %d to %d", low, high), Example: example,
		fits: func(value string) bool {
			n, err := strconv.ParseInt(value, 10, 64)
			return err == nil && n >= low && n <= high
		}}
}

func either(values ...string) ExtraArg {
	return ExtraArg{Form: strings.Join(values, " or "), Example: values[0],
		fits: func(value string) bool { return slices.Contains(values, value) }}
}

func text(form, pattern, example string) ExtraArg {
	return ExtraArg{Form: form + " such as " + example, Example: example,
		fits: regexp.MustCompile(pattern).MatchString}
}

// KnownTo reports whether this version of etcd has the flag.
func (a ExtraArg) KnownTo(version string) bool { return a.in35 != "" || !Experimental(version) }

// extraFlag is the flag as this version reads it.
func extraFlag(name, value, version string) string {
	before := sameName
	if Experimental(version) {
		before = ExtraArgs[name].in35
	}
	return before + name + "=" + value
}

// ExtraArgsFor are those of the spec that this version of etcd has. All are known to the version that the spec asks
// for; it may not be to one on the way there.
func ExtraArgsFor(o v1beta1.Options, version string) map[string]string {
	var all map[string]string
	for name, value := range o.ExtraArgs {
		if ExtraArgs[name].KnownTo(version) {
			if all == nil {
				all = map[string]string{}
			}
			all[name] = string(value)
		}
	}
	return all
}

// extraFlags are these in the order of their names.
func extraFlags(args map[string]string, version string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(args)) {
		list = append(list, extraFlag(name, args[name], version))
	}
	return list
}

// validateExtraArgs refuses what is not for a spec to say, what the version does not know, and values with which etcd
// would not start.
func validateExtraArgs(o v1beta1.Options, version string) error {
	for _, name := range slices.Sorted(maps.Keys(o.ExtraArgs)) {
		arg, allowed := ExtraArgs[name]
		bare := strings.TrimPrefix(strings.TrimLeft(name, "-"), "experimental-")
		_, meant := ExtraArgs[bare]
		switch {
		case !allowed && meant:
			return fmt.Errorf("spec.options.extraArgs has %s: write %s, without -- and without experimental-; for etcd "+
				"3.5 Quorate writes the flag as that has it", name, bare)
		case !allowed:
			return fmt.Errorf("spec.options.extraArgs has %.100q, which belongs to Quorate, has a field of its own, or "+
				"may harm the cluster: remove it; those that can be set are %s", name,
				strings.Join(slices.Sorted(maps.Keys(ExtraArgs)), ", "))
		case !arg.KnownTo(version):
			return fmt.Errorf("spec.options.extraArgs has %s, which etcd %s does not know: remove it", name, version)
		case !arg.fits(string(o.ExtraArgs[name])):
			return fmt.Errorf("spec.options.extraArgs has the value %.100q for %s: use %s", o.ExtraArgs[name], name,
				arg.Form)
		}
	}
	return nil
}
