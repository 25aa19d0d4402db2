// Package inventory knows which GPUs a node has, and how they are joined: its Node.
//
// There are several Sources, of which the first that knows a node counts. Slices
// reads ResourceSlices, and so has names and UUIDs of GPUs, PCIe roots and NUMA
// nodes. Reports reads GPUNodes, which have NVLinks too, and no names. Products goes by the labels of the node alone. Whatever a source reads is
// somebody else's word: where it contradicts itself or the node, GPUs count as
// joined by no more than is certain, so that no pod waits for it.
//
// The package chooses nothing, and does not know which GPUs are free. Start from
// Source.
package inventory
