// Package rules decides: the modes of a cluster, the rules of each in their order, and what each rule plans.
package rules
