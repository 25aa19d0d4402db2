// Package invariants watches a cluster and says when what must always hold
// does not: that every pod of a queued job was admitted before it was bound
// and its gang started together, that quota and nodes are never promised
// twice, and that every eviction says why.
//
// It judges by the API alone, in the order in which the API stored the
// changes, and knows nothing of Muster's memory. The Checker is a pure
// function of a stream of events; the Watcher feeds it from a cluster. What
// people or other programs do to a node or a quota is tolerated, and so is a
// decision of Muster that was on its way at that moment.
//
// It changes nothing in the cluster. Start from Watcher.
package invariants
