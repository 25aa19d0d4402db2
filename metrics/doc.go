// Package metrics is the one home of the names, helps and labels of all that
// Muster measures. Names start with muster_ and carry their unit; labels are
// bounded: queues, reasons and results, never jobs or pods.
//
// The metrics are registered in the Kubernetes component registry, so that
// the scheduler serves them beside its own. Start from All.
package metrics
