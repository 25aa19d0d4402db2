// Package testsandbox runs sandboxes for the tests and benchmarks below test/,
// whose folder they find from there, each in a folder of its own below .sandbox/
// at the root of the repository. Nothing of a sandbox outlives its test, but for
// its logs. Start from Up.
package testsandbox
