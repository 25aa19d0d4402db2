// Package fragmentation says how much of a node's free GPUs the pods that a
// cluster sees can use, and how much less that is once a pod is placed there.
//
// It follows the idea of Fragmentation Gradient Descent (Weng et al., USENIX
// ATC 2023): the fragment of a node for a kind of pod is what of its free GPUs
// such pods could not use, for want of GPUs, CPU or memory; the expected
// fragment is the mean over the mix of pods that are asked for; and a pod goes to
// the node whose expected fragment grows least, unless it fits one exactly. Two things differ. Pods count by
// the GPUs that they ask for, so that holes of whole nodes are worth as much as
// the demand for them. And a part of the fragment is what would be left over if
// only such pods came from now on: CPU or memory that will not last for the GPUs
// is seen long before the first pod is refused.
//
// Start from Histogram, which observes requests and gives the Mix, and from
// Mix.Place. The package knows no nodes and no pods but numbers, has no clock,
// and chooses nothing: the caller compares what it says of several nodes.
package fragmentation
