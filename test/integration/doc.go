// Package integration tests the scheduler in the test's own process against a
// real API server: what users see in the API when jobs are created, started,
// broken and deleted. Schedulers that are killed, or that follow each other, run
// in processes of their own: the test binary itself, started anew.
package integration
