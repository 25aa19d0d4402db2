package bench

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

var (
	part   = flag.Int("part", 0, "run one part-th of the jobs; 1 is all of them, 0 is 10 in the benchmark and a few jobs in the test")
	rounds = flag.Int("rounds", 1, "how often a benchmark is run, each time with a fresh API server")
)

// BenchmarkQuotaAdmit has 15,000 jobs, or a part of them, admitted through 30
// ClusterQueues in five cohorts: by Muster, and by Kueue on a fresh API server.
// Everybody may send as many requests as they like. No pods are made: a job runs
// from when it is resumed, and the benchmark says when it has ended.
func BenchmarkQuotaAdmit(b *testing.B) {
	var all []round
	for i := range *rounds {
		order := []contestant{muster, kueueItself}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		r := round{}
		for _, c := range order {
			b.Run(fmt.Sprintf("%s/round-%d", c.name, i+1), func(b *testing.B) {
				f := c.run(b, kueueShape(cmp.Or(*part, 10)))
				r[c.name] = f
				b.ReportMetric(f.ofBound(), "wall/bound")
				b.ReportMetric(f.wall.Seconds()/f.ofProcessors().Seconds(), "wall/processors")
				b.ReportMetric(f.perSecond(), "admissions/s")
				b.ReportMetric(f.perAdmission(), "writes/admission")
				b.ReportMetric(float64(len(f.over)), "overshot")
				b.ReportMetric(0, "ns/op")
			})
		}
		if len(r) == 0 {
			continue
		}
		fmt.Printf("\nRound %d of %d\n", i+1, *rounds)
		if err := compare(os.Stdout, r.inOrder()...); err != nil {
			b.Fatal(err)
		}
		all = append(all, r)
	}
	if len(all) > 0 {
		if err := sum(os.Stdout, all); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAdmissions is the benchmark without a clock, with a few jobs unless -part
// says how many: quota is not overshot, and one write admits a job.
func TestAdmissions(t *testing.T) {
	s := kueueShape(max(*part, 1))
	if *part == 0 {
		s.cohorts, s.queues = 2, 3
		for i, jobs := range []int{6, 2, 1} {
			s.classes[i].perQueue = jobs
		}
	}
	f := muster.run(t, s)
	const most = 1.1
	if f.perAdmission() > most {
		t.Errorf("a Workload is written %.2f times to admit its job, want at most %.1f", f.perAdmission(), most)
	}
	if t.Failed() || *part > 0 {
		if err := compare(os.Stdout, f); err != nil {
			t.Fatal(err)
		}
	}
}

// run has a contestant admit all jobs, and fails the test if it overshoots quota.
func (c contestant) run(t testing.TB, s shape) *figures {
	t.Helper()
	cluster := c.up(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*s.bound()+40*time.Minute, fmt.Errorf("%s takes too long", c.name))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go cluster.watchOver(ctx, end, c.component)
	if err := s.setUp(ctx, cluster); err != nil {
		t.Fatal(err)
	}
	if err := cluster.settle(ctx); err != nil {
		t.Fatal(err)
	}
	before, err := cluster.take(ctx)
	if err != nil {
		t.Fatal(err)
	}
	d := newDriver(cluster, s)
	if err := d.drive(ctx); err != nil {
		t.Fatal(err)
	}
	after, err := cluster.take(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f := d.figures(c.name, after.requests.since(before.requests))
	f.processors = after.processors.since(before.processors)
	for i, line := range f.over {
		if i == 20 {
			t.Errorf("and at %d more", len(f.over)-i)
			break
		}
		t.Errorf("%s overshoots quota at %s", c.name, line)
	}
	return f
}

// sample is what is counted before and after a drive.
type sample struct {
	requests   requests
	processors processors
}

func (c *cluster) take(ctx context.Context) (s sample, err error) {
	if s.requests, err = c.requests(ctx); err != nil {
		return s, err
	}
	s.processors, err = c.processor()
	return s, err
}
