// Package placement finds a node for every pod of a gang, or says why there
// is none.
//
// Start from Planner.Plan. It works on the scheduler's own snapshot with the
// scheduler's own PreFilter and Filter plugins: pods are placed one after the
// other as hypothetical pods, so that each sees its siblings, and all of them
// are taken back before Plan returns, whatever happened. The packages below this
// one know no cluster and no scheduler: topology chooses domains, islands GPUs
// inside a node, inventory reads which a node has, fragmentation weighs what is left
// over. Which node is tried next is decided by pure code
// in packing.go, and the sentence of a "no" by pure code in whynot.go. Of nodes
// that serve a gang as well, that one is taken of which the rest is of most use to
// the jobs that the cluster has seen lately: the package fragmentation says which,
// over a Mix that the caller has observe.
//
// Plan decides nothing about quota, evicts nothing, and holds nothing: the
// caller turns a plan into holds.
//
// A plan that Plan returns can be bound: its pods pass the scheduler one after
// the other, in the order in which they were planned. Plan finds one whenever
// there is one for a single class of pods whose constraints are those of
// single nodes (resources, selectors, taints, ports), keeping apart, one
// required affinity, one topology spread constraint, a claim that all share,
// devices or provisioned volumes of their own. With several constraints, with
// several classes that compete or mind each other, or with volumes of their
// own that only some nodes reach, it may miss one: packing is greedy, and is
// then repeated in other orders of classes and nodes, but not for ever
// (retry.go). What a plan may cost is bounded as well (effort.go): one that ends
// before all was tried says so, and with a Progress the next one goes on from there. Classes whose pods must all be in one domain are placed before
// others, the largest first, and each is tried in every domain with room for it,
// the smallest first. A property test keeps both promises, and the misses rare.
//
// Classes that ask for a Topology are placed together (group.go): the package
// topology chooses nodes by the room that they have, Filter says what they take,
// and what it refuses the choice is made without, in turn. Where Filter's answer
// depends on siblings on other nodes, the domains are tried one by one with the
// search for single classes instead.
//
// Claims are planned by in-tree plugins that the planner has for itself, over
// the API server's objects with those of the trial laid over them (claims.go):
// neither the scheduler's own plugins nor the API server learn of a trial.
// Claims that a template stands for do not exist yet and are made up
// (templates.go). A volume that is to be provisioned and that pods of several
// nodes may mount counts as bound once the first of them has a node, and as
// reached from where its CSI driver's topology keys say (provision.go). What
// holds and pods in binding will take counts as taken, so that two jobs planned
// one after the other are not given the same volume or device. What is wrong
// in this picture, for instance because a provisioner puts a volume elsewhere,
// shows when the pod is scheduled, and the slot is planned anew.
// Of volumes that do not wait for their pod only the class is known: they count
// as there, wherever the class allows. Of volumes of one size which nodes reach
// differently a pod may be given another than in the plan. Which device of a
// node a pod gets is not kept. Where nodes have devices behind an extended
// resource, instead of advertising it, those are planned like claims (extended.go).
//
// PreFilter runs once for each class, but once for each pod of classes with
// topology spread, and the plugins for claims once for each pod with claims,
// which makes those dear on large clusters. Extended resources count as far as
// a node advertises them as allocatable, also those that NodeResourcesFit is
// told to ignore.
package placement
