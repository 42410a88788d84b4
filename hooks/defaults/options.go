package defaults

import (
	"cmp"
	"fmt"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Options are those of the spec as etcd's flags have them: with times in milliseconds.
type Options struct {
	// Retention or Revisions that are kept; neither where all are.
	Retention         string            `json:"retention,omitempty"`
	Revisions         int64             `json:"revisions,omitempty"`
	HeartbeatInterval int64             `json:"heartbeatInterval,omitempty"`
	ElectionTimeout   int64             `json:"electionTimeout,omitempty"`
	MaxRequestBytes   *int64            `json:"maxRequestBytes,omitempty"`
	LogLevel          string            `json:"logLevel,omitempty"`
	ExtraArgs         map[string]string `json:"extraArgs,omitempty"`
}

// Retention of periodic compaction where the spec does not say one: that of Kubernetes' own API server. With it 200
// writes of 1 KiB a second fit in a volume of the default size (load.go): etcd keeps up to three times as much history.
const Retention = 5 * time.Minute

// OptionsFor are those of etcd that only a restart changes, for this version, with their defaults said; those of etcd's
// own that are meant anyway are left out.
func OptionsFor(s *v1beta1.EtcdClusterSpec, version string) Options {
	asked := s.Options
	o := Options{
		HeartbeatInterval: Heartbeat(asked).Milliseconds(), ElectionTimeout: Election(asked).Milliseconds(),
		MaxRequestBytes: asked.MaxRequestBytes, LogLevel: cmp.Or(asked.LogLevel, "info"),
		ExtraArgs: ExtraArgsFor(asked, version),
	}
	switch c := asked.AutoCompaction; {
	case c.Revisions != nil:
		o.Revisions = *c.Revisions
	case !KeepsHistory(asked):
		o.Retention = objects.Brief(retention(asked))
	}
	if n := o.MaxRequestBytes; n != nil && *n == ownRequest {
		o.MaxRequestBytes = nil
	}
	return o
}

// retention is how long old revisions are kept, where it is not their number that counts.
func retention(o v1beta1.Options) time.Duration {
	if d := o.AutoCompaction.Retention; d != nil {
		return d.Duration
	}
	return Retention
}

// KeepsHistory reports whether old revisions are not ours to drop.
func KeepsHistory(o v1beta1.Options) bool {
	return o.AutoCompaction.Revisions == nil && retention(o) == 0
}

// flags of these options.
func (o *Options) flags() []string {
	list := []string{
		fmt.Sprintf("--heartbeat-interval=%d", o.HeartbeatInterval),
		fmt.Sprintf("--election-timeout=%d", o.ElectionTimeout),
		"--log-level=" + o.LogLevel,
	}
	switch {
	case o.Revisions > 0:
		list = append(list, "--auto-compaction-mode=revision", fmt.Sprintf("--auto-compaction-retention=%d", o.Revisions))
	case o.Retention != "":
		list = append(list, "--auto-compaction-mode=periodic", "--auto-compaction-retention="+o.Retention)
	}
	if n := o.MaxRequestBytes; n != nil {
		list = append(list, fmt.Sprintf("--max-request-bytes=%d", *n))
	}
	return list
}
