package chaos

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Verb is what a client did with a key.
type Verb int

// Verbs of a client. Every value that is written is written once in all of a history.
const (
	// Get reads.
	Get Verb = iota
	// Put writes.
	Put
	// Swap writes if the key has the value that the client expects; it reads the value if not.
	Swap
	// Delete makes the value of the key the empty one.
	Delete
)

// Op is one operation of a client on one key.
type Op struct {
	Client int
	Key    string
	Verb   Verb
	// Expected is what a Swap expects, and Value what Put and Swap write. The empty value is that of a key without one.
	Expected, Value string
	// Known is false when the client never learnt what came of the operation: it may have been carried out, or be yet.
	Known bool
	// Read is what a Get, or a Swap that did not meet what it expected, has read; Swapped is set for a Swap that did.
	Read    string
	Swapped bool
	// Call and Return are when the client began and heard, on one clock.
	Call, Return time.Duration
}

// Do carries an operation out at once, and fills in what came of it. The header is that of etcd's answer; nil without
// one. Its times are since the one given.
func (op Op) Do(ctx context.Context, kv clientv3.KV, since time.Time) (Op, *etcdserverpb.ResponseHeader) {
	does := clientv3.OpGet(op.Key)
	compare := clientv3.Compare(clientv3.Version(op.Key), ">", -1)
	switch op.Verb {
	case Get:
	case Delete:
		does = clientv3.OpDelete(op.Key)
	case Put:
		does = clientv3.OpPut(op.Key, op.Value)
	case Swap:
		does = clientv3.OpPut(op.Key, op.Value)
		compare = clientv3.Compare(clientv3.Value(op.Key), "=", op.Expected)
		if op.Expected == "" {
			compare = clientv3.Compare(clientv3.Version(op.Key), "=", 0)
		}
	}
	op.Call = time.Since(since)
	answer, err := kv.Txn(ctx).If(compare).Then(does).Else(clientv3.OpGet(op.Key)).Commit()
	op.Return = time.Since(since)
	if op.Known = err == nil; !op.Known {
		return op, nil
	}
	op.Swapped = op.Verb == Swap && answer.Succeeded
	if got := answer.Responses[0].GetResponseRange(); got != nil && len(got.Kvs) > 0 {
		op.Read = string(got.Kvs[0].Value)
	}
	return op, answer.Header
}

// History is what all clients did and were told.
type History struct {
	mu  sync.Mutex
	ops []Op
}

// Add adds an operation.
func (h *History) Add(op Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
}

// Ops are all operations so far.
func (h *History) Ops() []Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ops)
}

// Check judges whether the history is linearizable: whether each key was, to all clients, one value that changed at
// one moment within each write, and no acknowledged write was lost. It says which keys were not. Each key takes at
// most the time given; a key that takes longer is an error as well.
func (h *History) Check(within time.Duration) error {
	keys := map[string][]Op{}
	for _, op := range h.Ops() {
		keys[op.Key] = append(keys[op.Key], op)
	}
	for key, ops := range keys {
		switch porcupine.CheckOperationsTimeout(register, operations(ops), within) {
		case porcupine.Ok:
		case porcupine.Illegal:
			return fmt.Errorf("the history of %s is not linearizable:\n%s", key, listing(ops))
		default:
			return fmt.Errorf("the history of %s, of %d operations, could not be judged in %s", key, len(ops), within)
		}
	}
	return nil
}

// register is one key. A state is its value.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		value, _ := state.(string)
		op, _ := input.(Op)
		switch {
		case op.Verb == Put:
			return true, op.Value
		case op.Verb == Delete:
			return true, ""
		case op.Verb == Swap && op.Swapped:
			return value == op.Expected, op.Value
		case op.Verb == Swap && op.Read == op.Expected:
			return false, value
		}
		return value == op.Read, value
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
}

// operations are the operations on one key as porcupine takes them.
//
// One with an unknown outcome ought to be open-ended, and each of those doubles the work. Since every value is
// written once, it need not be: if its value was never read, then taking effect after everything else explains the
// same as never, and it is left out; if it was, then it took effect before the first reader heard of it. A Delete is
// open-ended: many have the same value.
func operations(ops []Op) []porcupine.Operation {
	heard := map[string]time.Duration{} // when a value was first known to be there
	note := func(value string, at time.Duration) {
		if first, seen := heard[value]; !seen || at < first {
			heard[value] = at
		}
	}
	for _, op := range ops {
		switch {
		case !op.Known || op.Verb == Put || op.Verb == Delete:
		case op.Verb == Swap && op.Swapped:
			note(op.Expected, op.Return)
		default:
			note(op.Read, op.Return)
		}
	}
	var all []porcupine.Operation
	for _, op := range ops {
		switch {
		case op.Known:
		case op.Verb == Delete:
			op.Return = math.MaxInt64
		default:
			at, seen := heard[op.Value]
			if op.Verb == Get || !seen || at < op.Call {
				continue
			}
			op.Return, op.Swapped = at, op.Verb == Swap
		}
		all = append(all, porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Call.Nanoseconds(),
			Return: op.Return.Nanoseconds()})
	}
	return all
}

// String is for people.
func (op Op) String() string {
	what := "get"
	switch op.Verb {
	case Get:
	case Put:
		what = "put " + op.Value
	case Delete:
		what = "delete"
	case Swap:
		what = fmt.Sprintf("swap %q for %s", op.Expected, op.Value)
	}
	came := fmt.Sprintf("%q", op.Read)
	switch {
	case !op.Known:
		came = "unknown"
	case op.Verb == Put, op.Verb == Delete, op.Swapped:
		came = "done"
	}
	return fmt.Sprintf("%9.3f-%9.3f client %d: %s: %s", op.Call.Seconds(), op.Return.Seconds(), op.Client, what, came)
}

func listing(ops []Op) string {
	slices.SortFunc(ops, func(a, b Op) int { return int(a.Call - b.Call) })
	var s string
	for _, op := range ops {
		s += op.String() + "\n"
	}
	return s
}
