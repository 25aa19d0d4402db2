// Package inventory keeps what policies may know of the cluster (data.inventory) as the
// cluster is: namespaces, queues with their reach and use, RuntimeDefaults, and the GPUs of
// nodes with those who leave them idle.
//
// It holds facts and no objects, and gathers changes before it hands them over, because
// each revision is made anew. Nothing here decides anything. Start from Build and Keeper.
package inventory
