package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/sandbox"
)

// root is the repository's folder, seen from this package.
const root = "../.."

// clientQPS is what everybody may send to the API server in a second: so much
// that nobody is held up by it.
const clientQPS = 5000

// contestant is who decides about the jobs.
type contestant struct {
	name string
	// with are the parts of its sandbox, programs what they need to be built, and
	// component the one that decides.
	with      []string
	programs  []string
	component string
}

var (
	muster = contestant{
		name: "Muster", with: []string{sandbox.WithScheduler, sandbox.WithWebhook},
		programs: []string{"sandbox", "scheduler", "webhook"}, component: "muster-scheduler",
	}
	kueueItself = contestant{
		name: "Kueue", with: []string{sandbox.WithKueue},
		programs: []string{"sandbox", "kueue-controller"}, component: "kueue",
	}
)

// cluster is a running sandbox with one contestant in it.
type cluster struct {
	*sandbox.Sandbox
	client.WithWatch
	rest *rest.Config
}

// up runs a sandbox until the test ends. Nobody makes pods of jobs there: the
// benchmark itself says when a job has ended.
func (c contestant) up(t testing.TB) *cluster {
	t.Helper()
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range c.programs {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			t.Fatalf("%v; run \"make sandbox sandbox-kueue\"", err)
		}
	}
	dir, err := filepath.Abs(filepath.Join(root, ".sandbox", "bench"))
	if err != nil {
		t.Fatal(err)
	}
	down := func() {
		if err := sandbox.Down(context.Background(), dir); err != nil {
			t.Errorf("taking the sandbox down: %v", err)
		}
	}
	down()
	t.Cleanup(down)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	// Twice the cores of all quota, so that a place is never what is missing.
	s, err := sandbox.Up(ctx, sandbox.Options{Dir: dir, BinDir: bin, With: c.with, Nodes: 20, ClientQPS: clientQPS})
	if err != nil {
		t.Fatalf("starting the sandbox: %v", err)
	}
	if err := s.Kill(ctx, "kube-controller-manager"); err != nil {
		t.Fatal(err)
	}
	if err := c.leadAlone(ctx, s); err != nil {
		t.Fatal(err)
	}
	config, err := s.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = clientQPS, 2*clientQPS
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(kueue.AddToScheme(scheme))
	w, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{Sandbox: s, WithWatch: w, rest: config}
}

// leadAlone has Kueue lead without a Lease, as Muster does in a sandbox: where the
// API server is slow, its manager would lose the Lease, and end.
func (c contestant) leadAlone(ctx context.Context, s *sandbox.Sandbox) error {
	if c.component != kueueItself.component {
		return nil
	}
	path := filepath.Join(s.Dir(), "config", "kueue.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading Kueue's configuration: %w", err)
	}
	with, without := []byte("leaderElect: true"), []byte("leaderElect: false")
	if !bytes.Contains(content, with) {
		return fmt.Errorf("%s does not say %q", path, with)
	}
	if err := os.WriteFile(path, bytes.Replace(content, with, without, 1), 0o600); err != nil {
		return fmt.Errorf("writing Kueue's configuration: %w", err)
	}
	return s.Restart(ctx, c.component)
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
