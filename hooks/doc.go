// Package hooks is Quorate's judgement: pure functions from what was observed to what should be.
//
// # How a decision is made
//
// Metacontroller calls the server whenever an EtcdCluster or one of its children changes, and every so often. Each call
// is one run of [Sync]:
//
//	observe -> decide -> (if there is a step: carry it out, observe again, decide again) -> answer
//
// Package cluster works out once how much is known: the first of its Modes that is true. It asks the rules of that mode
// in order, and the first that applies says what to do: at most one step in etcd, and by what it knows the children
// that should exist. Its name and words are the [rule.Reason] that reaches the log, the status conditions and the
// metric. To understand Quorate, read the list in cluster/modes.go from top to bottom. Package safety says the safety
// rules a second time.
//
// Nothing here has a clock, randomness or a network: `now` is a field of the observation, and etcd is the interface
// [Etcd]. The unit tests, the stories in test/simulated/scenario and the server run the very same code.
//
// # Where things are
//
// This package has [Sync], which is one call. What it calls is in folders; each imports only what is below it here, and
// imports_test.go holds that.
//
//	cluster         the rules: modes.go has them in order, every other file one subject and what its rules do
//	safety          the oracle: S1 to S21 from the facts alone, one file for each subject
//	status          what people see
//	health          how members and objects are doing: who is late, given up, never made
//	rollout         which members differ from the spec, and what waits for a maintenance window
//	children        the objects of an answer: pods, claims, Services, policies
//	epochs          the record of where data comes from, how one epoch takes over from another, what seeds it
//	auth            when users and roles in etcd are brought to what is declared
//	pods            what pods show: their role to clients, and why one does not serve
//	certificates    which certificates there are, what is wrong with them, how an authority is followed by the next
//	foreign         members of a running etcd that a cluster joins
//	volumes         claims, their sizes, directories on nodes
//	versions        the releases of etcd, and the way from one to another
//	state           an observation put together: members with their pods, claims and health; the epoch they are of
//	spec            what an EtcdCluster asks for, with the defaults put in, and what is wrong with it
//	observation     what a decision may depend on
//	decision        what a decision is, and the closed set of steps
//
// Four more kinds are answered in the same way, and don't know clusters' rules:
//
//	snapshot        what becomes of an EtcdSnapshot
//	operation       what became of an EtcdOperation: its cluster does it, by state/asked.go, and tells
//	mirror          which pod copies another etcd for an EtcdMirror, and which one ends that
//	schedule        which snapshots an EtcdSnapshotSchedule has, and its stream; timetable when a run is due
//
// What all of them use:
//
//	api/v1alpha1    the types that people write
//	rule            one type of rule and one evaluator
//	objects         names, labels and annotations, what is in every pod of ours, images, what containers tell
//	stores          how pods come to a store of snapshots, and what its URL may be
//	reports         what the programs in pods report
//	users           users and roles as declared, and the plan to get there
//	endpoints       which addresses an etcd may have that a cluster joins
//	wording         pieces of messages, and the words of the scheduler and the kubelet
//
// # Safety rules
//
// S1 to S21 are the rules that code, tests and messages cite. In short:
//
//	S1   no step or deletion of ours takes a quorate cluster below quorum, and no promotion lets evictions do so
//	S2   at most one voter is unavailable because of us
//	S3   one membership change at a time
//	S4   members join as learners; never as voters, after the bootstrap
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
//	S17  deletion touches nothing of another cluster and never waits for etcd, except for members that have joined an existing etcd: they leave it first
//	S18  versions move one minor up at a time, over safe patch levels only
//	S19  a certificate is put to use once every member trusts its authority; authorities are brought in and out one member at a time
//	S20  no one who keeps a permission is ever without it: grants come before revokes; no member begins to ask clients
//	     for no certificate while auth is not known to be on, and auth is not turned off while one does
//	S21  an epoch begins with the same data in all of its initial members, and above every revision that one before it may have given out, unless
//	     the spec says by how much
package hooks
