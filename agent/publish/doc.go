// Package publish writes what the agent knows of its node into the GPUNode of that
// name: when it has changed, not more often than the API server can bear from
// thousands of nodes, and else as a heartbeat.
//
// It decides when to write, and nothing else. Start from Publisher.
package publish
