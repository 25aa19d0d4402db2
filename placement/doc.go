// Package placement finds a node for every pod of a gang, or says why there
// is none.
//
// Start from Planner.Plan. It works on the scheduler's own snapshot with the
// scheduler's own PreFilter and Filter plugins: pods are placed one after the
// other as hypothetical pods, so that each sees its siblings, and all of them
// are taken back before Plan returns, whatever happened. Only snapshot.go
// knows the snapshot's type. Which node is tried next is decided by pure code
// in packing.go, and the sentence of a "no" by pure code in whynot.go.
//
// Plan decides nothing about quota, evicts nothing, and holds nothing: the
// caller turns a plan into holds.
//
// The search is greedy. For one class of pods whose only constraints are
// those of single nodes (resources, selectors, taints, ports) it finds a plan
// whenever there is one; with constraints between pods, or several classes
// that compete for the same nodes, it may miss one. Classes whose pods must all
// be in one domain are placed before others, the largest first, and each is
// tried in every domain with room for it, the smallest first. A plan that it
// returns is always valid, with one exception: Reserve plugins are not
// simulated, so that two pods with ResourceClaims or unbound volume claims may
// be planned onto the same device or volume. PreFilter runs once for each
// class, but once for each pod of classes with claims or with topology spread,
// which makes those dear on large clusters. Extended resources count as far as
// a node advertises them as allocatable, also those that NodeResourcesFit is
// told to ignore.
package placement
