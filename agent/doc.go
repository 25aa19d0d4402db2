// Package agent joins what is known of the GPUs of one node, tick by tick: what the
// driver has measured (agent/reader), which pods hold them (agent/holders), what the
// pods are, what they do (agent/verdict); and has it written (agent/publish).
//
// It holds no clock and starts nothing: whoever calls Tick does, every 15 s. Start
// from Agent.
package agent
