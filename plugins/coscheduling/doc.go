// Package coscheduling is the scheduler plugin that carries out what the
// Ledger has decided for gangs: it keeps a gang's pods out of the queue until
// the whole job is admitted and its start group is complete, steers each pod
// into its slot, and lets the pods of a start group bind together.
//
// It decides nothing itself, and does nothing for pods of other owners.
// Start from Plugin.
package coscheduling
