// Package hooks is Quorate's judgement: pure functions from what was observed to what should be.
//
// # How a decision is made
//
// Metacontroller calls the server whenever an EtcdCluster or one of its children changes, and every so often. Each call
// is one run of [Sync]:
//
//	observe -> decide -> (if there is a step: carry it out, observe again, decide again) -> answer
//
// Deciding is three functions, one after the other:
//
//	f := facts.New(observation)   // what is so, worked out once
//	d := rules.Decide(f)          // what should become of it, and why
//	answer.Of(f, d)               // the children, the record and the status that follow
//
// The facts tell which mode a cluster is in. Package rules asks the rules of that mode in order, and the first that
// applies makes the plan: at most one step in etcd, what becomes of one pod, and what the records are to say. Its name
// and words are the [decision.Reason] that reaches the log, the status conditions and the metric. To understand
// Quorate, read the list in rules/modes.go from top to bottom. Package safety says the safety rules a second time.
//
// Nothing here has a clock, randomness or a network: `now` is a field of the observation, and etcd is the interface
// [Etcd]. The unit tests, the stories in test/simulated/scenario and the server run the very same code.
//
// # Where things are
//
// This package has [Sync], which is one call, and [Decide]. What they call is in folders; each imports only what is
// below it here, and imports_test.go holds that.
//
//	safety          the oracle: S1 to S21 from the facts alone, one file for each subject
//	answer          the objects that follow from a plan, the records and the status, one file for each kind
//	rules           the rules: modes.go has them in order, every other file one subject and what its rules do
//	facts           an observation put together: members with their pods, claims and health, epochs, and what differs
//	observation     what a decision may depend on
//	decision        what a decision is: the plan of a rule, the closed set of steps, one evaluator of rules
//	defaults        what an EtcdCluster asks for, with the defaults put in, and what is wrong with it
//	record          what is written down of an epoch before it is acted on: one Go struct in one ConfigMap
//
// Four more kinds are answered in the same way, and don't know clusters' rules:
//
//	snapshot        what becomes of an EtcdSnapshot
//	operation       what became of an EtcdOperation: its cluster does it, by facts/asked.go, and tells
//	mirror          which pod copies another etcd for an EtcdMirror, and which one ends that
//	schedule        which snapshots an EtcdSnapshotSchedule has, and its stream; timetable when a run is due
//
// What all of them use:
//
//	api/v1beta1    the types that people write
//	objects         names, labels and annotations, what is in every pod of ours, images, pieces of messages
//	stores          how pods come to a store of snapshots, what its URL may be, what programs in pods report
//	contents        what fills a database, by prefix
//	users           users and roles as declared, and the plan to get there
//
// # Safety rules
//
// S1 to S21 are the rules that code, tests and messages cite. In short:
//
//	S1   no step or deletion of ours takes a quorate cluster below quorum, and no promotion lets evictions do so
//	S2   at most one voter is unavailable because of us
//	S3   one membership change at a time
//	S4   members join as learners; never as voters, after the bootstrap; none runs before etcd lists it
//	S5   only a learner that answered in this call, has caught up and has its volume is promoted, once an entry of the leader has reached it
//	S6   a member is removed only when the target is smaller, its data is lost or proven corrupt, or it is dead for too long; never the last voter; the leader last
//	S7   a claim is deleted only with a linearizable member list in hand that omits its member, and only if it is ours
//	S8   one bootstrap per epoch; the cluster ID never changes within one; no two epochs of a cluster can acknowledge writes
//	S9   member names, peer URLs and IDs are never reused
//	S10  a member whose data is lost never runs under its old identity again
//	S11  blind: no step, no new name, no claim deleted, no running pod touched; pods are kept or brought back
//	S12  every current member's pod and claim is in the answer, except the one that is being rolled
//	S13  an answer is complete, or it is an error
//	S14  a stale view may delay, never violate
//	S15  a decision made twice, or two at once, changes nothing about S1 to S14
//	S16  at rest there are no writes
//	S17  deletion touches nothing of another cluster and never waits for etcd, except for members that have joined an external etcd: they leave it first
//	S18  versions move one minor up at a time, over safe patch levels only, and after a verified snapshot where a schedule takes them
//	S19  a certificate is put to use once every member trusts its authority; authorities are brought in and out one member at a time
//	S20  no one who keeps a permission is ever without it: grants come before revokes; no member begins to ask clients
//	     for no certificate while auth is not known to be on, and auth is not turned off while one does
//	S21  an epoch begins with the same data in all of its initial members, and above every revision that one before it may have given out
package hooks
