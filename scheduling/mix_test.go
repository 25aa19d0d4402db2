package scheduling

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// What jobs ask for decides where pods do the least harm.
func TestPlannerSeesWhatJobsAskFor(t *testing.T) {
	for _, test := range []struct {
		name string
		job  func(s *stage)
		// want is by how much the fragment of an empty node of 8 GPUs grows with a
		// pod of one GPU, in millionths of a GPU.
		want int64
	}{
		{"no job: nothing is lost", func(*stage) {}, 0},
		{"pods of 8 GPUs of an admitted job could not use the other 7", func(s *stage) {
			s.submit(one("a", 8, in("q")), 0)
			s.pass()
		}, 7e6},
		{"pods of a job that waits for a node could use none anyway", func(s *stage) {
			s.submit(one("a", 16, in("q")), 0)
			for range 3 {
				s.pass()
			}
		}, -1e6},
		{"a job that waits for quota is not seen", func(s *stage) {
			s.submit(one("a", 500, in("q")), 0)
			s.pass()
		}, 0},
		{"pods of a job that was taken over", func(s *stage) {
			j := one("a", 4, in("q"))
			wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), func(wl *kueue.Workload) {
				wl.Status.Admission = &kueue.Admission{ClusterQueue: "q", PodSetAssignments: []kueue.PodSetAssignment{{
					Name: "node", Count: new(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpuResource: "gpu"},
				}}}
			})
			s.Ledger.restore(running(j), wl, nil)
		}, 3e6},
		{"pods of another flavor could not use the node", func(s *stage) {
			s.submit(one("a", 1, in("other")), 0)
			s.pass()
		}, -1e6},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t.Context(), t)
			s.queue("q", false, []string{"gpu"}, 100)
			s.queue("other", false, []string{"others"}, 100)
			s.watched.AddNode(s.logger, flavored("node-0", "gpu", 8))
			s.watched.AddNode(s.logger, flavored("node-1", "gpu", 8))
			s.watched.AddNode(s.logger, flavored("node-2", "others", 8))
			s.Restored()
			test.job(s)
			if err := s.cycle.refresh(s.ctx); err != nil {
				t.Fatal(err)
			}
			snap, err := s.cycle.snapshot()
			if err != nil {
				t.Fatal(err)
			}
			empty, err := snap.Get("node-1")
			if err != nil {
				t.Fatal(err)
			}
			fit, err := s.cycle.planner.Mix().Fit(plainPod("pod", "", 1))
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := fit.On(empty); got.Growth != test.want {
				t.Errorf("the fragment grows by %d, want %d", got.Growth, test.want)
			}
		})
	}
}
