// Package owners says from the API server what the pods of one node are: of which
// workload, and charged to which queue.
//
// It watches the pods of the node alone, and reads the few objects that own those with
// GPUs, again every few minutes. What it has read it keeps while the API server is
// away; nobody waits for a read. It writes nothing. Start from Owners.
package owners
