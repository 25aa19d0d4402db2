// Package show reads a cluster's queues, jobs and GPUs and shows them to people, as
// tables, and to programs, as JSON or YAML.
//
// It asks the API server, with the rights of who asks, and for what only the scheduler
// knows the scheduler (scheduler.go). Lists are read in pages, each once, however many
// jobs there are. It changes nothing. Start from Queues, Jobs, GPUs, Explain.
package show
