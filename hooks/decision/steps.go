package decision

import (
	"cmp"
	"fmt"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/users"
)

// Authorize makes etcd's users and roles what is wanted, by what [users.Plan] says. It may be carried out twice, or
// twice at the same time.
type Authorize struct{ Want users.Want }

func (Authorize) String() string { return "apply users and roles" }

// Verb implements Step.
func (Authorize) Verb() string { return "authorize" }

func (Authorize) step() {}

// A Step is the one change to etcd that a decision may ask for. The set is closed: AddLearner, Promote, Remove,
// UpdatePeerURL, MoveLeader, Authorize, EnableDowngrade, CancelDowngrade, Compact, Defragment, Disarm. Each is
// idempotent: done twice, the second is refused by etcd or changes nothing.
type Step interface {
	fmt.Stringer
	// Verb names the kind of step for metrics: add-learner, promote, remove, update-peer-url, move-leader, authorize,
	// enable-downgrade, cancel-downgrade, compact, defragment, disarm.
	Verb() string
	step()
}

type (
	// AddLearner adds a member that does not vote yet, under a name and peer URL that were never used.
	AddLearner struct{ Name, PeerURL string }
	// Promote makes a learner a voter.
	Promote struct {
		ID   uint64
		Name string
	}
	// Remove takes a member out of the cluster for good.
	Remove struct {
		ID   uint64
		Name string
	}
	// UpdatePeerURL lists a voter with another URL of itself: that by which its peers reach it by TLS.
	UpdatePeerURL struct {
		ID            uint64
		Name, PeerURL string
	}
	// MoveLeader hands the leadership to a voter.
	MoveLeader struct {
		To   uint64
		Name string
	}
	// EnableDowngrade lets members of the next lower minor version join: etcd lowers the version of the cluster and
	// the format of every member's data to Version, such as 3.6.0.
	EnableDowngrade struct{ Version string }
	// CancelDowngrade takes that back.
	CancelDowngrade struct{}
	// Compact drops all revisions of keys before this one.
	Compact struct{ Revision int64 }
	// Defragment gives the free space of a member's database back to its file system. The member answers nothing
	// meanwhile. It goes on in etcd when the call has to end before. DBSize is that of the member before, for the
	// account of what was reclaimed.
	Defragment struct {
		ID     uint64
		Name   string
		DBSize int64
	}
	// Disarm ends an alarm. Name is empty for a member that is no longer listed. ID 0 is etcd's word for no member in
	// particular.
	Disarm struct {
		ID         uint64
		Name, Kind string
	}
)

func (s AddLearner) String() string { return "add learner " + s.Name }

func (s Promote) String() string { return "promote " + s.Name }

func (s Remove) String() string { return "remove " + s.Name }

func (s UpdatePeerURL) String() string { return "update the peer URL of " + s.Name }

func (s MoveLeader) String() string { return "move leader to " + s.Name }

func (s EnableDowngrade) String() string { return "enable the downgrade to " + s.Version }

func (s CancelDowngrade) String() string { return "cancel the downgrade" }

func (s Compact) String() string { return fmt.Sprintf("compact to revision %d", s.Revision) }

func (s Defragment) String() string { return "defragment " + s.Name }

func (s Disarm) String() string {
	return "disarm " + s.Kind + " of " + cmp.Or(s.Name, objects.Hex(s.ID))
}

// Verb implements Step.
func (AddLearner) Verb() string { return "add-learner" }

// Verb implements Step.
func (Promote) Verb() string { return "promote" }

// Verb implements Step.
func (Remove) Verb() string { return "remove" }

// Verb implements Step.
func (UpdatePeerURL) Verb() string { return "update-peer-url" }

// Verb implements Step.
func (MoveLeader) Verb() string { return "move-leader" }

// Verb implements Step.
func (EnableDowngrade) Verb() string { return "enable-downgrade" }

// Verb implements Step.
func (CancelDowngrade) Verb() string { return "cancel-downgrade" }

// Verb implements Step.
func (Compact) Verb() string { return "compact" }

// Verb implements Step.
func (Defragment) Verb() string { return "defragment" }

// Verb implements Step.
func (Disarm) Verb() string { return "disarm" }

func (AddLearner) step() {}

func (Promote) step() {}

func (Remove) step() {}

func (UpdatePeerURL) step() {}

func (MoveLeader) step() {}

func (EnableDowngrade) step() {}

func (CancelDowngrade) step() {}

func (Compact) step() {}

func (Defragment) step() {}

func (Disarm) step() {}

// LearnerCutOff begins [Outcome.Err] where a learner is not promoted because it does not get what the leader writes now.
const LearnerCutOff = "the learner is not connected to the leader"

// Outcome is what became of a step.
type Outcome struct {
	Step Step
	// Rule is the name of the rule that asked for it.
	Rule string
	// Err is empty when etcd carried the step out, else why it did not.
	Err string
	// Passwords are the versions of those that users were given by an Authorize that did not come to its end, by user.
	Passwords map[string]string
}
