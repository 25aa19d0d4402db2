// Package e2e tests Muster as it is installed: its programs, the real Trainer
// and JobSet controllers, a real control plane and simulated nodes, each a
// process of its own, in sandboxes below .sandbox/ at the root of the
// repository.
//
// "make sandbox" builds what the tests run. A sandbox that a test which was
// killed left behind is taken down by the next one; its logs are kept.
package e2e
