// Package testcluster gives tests a real API server and etcd in the test's own
// process, with the CRDs that Muster works with, and stand-ins for what is not
// under test: the controller that makes pods of a JobSet, and nodes. A Proxy in
// front of the API server loses, delays and refuses what a program sends.
//
// The CRDs of JobSet and Trainer are read from their Go modules. Start from
// Start.
package testcluster
