// Package hooks is Quorate's judgement: pure functions from what was observed to what should be.
//
// # How a decision is made
//
// Metacontroller calls the server whenever an EtcdCluster or one of its children changes, and every so often. Each call
// is one run of [Sync]:
//
//	observe -> Decide -> (if there is a step: carry it out, observe again, Decide again) -> answer
//
// [Decide] works out once how much is known: the first of the [Modes] that is true. It asks the rules of that mode in
// order, and the first that applies says what to do: at most one [Step] in etcd, and by what it knows the children
// that should exist. Its name and words are the [rule.Reason] that reaches the log, the status conditions and the
// metric. To understand Quorate, read the list in modes.go from top to bottom; [Verify] says the safety rules a
// second time.
//
// The package imports no clock, no randomness and no network: `now` is a field of [Observation], and etcd is the
// interface [Etcd]. The unit tests, the stories in test/simulated/scenario and the server run the very same code.
//
// # Where things are
//
//	observation.go  what a decision may depend on, and the closed set of steps
//	decision.go     what a decision is
//	modes.go        the modes, with the ordered rules of each and what becomes of the children: start here; rules_before.go,
//	                rules_members.go and rules_rest.go say what each rule does; rules.go what a rule answers
//	outlook.go      what tools that wait are told of each rule: ready, at work, or waiting for a person
//	view.go         an observation put together: members with their pods, claims and health
//	epoch.go        the record of where a cluster's data comes from
//	succession.go   how one epoch takes over from another; recovery.go when, and with whose data; seed.go how its members come to that, and that
//	                it is the same for all; revisions.go at which revision it begins
//	bootstrap.go    initial members that do not come to their first quorum: what is said of them, and how it is begun anew
//	children.go     what should exist; pods.go which pods, claims.go which claims, record.go what the record of the epoch says
//	secret.go       Secrets and certificates as decisions know them, without what is secret
//	certificates.go which certificates there are, and how an authority is succeeded by the next
//	needs.go        what certificates pods need to exist, Quorate to talk with etcd, and a change of the members
//	issuance.go     certificates that come from cert-manager or from others, and whether running members take them;
//	                issuer.go who may sign them
//	auth_rule.go    when users and roles in etcd are brought to what is declared
//	disruption.go   voters that may be down because of us; choice.go which of them is restarted
//	rollout.go      how a change reaches members that run
//	upgrade.go      which version members run, and the way to another one
//	windows.go      maintenance windows: what waits for one
//	existing.go     members that join a running etcd, beside its own or in their place; existing_foreign.go who was there before,
//	                existing_trust.go the authority and Secrets of those, endpoints.go where an etcd may be that is joined
//	replacement.go  members that do not serve: who is given up, what is kept of it, who is tried again, who is somebody else
//	roles.go        which role pods show while no quorum answers
//	not_serving.go  what the kubelet and the scheduler say of pods; awaited.go what Kubernetes refuses to make, acceptable.go what of a spec it would
//	control.go      what people hold in their own hands: fencing, deletion, and the history that they read
//	resync.go       how soon to look again while members are silent
//	since.go        for how long something has been so, as far as Quorate has looked
//	alarms.go       etcd's alarms: data that differs between members, databases that are full
//	defragmentation.go  free space in the databases, by schedule and when asked
//	policy.go       who may open connections to the members
//	containers.go   what the containers of a pod tell of etcd
//	pod.go, spec.go how they look: pod template, etcd's flags, versions
//	storage.go      how members come to larger volumes, and to others
//	hostpath.go     members in directories on nodes
//	wal.go          members with a volume of their own for the write-ahead log
//	status.go       what people see; running.go which version members run
//	verify.go       the safety rules as an oracle: verify_steps.go the change of the membership, verify_claims.go and verify_pods.go what the
//	                answer holds, verify_epochs.go the record, verify_roles.go
//	                whom clients are led to, and verify_certificates.go,
//	                verify_maintenance.go, verify_window.go and verify_existing.go the rest
//	sync.go         one call, with the interface to etcd
//
// In folders below, none of which imports this package (the linter holds who may import whom):
//
//	api/v1alpha1    the types that people write
//	rule            one type of rule and one evaluator, for clusters, snapshots and schedules
//	objects         names, labels and annotations, what is in every pod of ours, images, what containers tell; why no text of a spec
//	                is taken for a variable
//	stores          how pods come to a store of snapshots, and what its URL may be
//	reports         what the programs in pods report
//	snapshot        what becomes of an EtcdSnapshot
//	schedule        which snapshots an EtcdSnapshotSchedule has; timetable when a run is due
//	users           users and roles as declared, and the plan to get there
//	wording         pieces of messages, and the words of the scheduler and the kubelet
//	safety          what the oracle says of the containers of every new pod
//	kubelettest     for tests: what a kubelet makes of a container
//
// # Safety rules
//
// S1 to S21 are the rules that code, tests and messages cite. In short:
//
//	S1   no step or deletion of ours takes a quorate cluster below quorum
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
//	S12  every current member's pod and claim is in the answer, but for the one that is being rolled
//	S13  an answer is complete, or it is an error
//	S14  a stale view may delay, never violate
//	S15  a decision made twice, or two at once, changes nothing about S1 to S14
//	S16  at rest there are no writes
//	S17  deletion touches nothing of another cluster and never waits for etcd, but for members that have joined an existing etcd: they leave it first
//	S18  versions move one minor up at a time, over safe patch levels only
//	S19  a certificate is put to use once every member trusts its authority; authorities are brought in and out one member at a time
//	S20  nobody who is to keep a permission is ever without it: grants come before revokes
//	S21  an epoch begins with the same data in all of its initial members, and above every revision that one before it may have given out, unless
//	     the spec says by how much
package hooks
