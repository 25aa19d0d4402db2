package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

var part = flag.Int("part", 10, "run one part-th of the jobs of BenchmarkQuotaAdmit; 1 is all of them")

// BenchmarkQuotaAdmit has 15,000 jobs, or a part of them, admitted through 30
// ClusterQueues in five cohorts: by Muster, and by Kueue on a fresh API server.
// Everybody may send as many requests as they like. No pods are made: a job runs
// from when it is resumed, and the benchmark says when it has ended.
func BenchmarkQuotaAdmit(b *testing.B) {
	var all []*figures
	for _, c := range []contestant{muster, kueueItself} {
		b.Run(c.name, func(b *testing.B) {
			f := c.run(b, kueueShape(*part))
			all = append(all, f)
			b.ReportMetric(f.ofBound(), "wall/bound")
			b.ReportMetric(f.perSecond(), "admissions/s")
			b.ReportMetric(f.perAdmission(), "writes/admission")
			b.ReportMetric(float64(len(f.over)), "overshot")
			b.ReportMetric(0, "ns/op")
		})
	}
	if len(all) == 0 {
		return
	}
	fmt.Println()
	if err := compare(os.Stdout, all...); err != nil {
		b.Fatal(err)
	}
	if len(all) == 2 {
		fmt.Printf("Muster takes %.2f of Kueue's time\n\n", all[0].wall.Seconds()/all[1].wall.Seconds())
	}
}

// run has a contestant admit all jobs, and fails the test if it overshoots quota.
func (c contestant) run(t testing.TB, s shape) *figures {
	t.Helper()
	cluster := c.up(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*s.bound()+10*time.Minute, fmt.Errorf("%s takes too long", c.name))
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
	before, err := cluster.take(ctx, c.component)
	if err != nil {
		t.Fatal(err)
	}
	d := newDriver(cluster, s)
	if err := d.drive(ctx); err != nil {
		t.Fatal(err)
	}
	after, err := cluster.take(ctx, c.component)
	if err != nil {
		t.Fatal(err)
	}
	f := d.figures(c.name, after.requests.since(before.requests))
	f.processor, f.apiServer = after.processor-before.processor, after.apiServer-before.apiServer
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
	requests             requests
	processor, apiServer time.Duration
}

func (c *cluster) take(ctx context.Context, component string) (s sample, err error) {
	if s.requests, err = c.requests(ctx); err != nil {
		return s, err
	}
	if s.processor, err = c.processor(component); err != nil {
		return s, err
	}
	s.apiServer, err = c.processor("kube-apiserver")
	return s, err
}
