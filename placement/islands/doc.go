// Package islands chooses GPUs inside a node: which of those that are free are
// best joined with each other, and leave the most useful rest.
//
// A Shape says by which Link each two GPUs of a node are joined: NVSwitch, pairs
// with NVLink bridges, the cube mesh of the V100, PCIe roots, NUMA nodes. It is a
// graph and need not be a tree. Where it is known which GPUs are free, Choose names
// the best of them; where only their number is known, Likely says what may be had
// and what is had in any case, and names none.
//
// Everything is exact: all sets of GPUs are looked at, once for each Shape, which for
// more than ten takes so long that who must not wait asks Ready first. The
// package knows no nodes and no pods but numbers; who enforces a choice is the
// caller's matter. Start from Shape.
package islands
