// Package facts puts an observation together, once and in one order: members with their pods, claims and health, the
// epochs that they are of, what the spec asks for, and in what these differ. It judges nothing. What is asked of the
// facts is a method of [Facts]; what is asked of one pod or claim alone is a function.
package facts
