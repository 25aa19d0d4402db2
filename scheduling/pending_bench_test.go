package scheduling

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/muster-gpu/muster/quota"
)

const (
	benchNodes  = 100
	benchQueues = 4
	// benchCycles is the pods of one round, on each side, benchTurn how many of
	// them follow each other: few, so that whatever else the machine does in
	// between slows both sides.
	benchCycles, benchTurn = 2000, 10
)

// BenchmarkPodCycle measures how long a pod of no gang is kept by gangs that
// wait: from the call of NextEntity, with a pod ready and another just deleted,
// until the pod is assumed on a node. Meanwhile reports are made and clocks
// looked at as in the scheduler. Each iteration is a round of pods behind 10,000
// gangs (50,000 where the queue is deep) and as many behind none, in short turns;
// x-p99 is the ratio of the two 99th percentiles, the least, middle and most of all
// rounds.
func BenchmarkPodCycle(b *testing.B) {
	for _, bench := range []struct {
		name string
		// gangs wait; 0 is 10,000.
		gangs int
		// distinct: no two gangs are alike; else there are 36 shapes.
		distinct bool
		// quota is that of each queue.
		quota int64
		// cpu per pod; more than any node has is a reason that is no lack of GPUs.
		cpu, gpus int64
		// node names a label that no node has, in an affinity.
		node string
	}{
		{name: "wait-for-quota/36-shapes", quota: 0, cpu: 1, gpus: 8},
		{name: "wait-for-GPUs/36-shapes", quota: 1e6, cpu: 1, gpus: 8},
		{name: "wait-for-CPUs/36-shapes", quota: 1e6, cpu: 101, gpus: 1},
		{name: "wait-for-other-nodes/36-shapes", quota: 1e6, cpu: 1, gpus: 1, node: "infiniband"},
		{name: "wait-for-quota/deep", gangs: 50000, quota: 0, cpu: 1, gpus: 8},
		{name: "wait-for-GPUs/deep", gangs: 50000, quota: 1e6, cpu: 1, gpus: 8},
		{name: "wait-for-CPUs/deep", gangs: 50000, quota: 1e6, cpu: 101, gpus: 1},
		{name: "wait-for-quota/all-distinct", distinct: true, quota: 0, cpu: 1, gpus: 8},
		{name: "wait-for-GPUs/all-distinct", distinct: true, quota: 1e6, cpu: 1, gpus: 8},
		{name: "wait-for-CPUs/all-distinct", distinct: true, quota: 1e6, cpu: 101, gpus: 1},
		{name: "wait-for-other-nodes/all-distinct", distinct: true, quota: 1e6, cpu: 1, gpus: 1, node: "infiniband"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			empty, full := newCycleBench(ctx, b, bench.quota), newCycleBench(ctx, b, bench.quota)
			gangs := bench.gangs
			if gangs == 0 {
				gangs = 10000
			}
			for i := range gangs {
				j := job(fmt.Sprintf("gang-%d", i), set("node", 0, int32(1+i%18), bench.gpus-bench.gpus/2*int64(i/18%2)))
				milli := bench.cpu * 1000
				if bench.distinct {
					milli += int64(i)
				}
				requests := j.PodSets[0].Template.Spec.Containers[0].Resources.Requests
				requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
				if bench.node != "" {
					j.PodSets[0].Template.Spec.Affinity = needsLabel(bench.node)
				}
				j.Queue = fmt.Sprintf("queue-%d", i%benchQueues)
				j.Created = epoch0.Add(time.Duration(i) * time.Second)
				full.submit(j, int32(i%3))
			}
			if admitted := full.pass(); len(admitted) > 0 {
				b.Fatalf("%d gangs are admitted", len(admitted))
			}
			for _, c := range []*cycleBench{empty, full} {
				go c.others(ctx)
				c.cycles(500)
			}
			var ratios, middles, p99 []float64
			for b.Loop() {
				var with, without []time.Duration
				for range benchCycles / benchTurn {
					without = append(without, empty.cycles(benchTurn)...)
					with = append(with, full.cycles(benchTurn)...)
				}
				ratios = append(ratios, float64(percentile(with, 99))/float64(percentile(without, 99)))
				middles = append(middles, float64(percentile(with, 50))/float64(percentile(without, 50)))
				p99 = append(p99, float64(percentile(with, 99))/1e3)
			}
			slices.Sort(ratios)
			slices.Sort(middles)
			slices.Sort(p99)
			b.ReportMetric(ratios[0], "x-p99-min")
			b.ReportMetric(ratios[len(ratios)/2], "x-p99-median")
			b.ReportMetric(ratios[len(ratios)-1], "x-p99-max")
			b.ReportMetric(middles[len(middles)/2], "x-p50-median")
			b.ReportMetric(p99[len(p99)/2], "us-p99")
		})
	}
}

// cycleBench is a stage whose scheduler is given pods by the benchmark.
type cycleBench struct {
	*stage
	b *testing.B
	// ready has room for the pod that NextEntity will ask for.
	ready chan framework.QueuedEntityInfo
	born  int
	there []*corev1.Pod
}

// newCycleBench has nodes with two of eight GPUs free, and pods on them that
// will be deleted one after the other, half of them with a GPU.
func newCycleBench(ctx context.Context, b *testing.B, quotaGPUs int64) *cycleBench {
	c := &cycleBench{b: b, ready: make(chan framework.QueuedEntityInfo, 1)}
	c.stage = newStageOn(ctx, b, clock.RealClock{}, func(klog.Logger) (framework.QueuedEntityInfo, error) {
		select {
		case e := <-c.ready:
			return e, nil
		case <-ctx.Done():
			return nil, nil
		}
	})
	for i := range benchQueues {
		c.queue(fmt.Sprintf("queue-%d", i), false, []string{"gpu"}, quotaGPUs)
	}
	if quotaGPUs == 0 {
		// The quota is there, and in use.
		for i := range benchQueues {
			name := fmt.Sprintf("queue-%d", i)
			c.queue(name, false, []string{"gpu"}, 1000)
			c.UpdateQuota(func(t *quota.Tree) {
				t.Charge(types.UID(name), name, quota.Usage{{Flavor: "gpu", Resource: gpuResource}: 1000}, quota.Holder{})
			})
		}
	}
	for i := range benchNodes {
		name := fmt.Sprintf("node-%d", i)
		c.watched.AddNode(c.logger, flavored(name, "gpu", 8))
		c.add(plainPod("busy-"+name, name, 5))
		c.there = append(c.there, c.add(plainPod("first-"+name, name, int64(i%2))))
	}
	c.effects = benchEffects{c.wishes, c.cycle.Wake}
	c.Restored()
	return c
}

// benchEffects wakes the Cycle as in the scheduler.
type benchEffects struct {
	*wishes
	wake func()
}

func (e benchEffects) Admit() { e.wake() }

// others is what else takes the Ledger's lock, as often as in the scheduler.
func (c *cycleBench) others(ctx context.Context) {
	report, tick := time.NewTicker(reportEvery), time.NewTicker(time.Second)
	defer report.Stop()
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-report.C:
			c.picture(time.Now())
		case <-tick.C:
			c.expire(time.Hour)
		}
	}
}

func (c *cycleBench) add(p *corev1.Pod) *corev1.Pod {
	if err := c.watched.AddPod(c.logger, p); err != nil {
		c.b.Fatalf("adding %s: %v", p.Name, err)
	}
	return p
}

// cycles deletes a pod and schedules another, n times, and returns how long
// each took.
func (c *cycleBench) cycles(n int) []time.Duration {
	var out []time.Duration
	sched := c.cycle.sched
	fw := sched.Profiles[corev1.DefaultSchedulerName]
	for range n {
		c.born++
		pod := plainPod(fmt.Sprintf("pod-%d", c.born), "", int64(c.born%2))
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			c.b.Fatal(err)
		}
		c.ready <- &framework.QueuedPodInfo{PodInfo: info}
		if err := c.watched.RemovePod(c.logger, c.there[0]); err != nil {
			c.b.Fatal(err)
		}
		c.there = c.there[1:]

		start := time.Now()
		if _, err := sched.NextEntity(c.logger); err != nil {
			c.b.Fatal(err)
		}
		if err := c.cycle.refresh(c.ctx); err != nil {
			c.b.Fatal(err)
		}
		result, err := sched.SchedulePod(c.ctx, fw, framework.NewCycleState(), &framework.QueuedPodInfo{PodInfo: info})
		if err != nil {
			c.b.Fatal(err)
		}
		bound := onNode(pod, result.SuggestedHost)
		if err := c.watched.AssumePod(c.logger, bound); err != nil {
			c.b.Fatal(err)
		}
		out = append(out, time.Since(start))
		c.there = append(c.there, c.add(bound))
	}
	return out
}

func needsLabel(key string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpExists}}}},
	}}}
}

// percentile is the duration that p percent do not exceed.
func percentile(of []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[(len(sorted)-1)*p/100]
}
