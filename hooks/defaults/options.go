package defaults

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Options are those of the spec as etcd's flags have them: with times in milliseconds.
type Options struct {
	AutoCompaction    v1alpha1.AutoCompaction `json:"autoCompaction,omitzero"`
	HeartbeatInterval int64                   `json:"heartbeatInterval,omitempty"`
	ElectionTimeout   int64                   `json:"electionTimeout,omitempty"`
	MaxRequestBytes   *int64                  `json:"maxRequestBytes,omitempty"`
	MaxTxnOps         *int64                  `json:"maxTxnOps,omitempty"`
	LogLevel          string                  `json:"logLevel,omitempty"`
	ExtraArgs         map[string]string       `json:"extraArgs,omitempty"`
}

// numbers are the options that are a number which etcd has a default for, the same in all releases: their flags, and
// these defaults (in its embed/config.go).
var numbers = []struct {
	flag string
	of   func(*Options) **int64
	own  int64
}{
	{"max-request-bytes", func(o *Options) **int64 { return &o.MaxRequestBytes }, ownRequest},
	{"max-txn-ops", func(o *Options) **int64 { return &o.MaxTxnOps }, 128},
}

// OptionsFor are those of etcd that only a restart changes, for this version, with their defaults said; those of etcd's
// own that are meant anyway are left out.
func OptionsFor(s *v1alpha1.EtcdClusterSpec, version string) Options {
	asked := s.Options
	o := Options{
		AutoCompaction:    autoCompaction(asked.AutoCompaction),
		HeartbeatInterval: Heartbeat(asked).Milliseconds(), ElectionTimeout: Election(asked).Milliseconds(),
		MaxRequestBytes: asked.MaxRequestBytes, MaxTxnOps: asked.MaxTxnOps, LogLevel: cmp.Or(asked.LogLevel, "info"),
		ExtraArgs: ExtraArgsFor(asked, version),
	}
	for _, n := range numbers {
		if value := n.of(&o); *value != nil && **value == n.own {
			*value = nil
		}
	}
	return o
}

// autoCompaction with its retention as it is written by itself: 1h, not 60m. What can't be read is refused by
// validate.
func autoCompaction(c v1alpha1.AutoCompaction) v1alpha1.AutoCompaction {
	switch c.Mode {
	case v1alpha1.CompactOff:
		c.Retention = ""
	case v1alpha1.CompactRevision:
		c.Retention = cmp.Or(c.Retention, "10000")
		if n, err := strconv.ParseInt(c.Retention, 10, 64); err == nil {
			c.Retention = strconv.FormatInt(n, 10)
		}
	default:
		c.Mode = v1alpha1.CompactPeriodic
		c.Retention = cmp.Or(c.Retention, "1h")
		if d, err := time.ParseDuration(c.Retention); err == nil {
			c.Retention = objects.Brief(d)
		}
	}
	return c
}

// flags of these options.
func (o *Options) flags() []string {
	list := []string{
		fmt.Sprintf("--heartbeat-interval=%d", o.HeartbeatInterval),
		fmt.Sprintf("--election-timeout=%d", o.ElectionTimeout),
		"--log-level=" + o.LogLevel,
	}
	if c := o.AutoCompaction; c.Mode != v1alpha1.CompactOff {
		list = append(list, "--auto-compaction-mode="+strings.ToLower(string(c.Mode)), "--auto-compaction-retention="+
			c.Retention)
	}
	for _, n := range numbers {
		if value := *n.of(o); value != nil {
			list = append(list, fmt.Sprintf("--%s=%d", n.flag, *value))
		}
	}
	return list
}
