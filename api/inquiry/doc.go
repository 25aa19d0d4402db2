// Package inquiry is what the scheduler answers to questions about jobs, as JSON: why one
// waits, and what would become of one that does not exist. It decides nothing.
package inquiry
