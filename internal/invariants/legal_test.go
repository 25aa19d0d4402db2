package invariants

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// running is a cluster of two 8-GPU nodes and a queue, with a job of two 4-GPU
// pods that runs on a node each.
func running(s *story) {
	s.node("a", 8)
	s.node("b", 8)
	s.queue("q", 16)
	s.job("job", set{name: "node", pods: 2, gpus: 4})
	s.admit("job", nodes("a", "b"))
	s.pod("p0", "job", "node", 4)
	s.pod("p1", "job", "node", 4)
	s.bind("p0", "a")
	s.bind("p1", "b")
}

// half is a job of two pods, admitted onto one node, of which one is bound.
func half(s *story) {
	s.node("a", 8)
	s.queue("q", 16)
	s.job("job", set{name: "node", pods: 2, gpus: 4})
	s.admit("job", nodes("a", "a"))
	s.pod("p0", "job", "node", 4)
	s.pod("p1", "job", "node", 4)
	s.bind("p0", "a")
}

func nodes(names ...string) []string { return names }

// TestWhatMayHappen tells what looks like a violation and is none.
func TestWhatMayHappen(t *testing.T) {
	for _, tc := range []struct {
		name string
		tell func(*story)
	}{
		{"a job is admitted, runs and finishes", func(s *story) {
			running(s)
			s.end("p0", corev1.PodSucceeded)
			s.end("p1", corev1.PodSucceeded)
			s.finish("job")
			s.wait(time.Hour)
		}},
		{"the Workload is finished a moment after the last pod, and the next job takes the room while the pods are still listed", func(s *story) {
			running(s)
			s.job("next", set{name: "node", pods: 2, gpus: 8})
			s.end("p0", corev1.PodSucceeded)
			s.end("p1", corev1.PodFailed)
			s.finish("job")
			s.admit("next", nodes("a", "b"))
			s.pod("n0", "next", "node", 8)
			s.pod("n1", "next", "node", 8)
			s.bind("n1", "b")
			s.bind("n0", "a")
		}},
		{"a dead node keeps a pod of a job that is stopped, and the rest of its room goes to another job", func(s *story) {
			running(s)
			s.evict("job", kueue.WorkloadEvictedByPodsReadyTimeout, "a pod has been gone for too long")
			s.stop("p0")
			remove[*corev1.Pod](s, "p1")
			change(s, "job", func(wl *kueue.Workload) {
				wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "node", Count: 1}}
			})
			s.job("next", set{name: "node", pods: 1, gpus: 8})
			s.admit("next", nodes("b"))
			s.pod("n0", "next", "node", 8)
			s.bind("n0", "b")
		}},
		{"a pod fails, and its replacement is bound to the same slot while the failed one is still listed", func(s *story) {
			running(s)
			s.end("p0", corev1.PodFailed)
			s.pod("p0-again", "job", "node", 4)
			s.bind("p0-again", "a")
		}},
		{"a pod is deleted, and its replacement is bound beside it while it terminates and there is room for both", func(s *story) {
			running(s)
			s.stop("p0")
			s.pod("p0-again", "job", "node", 4)
			s.bind("p0-again", "a")
			remove[*corev1.Pod](s, "p0")
			s.wait(time.Hour)
		}},
		{"pods of another job take the room of slots whose pods have succeeded", func(s *story) {
			running(s)
			s.end("p0", corev1.PodSucceeded)
			s.end("p1", corev1.PodFailed)
			s.touch("job")
			s.quota("q", 64)
			s.job("next", set{name: "node", pods: 1, gpus: 8})
			s.admit("next", nodes("a"))
			remove[*corev1.Pod](s, "p0")
			s.pod("n0", "next", "node", 8)
			s.bind("n0", "a")
		}},
		{"a Workload is evicted, leaves, and is admitted again elsewhere", func(s *story) {
			running(s)
			s.evict("job", kueue.WorkloadEvictedByPodsReadyTimeout, "too late")
			s.stop("p0")
			s.stop("p1")
			remove[*corev1.Pod](s, "p0")
			s.end("p1", corev1.PodFailed)
			s.requeue("job")
			s.wait(time.Hour)
			s.admit("job", nodes("b", "b"))
			s.pod("again-0", "job", "node", 4)
			s.pod("again-1", "job", "node", 4)
			s.bind("again-0", "b")
			s.bind("again-1", "b")
			s.wait(time.Hour)
		}},
		{"a TrainJob's JobSet is made anew while the old one's pods terminate", func(s *story) {
			s.node("a", 16)
			s.queue("q", 16)
			s.trainJob("tj", set{name: "node", pods: 1, gpus: 8})
			s.admit("tj", nodes("a"))
			s.pod("old", "tj", "node", 8)
			s.bind("old", "a")
			owner := s.objects["*unstructured.Unstructured tj"].(*unstructured.Unstructured)
			remove[*jobset.JobSet](s, "tj")
			s.stop("old")
			s.add(&jobset.JobSet{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: "tj", UID: "second", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())},
			}})
			s.pod("new", "tj", "node", 8)
			s.bind("new", "a")
		}},
		{"the garbage collector deletes the Workload of a deleted job while a bind is on its way", func(s *story) {
			running(s)
			s.end("p1", corev1.PodFailed)
			s.pod("p1-again", "job", "node", 4)
			remove[*jobset.JobSet](s, "job")
			remove[*kueue.Workload](s, "job")
			s.bind("p1-again", "b")
		}},
		{"a deleted job's Workload is left behind, and the next job takes its quota and nodes", func(s *story) {
			running(s)
			remove[*jobset.JobSet](s, "job")
			remove[*corev1.Pod](s, "p0")
			remove[*corev1.Pod](s, "p1")
			s.job("next", set{name: "node", pods: 2, gpus: 8})
			s.admit("next", nodes("a", "b"))
		}},
		{"later phases start when earlier ones are complete", func(s *story) {
			s.node("a", 8)
			s.queue("q", 16)
			s.job("job", set{name: "init", pods: 1}, set{name: "node", pods: 2, gpus: 4, after: "init"})
			s.admit("job", nodes("a"), nodes("a", "a"))
			s.pod("i", "job", "init", 0)
			s.bind("i", "a")
			s.wait(time.Hour)
			s.end("i", corev1.PodSucceeded)
			s.pod("p0", "job", "node", 4)
			s.pod("p1", "job", "node", 4)
			s.bind("p0", "a")
			s.bind("p1", "a")
			s.wait(time.Hour)
		}},
		{"a pod fails before the last of its start group is bound", func(s *story) {
			half(s)
			s.end("p0", corev1.PodFailed)
			s.bind("p1", "a")
			s.wait(time.Hour)
		}},
		{"a gang of which half is bound is evicted, and its pod takes long to end", func(s *story) {
			half(s)
			s.evict("job", kueue.WorkloadEvictedByPodsReadyTimeout, "too late")
			s.stop("p0")
			s.wait(time.Hour)
		}},
		{"a gang of which half is bound is deleted, and its pod takes long to end", func(s *story) {
			half(s)
			remove[*jobset.JobSet](s, "job")
			s.stop("p0")
			s.wait(time.Hour)
		}},
		{"a queue borrows what another one lends", func(s *story) {
			s.node("a", 8)
			s.queue("q", 4)
			s.queue("other", 8)
			s.inCohort("q", "all", borrows(4))
			s.inCohort("other", "all", lends(4))
			s.wait(time.Minute)
			s.job("job", set{name: "node", pods: 1, gpus: 8})
			s.admit("job", nodes("a"))
		}},
		{"a queue that borrows is moved to another cohort", func(s *story) {
			s.node("a", 8)
			s.queue("q", 4)
			s.queue("other", 8)
			s.inCohort("q", "all")
			s.inCohort("other", "all")
			s.job("job", set{name: "node", pods: 1, gpus: 8})
			s.admit("job", nodes("a"))
			s.inCohort("q", "elsewhere")
			s.wait(time.Hour)
			s.touch("job")
		}},
		{"an admin lowers a quota under what is in use", func(s *story) {
			running(s)
			s.quota("q", 4)
			s.wait(time.Hour)
			s.touch("job")
			remove[*kueue.ClusterQueue](s, "q")
		}},
		{"an admission that was decided before the quota was lowered twice arrives after it", func(s *story) {
			s.node("a", 8)
			s.queue("q", 8)
			s.job("job", set{name: "node", pods: 1, gpus: 8})
			s.quota("q", 4)
			s.quota("q", 2)
			s.admit("job", nodes("a"))
		}},
		{"a node loses GPUs under its pods, and vanishes", func(s *story) {
			running(s)
			s.capacity("a", 2)
			s.wait(time.Hour)
			s.end("p0", corev1.PodFailed)
			s.pod("p0-again", "job", "node", 4)
			s.bind("p0-again", "a")
			remove[*corev1.Node](s, "a")
			remove[*corev1.Pod](s, "p0")
		}},
		{"a Workload is admitted on a node that loses GPUs at that moment", func(s *story) {
			s.node("a", 8)
			s.queue("q", 8)
			s.job("job", set{name: "node", pods: 1, gpus: 8})
			s.capacity("a", 6)
			s.admit("job", nodes("a"))
		}},
		{"the slot of a lost pod moves to another node", func(s *story) {
			running(s)
			remove[*corev1.Node](s, "a")
			remove[*corev1.Pod](s, "p0")
			s.admit("job", nodes("b", "b"))
			s.pod("p0-again", "job", "node", 4)
			s.bind("p0-again", "b")
		}},
		{"pods of no queue are bound without a Workload", func(s *story) {
			s.node("a", 8)
			s.add(plain("alone", 8))
			s.bind("alone", "a")
			s.job("job", set{name: "node", pods: 1})
			change(s, "job", func(js *jobset.JobSet) { js.Labels = nil })
			s.pod("free", "job", "node", 0)
			s.bind("free", "a")
		}},
		{"pods of a job that another controller manages are bound without a Workload", func(s *story) {
			s.node("a", 8)
			s.job("job", set{name: "node", pods: 1})
			change(s, "job", func(js *jobset.JobSet) { js.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") })
			s.pod("free", "job", "node", 0)
			s.bind("free", "a")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStory(Options{})
			tc.tell(s)
			for _, v := range s.checker.Violations() {
				t.Error(v)
			}
			if foreign := s.checker.Foreign(); len(foreign) > 0 {
				t.Errorf("others are blamed: %q", foreign)
			}
		})
	}
}

func TestWhatOthersDoIsNoViolation(t *testing.T) {
	for _, tc := range []struct {
		// want is what is said of others; empty for nothing.
		name, want string
		tell       func(*story)
	}{
		{"a pod is created on a full node", "Pod team/fat was bound, and Node a has 9 of 8", func(s *story) {
			running(s)
			fat := plain("fat", 5)
			fat.Spec.NodeName = "a"
			s.add(fat)
		}},
		{"another scheduler binds a pod onto a held slot just before Muster does", "12 of 8", func(s *story) {
			running(s)
			s.end("p0", corev1.PodFailed)
			s.pod("p0-again", "job", "node", 4)
			s.foreign("fat", "a", 8)
			s.bind("p0-again", "a")
		}},
		{"another scheduler binds a pod just before a Workload is admitted there", "", func(s *story) {
			s.node("a", 8)
			s.queue("q", 8)
			s.job("job", set{name: "node", pods: 1, gpus: 8})
			s.foreign("fat", "a", 8)
			s.admit("job", nodes("a"))
		}},
		{"someone binds a pod beside its slot, and the slot's room is given to another job", "was bound to node b by someone else", func(s *story) {
			s.node("a", 8)
			s.node("b", 8)
			s.queue("q", 16)
			s.job("job", set{name: "node", pods: 1, gpus: 8})
			s.admit("job", nodes("a"))
			s.pod("p", "job", "node", 8)
			change(s, "p", func(p *corev1.Pod) { p.Spec.SchedulerName, p.Spec.NodeName = "other", "b" })
			s.job("next", set{name: "node", pods: 1, gpus: 8})
			s.admit("next", nodes("a"))
		}},
		{"someone binds a pod of a job that is just leaving", "Pod team/p of queued JobSet team/job was bound to node a by someone else", func(s *story) {
			running(s)
			s.evict("job", kueue.WorkloadDeactivated, "spec.active is false")
			s.end("p0", corev1.PodFailed)
			s.end("p1", corev1.PodFailed)
			s.pod("p", "job", "node", 4)
			change(s, "p", func(p *corev1.Pod) { p.Spec.SchedulerName, p.Spec.NodeName = "other", "a" })
			s.requeue("job")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStory(Options{})
			tc.tell(s)
			for _, v := range s.checker.Violations() {
				t.Error(v)
			}
			got := s.checker.Foreign()
			if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)) {
				t.Errorf("others did %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWhatWasSoAtTheStartIsNotJudged(t *testing.T) {
	s := newStory(Options{After: "7"})
	s.node("a", 8)
	s.queue("q", 4)
	s.job("job", set{name: "node", pods: 2, gpus: 8})
	s.pod("p0", "job", "node", 8)
	s.bind("p0", "a")
	s.admit("job", nodes("a", "a"))
	s.wait(time.Hour)
	if s.version != 7 || len(s.checker.Violations()) > 0 {
		t.Fatalf("at version %d: %v", s.version, s.checker.Violations())
	}
	// What comes next is judged.
	s.add(plain("more", 1))
	s.bind("more", "a")
	if got := s.checker.Violations(); len(got) != 1 || got[0].Invariant != nodesKept {
		t.Errorf("violations are %v", got)
	}
}
