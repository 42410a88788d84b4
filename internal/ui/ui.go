// Package ui is the page of `kubectl quorate ui`: clusters as they are, what happened to them and why, what fills them,
// and what of them is stored. It is served to one person on this machine, and only looks: a change is a command that it
// shows.
package ui

import (
	"context"
	"slices"
	"time"
)

// Source is what the page shows. Each of its calls may take kubectl some seconds.
type Source interface {
	// Clusters are all that there are.
	Clusters(ctx context.Context) ([]Cluster, error)
	// History is what happened to one, oldest first.
	History(ctx context.Context, of Name) (*History, error)
	// Explain is what `kubectl quorate explain` says now, or `kubectl quorate history --at` of a moment.
	Explain(ctx context.Context, of Name, at time.Time) (string, error)
	// Stored is what it can be restored from.
	Stored(ctx context.Context, of Name) (*Stored, error)
	// Contents are what fills it, and who writes it, as far as that is told.
	Contents(ctx context.Context, of Name) (*Contents, error)
}

// Name of an EtcdCluster.
type Name struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// The moods of a cluster.
const (
	Calm    = "calm"    // nothing is left to do
	Busy    = "busy"    // something is under way
	Trouble = "trouble" // etcd does not serve, or a person has to do something
)

// Cluster is one at a moment.
type Cluster struct {
	Name
	Status  string `json:"status"`
	Message string `json:"message"`
	Mood    string `json:"mood"`
	Version string `json:"version"`
	Voters  int32  `json:"voters"`
	Ready   int    `json:"ready"`
	Epoch   int64  `json:"epoch"`
	// Attention is what a person should see to.
	Attention []string `json:"attention"`
	// Flags are what commands about it take besides its name.
	Flags string `json:"flags"`
	// Changed is another one whenever History may have something new.
	Changed string `json:"changed"`
	// Members are those of etcd, and pods that are none yet; nil where that is not known.
	Members []Member `json:"members"`
}

// Member is one of etcd's, with its pod and volume.
type Member struct {
	Name string `json:"name"`
	// Role is Voter or Learner; empty for a pod that is no member yet, or no more.
	Role  string `json:"role"`
	Leads bool   `json:"leads"`
	Ready bool   `json:"ready"`
	// State is that of its pod, in a word or two.
	State    string    `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	Restarts int32     `json:"restarts"`
	Version  string    `json:"version"`
	Size     int64     `json:"size"`  // of the database
	Used     int64     `json:"used"`  // of that
	Quota    int64     `json:"quota"` // of the database; 0 where it is not known
	// Volume is the state of its claim; empty for none.
	Volume   string   `json:"volume"`
	Capacity int64    `json:"capacity"`
	Alarms   []string `json:"alarms"`
	Message  string   `json:"message"`
}

// History of a cluster.
type History struct {
	Moments []Moment `json:"moments"`
	// Note is what stands in the way of more.
	Note string `json:"note"`
}

// MostMoments that a history has: the newest.
const MostMoments = 500

// Moment is a decision, and the cluster that it was about.
type Moment struct {
	Time    time.Time `json:"time"`
	Changes []string  `json:"changes"`
	Cluster Cluster   `json:"cluster"`
}

// Stored is what a cluster can be restored from.
type Stored struct {
	Snapshots []Snapshot `json:"snapshots"`
	Streams   []Stream   `json:"streams"`
}

// Snapshot is an EtcdSnapshot.
type Snapshot struct {
	Name       string    `json:"name"`
	Time       time.Time `json:"time"`
	Phase      string    `json:"phase"`
	Verified   bool      `json:"verified"`
	Restorable bool      `json:"restorable"`
	Revision   int64     `json:"revision"`
	Size       int64     `json:"size"`
	Message    string    `json:"message"`
}

// Stream is what an EtcdSnapshotSchedule stores between snapshots.
type Stream struct {
	Name    string    `json:"name"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"` // as far as it is known
	Runs    bool      `json:"runs"`
	Message string    `json:"message"`
}

// Contents are what fills a database and who writes it, by the beginning of its keys.
type Contents struct {
	// Time of the account that tells keys and bytes; zero for none.
	Time time.Time `json:"time,omitzero"`
	// From and To are when the writes were counted; zero where they are not.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Notes are what could not be read.
	Notes    []string `json:"notes"`
	Prefixes []Prefix `json:"prefixes"`
}

// Wrote adds how often keys with a prefix were written.
func (c *Contents) Wrote(prefix string, writes int64) {
	i := slices.IndexFunc(c.Prefixes, func(p Prefix) bool { return p.Prefix == prefix })
	if i < 0 {
		i = len(c.Prefixes)
		c.Prefixes = append(c.Prefixes, Prefix{Prefix: prefix})
	}
	c.Prefixes[i].Writes += writes
}

// Prefix is how keys begin, and what they take.
type Prefix struct {
	Prefix string `json:"prefix"`
	Keys   int64  `json:"keys"`
	Bytes  int64  `json:"bytes"`
	Writes int64  `json:"writes"`
}
