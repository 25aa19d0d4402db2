package e2e

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/internal/invariants"
	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/testsandbox"
)

// root is the repository's folder, seen from this package.
const root = "../.."

// patience bounds every wait of these tests.
const patience = 60 * time.Second

// cluster is a running sandbox with a client for its administrator, and a
// watcher of what must always hold there.
type cluster struct {
	*testsandbox.Cluster
	client  client.Client
	watcher *invariants.Watcher
}

// up runs a sandbox of four 8-GPU nodes with everything in it until the test
// ends. Whatever the test does, what must always hold must hold.
func up(t *testing.T, name string, change ...func(*sandbox.Options)) *cluster {
	t.Helper()
	var options sandbox.Options
	for _, c := range change {
		c(&options)
	}
	s := testsandbox.Up(t, "e2e-"+name, options)
	watcher, err := invariants.Start(t.Context(), s.Config, invariants.Options{})
	if err != nil {
		t.Fatal(err)
	}
	up := &cluster{Cluster: s, client: s.Client, watcher: watcher}
	t.Cleanup(func() {
		up.holds(t)
		watcher.Stop()
	})
	return up
}

// holds fails the test if anything was broken that must always hold.
func (c *cluster) holds(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.watcher.Check(ctx); err != nil {
		t.Error(err)
	}
}

// kill ends a component with SIGKILL.
func (c *cluster) kill(t *testing.T, component string) {
	t.Helper()
	c.KillNow(t, component)
}

// restart starts a component again and waits until it is ready.
func (c *cluster) restart(t *testing.T, component string) {
	t.Helper()
	c.RestartNow(t, component)
}

// eventually waits until check returns nil, and fails the test with its last
// error otherwise.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	testsandbox.Eventually(t, patience, what, check)
}
