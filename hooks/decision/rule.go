package decision

import (
	"time"
)

// Reason is the rule that fired and its words, as they reach the log, the condition and the metric.
type Reason struct {
	// Rule is the rule's name, such as Grow.
	Rule string
	// Message is a sentence for people.
	Message string
}

// Rule is one line of a decision: of a view V it makes an answer A. The zero answer has the next rule asked.
type Rule[V any, A comparable] struct {
	// Name reaches the log, the condition's reason and the metric.
	Name string
	// Why is the sentence that documents the rule.
	Why string
	// Outlooks are those that it may have. Of several the first holds where the answer names none.
	Outlooks []Outlook
	// Holds: it changes nothing until something else has happened.
	Holds bool
	// IsQuiet: there is nothing to tell.
	IsQuiet bool
	applies func(V) A
}

// NewRule is the rule of that name, which answers by this function, with the outlooks that it may have: without any,
// Works.
func NewRule[V any, A comparable](name, why string, applies func(V) A, outlooks ...Outlook) Rule[V, A] {
	if len(outlooks) == 0 {
		outlooks = []Outlook{Works}
	}
	return Rule[V, A]{Name: name, Why: why, Outlooks: outlooks, applies: applies}
}

// Holding is the rule as one that changes nothing until something else has happened.
func (r Rule[V, A]) Holding() Rule[V, A] {
	r.Holds = true
	return r
}

// Quiet is the rule as one of which there is nothing to tell.
func (r Rule[V, A]) Quiet() Rule[V, A] {
	r.IsQuiet = true
	return r
}

// Ask is what the rule answers; zero when it does not apply.
func (r *Rule[V, A]) Ask(v V) A { return r.applies(v) }

// Rules is rules in their order. The last one always applies.
type Rules[V any, A comparable] []Rule[V, A]

// First is the answer of the first rule that applies, and its place in the list.
func (l Rules[V, A]) First(v V) (at int, answer A) {
	var next A
	for i := range l {
		if got := l[i].applies(v); got != next {
			return i, got
		}
	}
	panic("the last rule always applies")
}

// Pause is how soon to ask again when nothing that Kubernetes tells us would wake us. A cluster's pause grows while
// nothing changes: see answer/resync.go.
type Pause time.Duration

// The two pauses that there are.
const (
	ResyncSoon  = Pause(500 * time.Millisecond) // while etcd or a kubelet ends it within a second or so
	ResyncLater = Pause(2 * time.Second)        // while something else must happen that we can't see
)
