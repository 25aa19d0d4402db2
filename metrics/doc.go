// Package metrics is the one home of the names, helps and labels of all that
// Muster's programs measure. Names start with muster_ and carry their unit; labels are
// bounded: queues, flavors, nodes, reasons and results, never jobs or pods; but of GPUs
// that are held the agent of their node says by whom. The scheduler can serve some of
// them under Kueue's names too.
//
// Each metric is a Definition, of which its collector is made and the reference in
// docs/metrics.md is written. Start from Definitions.
package metrics
