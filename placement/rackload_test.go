package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/placement/topology"
)

// rackLoad is gangs of 4 to 128 pods of a whole node each that come one after the
// other to 512 nodes in 16 racks of 4 blocks, of which others have 30 %. Where there
// is no place for one, those that came first leave.
type rackLoad struct {
	*cluster
	rand *rand.Rand
	jobs [][]*v1.Pod
	// placing is how long the plans took that found a place, refusing the others.
	placing, refusing time.Duration
	placed, refused   int
}

func newRackLoad(tb testing.TB, seed uint64) *rackLoad {
	tb.Helper()
	l := &rackLoad{rand: rand.New(rand.NewPCG(seed, 1))}
	nodes := makeNodes(512, 8)
	var running []*v1.Pod
	for i, n := range nodes {
		n.Labels["block"], n.Labels["rack"] = fmt.Sprint(i/128), fmt.Sprint(i/32)
		if l.rand.IntN(10) < 3 {
			running = append(running, makePod("other-"+n.Name, 8, on(n.Name)))
		}
	}
	l.cluster = newCluster(tb, nodes, running...)
	return l
}

// run has as many gangs come. asks says what one of so many pods asks for, and heard
// is told how close they are.
func (l *rackLoad) run(tb testing.TB, gangs int, asks func(pods int) *Topology, heard func(pods int, q topology.Quality)) {
	tb.Helper()
	for n := range gangs {
		count := []int{4, 4, 4, 4, 4, 4, 8, 8, 8, 32, 32, 128}[l.rand.IntN(12)]
		name := fmt.Sprint("job-", n)
		gang := Gang{Name: name, UID: types.UID(name), Classes: []Class{close(class(makePod(name, 8), count), asks(count))}}
		gang.Placed = func(_ *Topology, q topology.Quality) { heard(count, q) }
		for {
			start := time.Now()
			plan, why, err := l.planner.Plan(l.ctx, l.fw, l.snap, gang)
			took := time.Since(start)
			if err != nil {
				tb.Fatal(err)
			}
			if plan != nil {
				l.placing += took
				l.hold(tb, name, plan[0])
				break
			}
			l.refusing += took
			l.refused++
			if len(l.jobs) == 0 {
				tb.Fatalf("a gang of %d has no place where no other is: %s", count, why)
			}
			l.leave(tb)
		}
		l.placed++
	}
}

func (l *rackLoad) hold(tb testing.TB, name string, nodes []string) {
	tb.Helper()
	var pods []*v1.Pod
	for i, node := range nodes {
		pod := makePod(fmt.Sprintf("%s-%d", name, i), 8, on(node))
		pod.UID = types.UID(pod.Name)
		if err := l.sched.Cache.AddPod(klog.FromContext(l.ctx), pod); err != nil {
			tb.Fatal(err)
		}
		pods = append(pods, pod)
	}
	l.jobs = append(l.jobs, pods)
	l.refresh(tb)
}

// leave takes away the gang that came first.
func (l *rackLoad) leave(tb testing.TB) {
	tb.Helper()
	for _, pod := range l.jobs[0] {
		if err := l.sched.Cache.RemovePod(klog.FromContext(l.ctx), pod); err != nil {
			tb.Fatal(err)
		}
	}
	l.jobs = l.jobs[1:]
	l.refresh(tb)
}

func (l *rackLoad) refresh(tb testing.TB) {
	tb.Helper()
	if err := l.sched.Cache.UpdateSnapshot(klog.FromContext(l.ctx), l.snap); err != nil {
		tb.Fatal(err)
	}
}

// closest is what the gangs ask for: a rack for those that one can hold, and a block
// for the others, as far as there is one.
func closest(pods int) *Topology {
	if pods <= 8 {
		return requiring("rack")
	}
	return preferring("block")
}

// rackWishes are what a load asks for: that which suits each gang, or as few racks as can be.
var rackWishes = map[string]func(pods int) *Topology{
	"closest":        closest,
	"preferred-rack": func(int) *Topology { return preferring("rack") },
}

// TestGangsAreInNoMoreDomainsThanNeeded: in 99 of 100 placings a gang is in the
// fewest domains that had room for it.
func TestGangsAreInNoMoreDomainsThanNeeded(t *testing.T) {
	for name, asks := range rackWishes {
		t.Run(name, func(t *testing.T) {
			placed, more, all := map[int]int{}, map[int]int{}, 0
			for seed := range uint64(3) {
				newRackLoad(t, seed).run(t, 100, asks, func(pods int, q topology.Quality) {
					placed[pods]++
					if q.Domains > q.Fewest {
						more[pods]++
						all++
					}
				})
			}
			t.Logf("placed by pods: %v; in more domains than needed: %v", placed, more)
			if all*100 > 300 {
				t.Errorf("%d of 300 gangs are in more domains than needed: %v", all, more)
			}
		})
	}
}

// BenchmarkRackLoad says how much longer it takes to plan a load that asks to be
// close than one that asks for nothing.
func BenchmarkRackLoad(b *testing.B) {
	for name, asks := range rackWishes {
		b.Run(name, func(b *testing.B) {
			var close, loose rackLoad
			for seed := uint64(0); b.Loop(); seed++ {
				b.StopTimer()
				c, l := newRackLoad(b, seed), newRackLoad(b, seed)
				b.StartTimer()
				c.run(b, 100, asks, func(int, topology.Quality) {})
				l.run(b, 100, func(int) *Topology { return nil }, nil)
				close.add(c)
				loose.add(l)
			}
			b.ReportMetric(float64(close.placing.Nanoseconds())/float64(close.placed), "ns/placed")
			b.ReportMetric(float64(close.placing)/float64(loose.placing), "x-placed")
			b.ReportMetric(float64(close.placing+close.refusing)/float64(loose.placing+loose.refusing), "x-all")
			b.ReportMetric(float64(close.refused)/float64(loose.refused), "x-refusals")
		})
	}
}

func (l *rackLoad) add(o *rackLoad) {
	l.placing, l.refusing = l.placing+o.placing, l.refusing+o.refusing
	l.placed, l.refused = l.placed+o.placed, l.refused+o.refused
}
