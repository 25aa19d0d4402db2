package scheduling

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// Ten thousand jobs of a queue that does not exist are in nobody's way, and are
// admitted in their order once it does.
func TestJobsOfAQueueThatDoesNotExist(t *testing.T) {
	const jobs, room = 10000, 64
	for name, distinct := range map[string]bool{"all alike": false, "no two alike": true} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t.Context(), t)
			s.queue("real", false, []string{"gpu"}, 1000)
			for i := range room/8 + 1 {
				s.watched.AddNode(s.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", 8))
			}
			s.Restored()
			took := func(what string, do func()) {
				started := time.Now()
				do()
				t.Logf("%s: %s", what, time.Since(started).Round(100*time.Microsecond))
			}
			live := func() uint64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			var all []*workload.Job
			for i := range jobs {
				j := one(fmt.Sprintf("job-%05d", i), 1, in("nowhere"), func(j *workload.Job) { j.Created = epoch0.Add(time.Duration(i) * time.Second) })
				if distinct {
					j.PodSets[0].Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(i+1), resource.DecimalSI)
				}
				all = append(all, j)
			}
			// The last to come is the first of all.
			order := slices.Clone(all)
			slices.Reverse(order)
			before := live()
			took("reading the jobs", func() {
				for _, j := range order {
					s.submit(j, 0)
				}
			})
			took("the first pass", func() {
				if got := s.pass(); len(got) > 0 {
					t.Fatalf("%q were admitted", got)
				}
			})
			t.Logf("memory: %d bytes a job", (live()-before)/jobs)
			if why := s.whyPending(s.entry(all[0]), s.clock.Now(), 1); why == nil || why.Class != reason.QueueNotFound {
				t.Errorf("they wait: %v", why)
			}
			took("a job of a real queue", func() {
				s.submit(one("real", 8, in("real")), 0)
				if diff := cmp.Diff([]string{"real"}, s.pass()); diff != "" {
					t.Fatalf("admitted (-want +got):\n%s", diff)
				}
			})
			took("its end", func() {
				s.ownerGone("real-uid")
				s.left("real-uid")
				s.pass()
			})
			took("another one", func() {
				s.submit(one("second", 8, in("real")), 0)
				if diff := cmp.Diff([]string{"second"}, s.pass()); diff != "" {
					t.Fatalf("admitted (-want +got):\n%s", diff)
				}
			})
			reports := 0
			took("telling all of them", func() {
				for more := true; more; reports++ {
					var c counts
					_, c = s.picture(s.clock.Now())
					more = c.more
				}
			})
			t.Logf("in %d reports", reports)
			took("a change of another queue", func() {
				s.queue("third", false, []string{"gpu"}, 8)
				s.pass()
			})
			var got []string
			took("their queue", func() {
				s.queue("nowhere", false, []string{"gpu"}, room)
				got = s.pass()
			})
			var want []string
			for _, j := range all[:room] {
				want = append(want, j.Owner.Name)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("admitted (-want +got):\n%s", diff)
			}
			if errs := s.waitlistErrors(); len(errs) > 0 {
				t.Errorf("the waitlist: %q", errs)
			}
		})
	}
}
