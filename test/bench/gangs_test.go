package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/internal/invariants"
	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/testsandbox"
)

var gangLoads = flag.String("gangs", "100x20", "the loads of BenchmarkGangs: gangs, and pods of each, as 100x20,4x500")

// BenchmarkGangs has gangs bound: by Muster, by the coscheduling plugin of
// scheduler-plugins, and by clients that know every pod's node and only send
// bindings, which is as fast as the API server goes. Each has a fresh one, of 500
// nodes, and nothing runs beside it: no controllers, no kubelets. The pods are there
// when the clock starts, and their scheduler runs, but was frozen before they came.
// Schedulers write an event for each pod beside its binding, and who admits gangs in the
// API a Workload for each, so there are ceilings that have those too. Muster writes most
// of the events after the bindings: those are not in its figures, as its requests say.
func BenchmarkGangs(b *testing.B) {
	loads, err := parseGangLoads(*gangLoads)
	if err != nil {
		b.Fatal(err)
	}
	for _, load := range loads {
		var all []gangRound
		for i := range *rounds {
			// Whoever comes first in one round comes last in the next.
			order := slices.Clone(gangContestants)
			if i%2 == 1 {
				slices.Reverse(order)
			}
			r := gangRound{}
			for _, c := range order {
				b.Run(fmt.Sprintf("%s/%s/round-%d", load, c.name, i+1), func(b *testing.B) {
					f := c.runGangs(b, load)
					r[c.name] = f
					b.ReportMetric(f.perSecond(), "pods/s")
					b.ReportMetric(0, "ns/op")
				})
			}
			if len(r) == 0 {
				continue
			}
			fmt.Printf("\n%s, round %d of %d\n", load, i+1, *rounds)
			if err := r.compare(os.Stdout); err != nil {
				b.Fatal(err)
			}
			all = append(all, r)
		}
		if len(all) > 0 {
			fmt.Printf("\n%s\n", load)
			if err := sumGangs(os.Stdout, all); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// TestGangs is the benchmark without its peers and without a clock: every gang is
// bound, and what must always hold does.
func TestGangs(t *testing.T) {
	musterOfPods.runGangs(t, gangLoad{gangs: 8, size: 5})
}

// gangRun is one contestant with one load.
type gangRun struct {
	contestant
	cluster *cluster
	load    gangLoad
	watch   *gangWatch
	// submitted pods are there or come.
	submitted int
}

// runGangs has a contestant bind a load, and fails the test if it binds a pod that
// it should not.
func (c contestant) runGangs(t testing.TB, load gangLoad) *gangFigures {
	t.Helper()
	s := testsandbox.Up(t, "bench", sandbox.Options{With: c.with, Nodes: gangNodes, ClientQPS: testsandbox.ClientQPS})
	s.KillNow(t, "kube-controller-manager")
	s.KillNow(t, "simulator")
	if c.workloads {
		// Its API is wanted, not what it decides.
		s.KillNow(t, musterOfPods.component)
	}
	r := &gangRun{contestant: c, cluster: &cluster{Cluster: s, WithWatch: s.Watching(t)}, load: load, watch: newGangWatch()}
	ctx, cancel := context.WithTimeoutCause(t.Context(), gangPatience, fmt.Errorf("%s takes too long", c.name))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if c.component != "" {
		go r.cluster.watchOver(ctx, end, c.component)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	working, stop := context.WithCancel(groupCtx)
	defer stop()
	if err := load.setUp(working, r.cluster, slices.Contains(c.with, sandbox.WithScheduler)); err != nil {
		t.Fatal(err)
	}
	if err := follow(working, group, r.cluster, &corev1.PodList{}, r.watch.see); err != nil {
		t.Fatal(err)
	}
	watcher, err := invariants.Start(working, r.cluster.Config, invariants.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if err := r.cluster.settle(working); err != nil {
		t.Fatal(err)
	}
	f, err := r.bind(working)
	if err != nil {
		t.Fatal(err)
	}
	// Where nobody decides, the same nodes are filled for each number of workers.
	if c.component != "" {
		if err := watcher.Check(working); err != nil {
			t.Errorf("what must always hold does not: %v", err)
		}
	}
	stop()
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return f
}

// gangPatience bounds one contestant with one load.
const gangPatience = 10 * time.Minute

// bind has the load bound.
func (r *gangRun) bind(ctx context.Context) (*gangFigures, error) {
	if r.component == "" {
		return r.ceiling(ctx)
	}
	if err := r.cluster.signal(r.component, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	if err := r.submit(ctx, "gang"); err != nil {
		return nil, err
	}
	return r.measure(ctx, func(context.Context) error { return r.cluster.signal(r.component, syscall.SIGCONT) })
}

// submit has the pods of the load come, and waits until they are there and the API
// server is idle again.
func (r *gangRun) submit(ctx context.Context, prefix string) error {
	if err := r.load.submit(ctx, r.cluster, prefix, r.scheduler); err != nil {
		return err
	}
	bound := r.submitted
	r.submitted += r.load.pods()
	if err := r.watch.await(ctx, r.submitted, bound); err != nil {
		return err
	}
	return r.cluster.settle(ctx)
}

// measure is how fast what was submitted last is bound from when begin is called.
func (r *gangRun) measure(ctx context.Context, begin func(context.Context) error) (*gangFigures, error) {
	before, err := r.cluster.take(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := begin(ctx); err != nil {
		return nil, err
	}
	if err := r.watch.await(ctx, r.submitted, r.submitted); err != nil {
		return nil, err
	}
	after, err := r.cluster.take(ctx)
	if err != nil {
		return nil, err
	}
	return newGangFigures(r.name, r.load, r.watch.since(began), after.requests.since(before.requests), after.processors.since(before.processors)), nil
}
