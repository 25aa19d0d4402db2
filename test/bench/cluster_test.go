package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/testsandbox"
)

// contestant is who decides about the jobs, or the gangs.
type contestant struct {
	name string
	// with are the parts of its sandbox, and component the one that decides; nothing
	// does if it is empty.
	with      []string
	component string
	// scheduler is whom pods name that are its own.
	scheduler string
	// Where nothing decides, events has an event sent for each pod, and workloads the
	// Workload of each gang written, as admitted, before its pods are bound.
	events, workloads bool
}

var (
	muster = contestant{
		name: "Muster", with: []string{sandbox.WithScheduler, sandbox.WithWebhook},
		component: "muster-scheduler",
	}
	kueueItself = contestant{
		name: "Kueue", with: []string{sandbox.WithKueue},
		component: "kueue",
	}

	// musterOfPods is Muster without its webhook, which is not asked about the pods
	// of a gang that name a scheduler.
	musterOfPods = contestant{
		name: "Muster", with: []string{sandbox.WithScheduler, sandbox.WithPodGroups},
		component: "muster-scheduler", scheduler: "muster",
	}
	coscheduling = contestant{
		name: "coscheduling", with: []string{sandbox.WithCoscheduling},
		component: "coscheduling", scheduler: sandbox.CoschedulingName,
	}
	// bindCeiling is what the API server could bind if nobody had to think,
	// eventCeiling the same with an event for each pod, and gangCeiling that with the
	// Workload of each gang: what nobody does without who admits gangs in the API.
	bindCeiling  = contestant{name: "bind ceiling", with: []string{sandbox.WithPodGroups}, scheduler: "nobody"}
	eventCeiling = contestant{name: "bind and event ceiling", with: []string{sandbox.WithPodGroups}, scheduler: "nobody", events: true}
	gangCeiling  = contestant{name: "gang ceiling", with: musterOfPods.with, scheduler: "nobody", events: true, workloads: true}
)

// cluster is a running sandbox with one contestant in it.
type cluster struct {
	*testsandbox.Cluster
	client.WithWatch
}

// up runs a sandbox until the test ends. Nobody makes pods of jobs there: the
// benchmark itself says when a job has ended.
func (c contestant) up(t testing.TB) *cluster {
	t.Helper()
	// Twice the cores of all quota, so that a place is never what is missing.
	s := testsandbox.Up(t, "bench", sandbox.Options{With: c.with, Nodes: 20, ClientQPS: testsandbox.ClientQPS})
	s.KillNow(t, "kube-controller-manager")
	c.leadAlone(t, s)
	return &cluster{Cluster: s, WithWatch: s.Watching(t)}
}

// leadAlone has Kueue lead without a Lease, as Muster does in a sandbox: where the
// API server is slow, its manager would lose the Lease, and end.
func (c contestant) leadAlone(t testing.TB, s *testsandbox.Cluster) {
	t.Helper()
	if c.component != kueueItself.component {
		return
	}
	path := filepath.Join(s.Dir(), "config", "kueue.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("reading Kueue's configuration: %v", err)
	}
	with, without := []byte("leaderElect: true"), []byte("leaderElect: false")
	if !bytes.Contains(content, with) {
		t.Fatalf("%s does not say %q", path, with)
	}
	if err := os.WriteFile(path, bytes.Replace(content, with, without, 1), 0o600); err != nil {
		t.Fatalf("writing Kueue's configuration: %v", err)
	}
	s.RestartNow(t, c.component)
}

// signal sends one to a component.
func (c *cluster) signal(component string, signal syscall.Signal) error {
	state, err := c.State()
	if err != nil {
		return err
	}
	for _, p := range state.Components {
		if p.Name != component || p.Exit != "" {
			continue
		}
		if err := syscall.Kill(p.Process.PID, signal); err != nil {
			return fmt.Errorf("sending %s to %s: %w", signal, component, err)
		}
		return nil
	}
	return fmt.Errorf("%s does not run", component)
}

// watchOver ends ctx when a component has ended.
func (c *cluster) watchOver(ctx context.Context, end context.CancelCauseFunc, component string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		state, err := c.State()
		if err != nil {
			// It is written anew just now.
			continue
		}
		for _, p := range state.Components {
			if p.Name == component && p.Exit != "" {
				end(fmt.Errorf("%s has ended (%s); its log is %s", component, p.Exit, p.Log))
			}
		}
	}
}

// processor is the processor time that each component that runs has used so far,
// and that of the benchmark itself.
func (c *cluster) processor() (processors, error) {
	state, err := c.State()
	if err != nil {
		return nil, err
	}
	out := processors{}
	if out[theBenchmark], err = processorOf(os.Getpid()); err != nil {
		return nil, err
	}
	for _, p := range state.Components {
		if p.Exit != "" {
			continue
		}
		if out[p.Name], err = processorOf(p.Process.PID); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// settle waits until the API server has done what it does after its start and after
// definitions have come, most of which is to describe them: it would be counted
// as the contestant's time. It is not waited for longer than a minute.
func (c *cluster) settle(ctx context.Context) error {
	const idle = 100 * time.Millisecond
	last, err := c.processor()
	if err != nil {
		return err
	}
	for range 60 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
		now, err := c.processor()
		if err != nil {
			return err
		}
		if now.since(last)[theAPIServer] < idle {
			return nil
		}
		last = now
	}
	return nil
}
