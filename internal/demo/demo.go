package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"github.com/muster-gpu/muster/internal/invariants"
	"github.com/muster-gpu/muster/internal/sandbox"
)

// Options say where the demo runs and writes.
type Options struct {
	// Dir holds the two sandboxes of the demo.
	Dir string
	Out io.Writer
	// Color: Out is a terminal that shows colors.
	Color bool
}

// Run brings up two clusters, one with Muster and one with a plain
// kube-scheduler, tells the story on them and takes them down. The error is
// the first thing that was not as told.
func Run(ctx context.Context, o Options) (err error) {
	fmt.Fprintln(o.Out, "Starting two local clusters of four 8-GPU nodes: one with Muster, one with a plain kube-scheduler ...")
	clusters, err := bringUp(ctx, o.Dir)
	defer func() { err = errors.Join(err, takeDown(context.WithoutCancel(ctx), clusters)) }()
	if err != nil {
		return err
	}
	muster, plain, err := stages(clusters, o)
	if err != nil {
		return err
	}
	watcher, err := watch(ctx, clusters.muster)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	with, err := muster.deadlockAvoided(ctx)
	if err != nil {
		return fmt.Errorf("two jobs with Muster: %w", err)
	}
	without, err := plain.deadlock(ctx)
	if err != nil {
		return fmt.Errorf("two jobs without Muster: %w", err)
	}
	compare(o.Out, without, with)
	if err := muster.holes(ctx); err != nil {
		return fmt.Errorf("a job that fits its quota but no node: %w", err)
	}
	if err := watcher.Check(ctx); err != nil {
		return fmt.Errorf("what must always hold with Muster did not: %w", err)
	}
	fmt.Fprintln(o.Out, "\nEverything above was checked as it was shown.")
	return nil
}

// clusters are the demo's sandboxes, as far as they came up.
type clusters struct{ muster, plain *sandbox.Sandbox }

func bringUp(ctx context.Context, dir string) (clusters, error) {
	var c clusters
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() {
		c.muster, errs[0] = sandbox.Up(ctx, sandbox.Options{Dir: filepath.Join(dir, "muster")})
	})
	wg.Go(func() {
		c.plain, errs[1] = sandbox.Up(ctx, sandbox.Options{
			Dir:  filepath.Join(dir, "plain"),
			With: []string{sandbox.WithTrainer, sandbox.WithJobSet, sandbox.WithKubeScheduler},
		})
	})
	wg.Wait()
	return c, errors.Join(errs[:]...)
}

func takeDown(ctx context.Context, c clusters) error {
	var errs []error
	for _, s := range []*sandbox.Sandbox{c.muster, c.plain} {
		if s != nil {
			errs = append(errs, s.Down(ctx))
		}
	}
	return errors.Join(errs...)
}

// watch watches, from now on, that what must always hold in a cluster does.
func watch(ctx context.Context, s *sandbox.Sandbox) (*invariants.Watcher, error) {
	config, err := s.RESTConfig()
	if err != nil {
		return nil, err
	}
	return invariants.Start(ctx, config, invariants.Options{})
}

func stages(c clusters, o Options) (muster, plain *stage, err error) {
	for _, s := range []struct {
		sandbox *sandbox.Sandbox
		stage   **stage
	}{{c.muster, &muster}, {c.plain, &plain}} {
		config, err := s.sandbox.RESTConfig()
		if err != nil {
			return nil, nil, err
		}
		if *s.stage, err = newStage(config, o.Out, o.Color); err != nil {
			return nil, nil, err
		}
	}
	return muster, plain, nil
}

// outcome is what became of the two jobs.
type outcome struct{ held, working, finished int }

// compare sets the two outcomes side by side.
func compare(out io.Writer, without, with outcome) {
	fmt.Fprintf(out, "\n    %-36s %-18s %s\n", "the same two 16-GPU jobs", "kube-scheduler", "Muster")
	fmt.Fprintf(out, "    %-36s %-18d %d\n", "GPUs held while they wait or run", without.held, with.held)
	fmt.Fprintf(out, "    %-36s %-18d %d\n", "GPUs working", without.working, with.working)
	fmt.Fprintf(out, "    %-36s %-18s %s\n", "jobs finished", fmt.Sprintf("%d of 2", without.finished), fmt.Sprintf("%d of 2", with.finished))
}
