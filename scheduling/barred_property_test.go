package scheduling

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
)

// TestWhoIsPassedOverWouldHaveChangedNothing lets the same happen to two
// schedulers whose queues borrow from each other over two levels of cohorts, and
// have nodes enough. Quota is released in the whole tree before each pass: one
// tries only those that are not barred, the other one knows of no Bar and tries
// all.
func TestWhoIsPassedOverWouldHaveChangedNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, end := newPair(t)
		defer end()
		queues := []string{"near", "nearer", "far", "farther"}
		inner := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "inner"}, Spec: kueue.CohortSpec{ParentName: "outer"}}
		p.both(func(s *stage) { s.UpdateQuota(func(t *quota.Tree) { t.SetCohort(inner) }) })
		for i, name := range queues {
			cq := inCohort(name, []string{"inner", "outer"}[i/2], rapid.Int64Range(0, 4).Draw(t, "nominal"), rapid.SampledFrom([]int64{-1, -1, 2, 4}).Draw(t, "borrowing"))
			cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = drawLimit(t, "lending")
			if rapid.IntRange(0, 7).Draw(t, "strategy") == 0 {
				strictFIFO(&cq.Spec)
			}
			p.both(func(s *stage) { s.set(cq, false) })
		}
		p.both(func(s *stage) { s.Restored() })
		for i := range 3 {
			p.setNode(flavored(fmt.Sprintf("node-%d", i), "gpu", 64))
		}
		submit := func(t *rapid.T) {
			j := job(p.name("job"), set("node", 0, int32(rapid.IntRange(1, 3).Draw(t, "count")), rapid.SampledFrom([]int64{1, 1, 2, 4}).Draw(t, "gpus")))
			j.Queue = rapid.SampledFrom(queues).Draw(t, "queue")
			j.Created = epoch0.Add(-time.Duration(rapid.IntRange(0, 5).Draw(t, "age")) * time.Minute)
			p.read(j, int32(rapid.IntRange(0, 1).Draw(t, "priority")))
		}
		for range 4 {
			for range rapid.IntRange(2, 6).Draw(t, "jobs") {
				submit(t)
			}
			for range rapid.IntRange(0, 2).Draw(t, "that end") {
				p.endJob(t)
			}
			for i, s := range p.twin {
				s.mu.Lock()
				for _, b := range s.waits.buckets {
					if i == 1 {
						b.bar = quota.Bar{}
					}
				}
				s.released("cohort/outer")
				s.mu.Unlock()
			}
			if errs := p.twin[0].waitlistErrors(); len(errs) > 0 {
				t.Fatalf("the waitlist: %s", strings.Join(errs, "; "))
			}
			got, want := p.twin[0].pass(), p.twin[1].pass()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("admitted (-all are tried +got):\n%s", diff)
			}
		}
	})
}
