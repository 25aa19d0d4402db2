// Package device has the words in which the agent speaks of a node's GPUs: what a
// device is, what was measured on it, and how it is. It holds values, reads
// nothing and decides nothing. Start from Device and Sample.
package device
