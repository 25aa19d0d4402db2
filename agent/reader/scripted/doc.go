// Package scripted is a Driver without GPUs: its devices do what they are told, for
// the sandbox and for tests. Start from Driver and ParseActivity.
package scripted
