// Package model visits every state that a small world can get into with the shipped hooks.Decide in it: an API server
// and caches that lag, Metacontroller, kubelets, etcd's membership by its own rules, people who edit, and
// faults. The world is that of package world, told in a few hundred bytes, so that millions of states fit into
// memory; what it leaves out is in docs/evidence/model.md, and agree_test.go holds the two against each other.
//
// A state is a plain value (state.go). Members keep the order of their numbers and objects their identity, and
// nothing else of names: states that differ in no more are one (canon.go). The hooks are shown a state as Kubernetes'
// objects (shown.go, names.go), and what they decide is remembered by what was seen (hooks.go). What may happen is a
// list of actions (actions.go), carried out (happen.go) by kubernetes.go, kubelet.go and etcd.go, which asks package
// membership. search.go goes everywhere; walk.go goes far. The way to a broken rule is told as a story for
// test/simulated/scenario (story.go).
//
// Three things are searched in package world itself, which is slower and knows more: certificates
// (rotation_test.go), how one epoch takes over from another (epochs_test.go), and how our members take over from
// external ones (external_test.go).
package model
