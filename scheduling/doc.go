// Package scheduling makes Muster's one decision: quota and nodes for a whole
// job, at once, on the scheduler's own goroutine.
//
// The Ledger holds what is decided: which jobs wait, who is charged, and
// which slot of which job is a hold (a phantom pod in the scheduler's cache)
// or a real pod. The Cycle wraps the scheduler's NextEntity and admits jobs
// between two pods, on the snapshot that the pods themselves are scheduled
// on. The Jobs controller carries a decision to the API: it writes the
// Workload first and resumes the owner only when that write has succeeded.
//
// It never admits a job in part, never evicts a single pod of a gang, and
// never blocks the scheduling goroutine on the API. Start from Ledger.
package scheduling
