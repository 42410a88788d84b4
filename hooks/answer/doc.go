// Package answer is what follows from a plan: the pods, claims, Services, policies and Secrets as they should look, the
// records of epochs, and what people see of it all in the status.
package answer
