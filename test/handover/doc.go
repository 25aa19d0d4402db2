// Package handover tests on a sandbox with the real Kueue manager that the two of
// them, Kueue and Muster, follow each other over running jobs, without any of these
// noticing. Kueue takes minutes to compile, so this is not in test/e2e: run "make
// test-handover".
package handover
