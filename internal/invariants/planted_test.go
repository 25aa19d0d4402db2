package invariants

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// planted is a story with one violation in it.
type planted struct {
	name      string
	tell      func(*story)
	invariant string
	// summary and history must hold these, in order.
	summary, history []string
}

var plantedBinds = []planted{
	{"a pod is bound before its Workload is admitted", func(s *story) {
		s.node("a", 8)
		s.queue("q", 16)
		s.job("job", set{name: "node", pods: 1, gpus: 4})
		s.pod("p0", "job", "node", 4)
		s.bind("p0", "a")
		s.admit("job", nodes("a"))
	}, admittedFirst, []string{"Pod team/p0 was bound to node a", "Workload team/job is not admitted"},
		[]string{"JobSet team/job is there", "Workload team/job is not admitted", "Pod team/p0 is there", "Pod team/p0 is bound to a"}},
	{"a pod of a TrainJob is bound that has no Workload", func(s *story) {
		s.node("a", 8)
		s.trainJob("tj", set{name: "node", pods: 1, gpus: 4})
		clear(s.checker.byOwner)
		s.pod("p0", "tj", "node", 4)
		s.bind("p0", "a")
	}, admittedFirst, []string{"has no Workload"}, []string{"TrainJob team/tj is there, suspended", "p0 is bound"}},
	{"a pod is bound after its Workload has lost its admission", func(s *story) {
		running(s)
		s.evict("job", kueue.WorkloadDeactivated, "spec.active is false")
		s.end("p0", corev1.PodFailed)
		s.end("p1", corev1.PodFailed)
		s.requeue("job")
		s.pod("late", "job", "node", 4)
		s.bind("late", "a")
	}, admittedFirst, []string{"Pod team/late", "not admitted"}, []string{"is evicted (Deactivated)", "late is bound"}},
	{"a pod is bound long after its Workload was deleted", func(s *story) {
		running(s)
		remove[*kueue.Workload](s, "job")
		s.end("p0", corev1.PodFailed)
		s.pod("late", "job", "node", 4)
		s.wait(time.Minute)
		s.bind("late", "a")
	}, admittedFirst, []string{"was deleted"}, nil},
	{"a third pod is bound where two were admitted", func(s *story) {
		running(s)
		s.pod("p2", "job", "node", 4)
		s.bind("p2", "b")
	}, admittedFirst, []string{"it is number 3 of pod set node, of which Workload team/job has 2 slots"}, nil},
	{"a pod is bound to a node on which its Workload has no slot", func(s *story) {
		running(s)
		s.node("c", 8)
		s.end("p0", corev1.PodFailed)
		s.pod("p0-again", "job", "node", 4)
		s.bind("p0-again", "c")
		s.admit("job", nodes("c", "b"))
	}, admittedFirst, []string{"has 0 slots on that node"}, []string{"2 pods (1 on a.example, 1 on b.example)"}},
	{"a pod of a set that was not admitted is bound", func(s *story) {
		running(s)
		s.pod("l", "job", "launcher", 0)
		s.bind("l", "a")
	}, admittedFirst, []string{`admitted for node and not for its pod set "launcher"`}, nil},
	{"half of a gang is bound and the rest does not come", func(s *story) {
		s.node("a", 8)
		s.queue("q", 16)
		s.job("job", set{name: "launcher", pods: 1}, set{name: "node", pods: 2, gpus: 4})
		s.admit("job", nodes("a"), nodes("a", "a"))
		s.pod("p0", "job", "node", 4)
		s.pod("p1", "job", "node", 4)
		s.bind("p0", "a")
		s.touch("job")
		s.wait(60 * time.Second)
	}, startsTogether, []string{"Pod team/p0 was bound 1m1s ago", "only 0 of 1 launcher, 1 of 2 node are on nodes", "still admitted"}, []string{"p0 is bound"}},
	{"of a gang that is admitted again only half is bound, and a pod of the first time had succeeded", func(s *story) {
		running(s)
		s.end("p0", corev1.PodSucceeded)
		s.evict("job", kueue.WorkloadDeactivated, "spec.active is false")
		s.end("p1", corev1.PodFailed)
		remove[*corev1.Pod](s, "p1")
		s.requeue("job")
		s.admit("job", nodes("a", "b"))
		change(s, "job", func(wl *kueue.Workload) {
			condition(wl, kueue.WorkloadEvicted, metav1.ConditionFalse, "QuotaReserved", "")
		})
		s.pod("again", "job", "node", 4)
		s.bind("again", "b")
		s.wait(61 * time.Second)
	}, startsTogether, []string{"only 1 of 2 node are on nodes"}, nil},
	{"a queued pod that nobody owns is bound without an admission", func(s *story) {
		s.node("a", 8)
		alone := plain("alone", 4)
		alone.Labels = map[string]string{queueLabel: "q"}
		s.add(alone)
		s.bind("alone", "a")
	}, admittedFirst, []string{"Pod team/alone was bound to node a", "has no Workload"}, nil},
	{"a Workload is requeued while a pod of it is on a node", func(s *story) {
		running(s)
		s.evict("job", kueue.WorkloadDeactivated, "spec.active is false")
		s.stop("p1")
		s.end("p0", corev1.PodFailed)
		s.requeue("job")
	}, leavesWhole, []string{"not admitted", "still has Pod team/p1 on b"}, []string{"p1 is being deleted", "p0 has ended: Failed", "Workload team/job is not admitted"}},
	{"a Workload is finished while a pod of it is on a node", func(s *story) {
		running(s)
		s.end("p0", corev1.PodSucceeded)
		s.finish("job")
	}, leavesWhole, []string{"finished", "Pod team/p1 on b"}, nil},
}

var plantedCharges = []planted{
	{"two Workloads are admitted on quota for one", func(s *story) {
		s.node("a", 8)
		s.node("b", 8)
		s.queue("q", 12)
		s.job("one", set{name: "node", pods: 1, gpus: 8})
		s.job("two", set{name: "node", pods: 1, gpus: 8})
		s.admit("one", nodes("a"))
		s.admit("two", nodes("b"))
	}, quotaKept, []string{"16 of 12 nvidia.com/gpu of flavor h100 are charged to ClusterQueue q: Workload team/one 8, Workload team/two 8"},
		[]string{"ClusterQueue q has quota for 12", "Workload team/one is admitted", "Workload team/two is admitted"}},
	{"a Workload borrows more than its queue may", func(s *story) {
		s.node("a", 8)
		s.queue("q", 4)
		s.queue("other", 8)
		s.inCohort("q", "all", borrows(2))
		s.inCohort("other", "all")
		s.wait(time.Minute)
		s.job("job", set{name: "node", pods: 1, gpus: 8})
		s.admit("job", nodes("a"))
	}, quotaKept, []string{"8 of 6 nvidia.com/gpu of flavor h100 are charged to ClusterQueue q: Workload team/job 8"}, nil},
	{"a Workload borrows more than its cohort has", func(s *story) {
		s.node("a", 8)
		s.queue("q", 4)
		s.queue("other", 8)
		s.inCohort("q", "all")
		s.inCohort("other", "all", lends(3))
		s.wait(time.Minute)
		s.job("job", set{name: "node", pods: 1, gpus: 8})
		s.admit("job", nodes("a"))
	}, quotaKept, []string{"8 of 7 nvidia.com/gpu of flavor h100 are charged to Cohort all"}, nil},
	{"a Workload is admitted long after its quota was lowered", func(s *story) {
		s.node("a", 8)
		s.queue("q", 8)
		s.job("job", set{name: "node", pods: 1, gpus: 8})
		s.quota("q", 4)
		s.wait(time.Minute)
		s.admit("job", nodes("a"))
	}, quotaKept, []string{"8 of 4"}, []string{"quota for 8", "quota for 4"}},
	{"use above a lowered quota grows", func(s *story) {
		running(s)
		s.quota("q", 4)
		s.wait(time.Minute)
		s.job("more", set{name: "node", pods: 1, gpus: 1})
		s.admit("more", nodes("a"))
	}, quotaKept, []string{"9 of 4"}, nil},
	{"use above a lowered quota grows after it shrank", func(s *story) {
		running(s)
		s.job("small", set{name: "node", pods: 1, gpus: 1})
		s.admit("small", nodes("a"))
		s.quota("q", 4)
		s.wait(time.Minute)
		s.finish("small")
		s.job("again", set{name: "node", pods: 1, gpus: 1})
		s.admit("again", nodes("a"))
	}, quotaKept, []string{"9 of 4"}, nil},
	{"use above a lowered quota begins anew after the job that had it was deleted", func(s *story) {
		running(s)
		s.quota("q", 4)
		s.wait(time.Minute)
		remove[*jobset.JobSet](s, "job")
		remove[*corev1.Pod](s, "p0")
		remove[*corev1.Pod](s, "p1")
		s.job("next", set{name: "node", pods: 1, gpus: 8})
		s.admit("next", nodes("a"))
	}, quotaKept, []string{"8 of 4"}, nil},
	{"a Workload is admitted on the quota of a deleted job that is still on its nodes", func(s *story) {
		running(s)
		s.node("c", 16)
		remove[*jobset.JobSet](s, "job")
		s.stop("p0")
		s.job("next", set{name: "node", pods: 2, gpus: 8})
		s.admit("next", nodes("c", "c"))
	}, quotaKept, []string{"24 of 16"}, nil},
	{"a Workload is admitted by a ClusterQueue that does not exist", func(s *story) {
		s.node("a", 8)
		s.job("job", set{name: "node", pods: 1, gpus: 8})
		s.admit("job", nodes("a"))
	}, quotaKept, []string{"8 of 0"}, nil},
}

var plantedRoom = []planted{
	{"a pod of no queue is bound onto a full node", func(s *story) {
		running(s)
		s.add(plain("fat", 5))
		s.bind("fat", "a")
		// What comes later does not make it worse.
		s.add(plain("tiny", 0))
		s.bind("tiny", "a")
		s.end("p0", corev1.PodFailed)
		s.pod("p0-again", "job", "node", 4)
		s.bind("p0-again", "a")
	}, nodesKept, []string{"Pod team/fat was bound, and Node a has 9 of 8 nvidia.com/gpu taken: Pod team/fat 5, Pod team/p0 4"},
		[]string{"Node a has 8 nvidia.com/gpu", "p0 is bound to a", "fat is bound to a"}},
	{"a pod of no queue gets a device too many", func(s *story) {
		s.node("a", 0)
		change(s, "a", func(n *corev1.Node) { delete(n.Status.Allocatable, gpu) })
		s.devices("a", 2)
		s.add(plain("fits", 2))
		s.bind("fits", "a")
		s.add(plain("fat", 1))
		s.bind("fat", "a")
	}, nodesKept, []string{"Pod team/fat was bound, and Node a has 3 of 2 nvidia.com/gpu taken: Pod team/fat 1, Pod team/fits 2"}, nil},
	{"a pod is bound onto a slot that is held for another", func(s *story) {
		running(s)
		s.end("p0", corev1.PodFailed)
		s.add(plain("fat", 5))
		s.bind("fat", "a")
	}, nodesKept, []string{"9 of 8", "1 held for node of Workload team/job 4"}, nil},
	{"a job that has given up a part of its room goes on holding the rest", func(s *story) {
		running(s)
		remove[*corev1.Pod](s, "p0")
		remove[*corev1.Pod](s, "p1")
		change(s, "job", func(wl *kueue.Workload) {
			wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "node", Count: 1}}
		})
		s.job("next", set{name: "node", pods: 1, gpus: 8})
		s.admit("next", nodes("b"))
	}, nodesKept, []string{"12 of 8"}, nil},
	{"a Workload is admitted onto slots that are held for another", func(s *story) {
		s.node("a", 8)
		s.queue("q", 64)
		s.job("one", set{name: "node", pods: 1, gpus: 5})
		s.job("two", set{name: "node", pods: 1, gpus: 5})
		s.admit("one", nodes("a"))
		s.admit("two", nodes("a"))
	}, nodesKept, []string{"Workload team/two was admitted, and Node a has 10 of 8", "Workload team/one 5", "Workload team/two 5"}, nil},
	{"a slot moves to a node that is full", func(s *story) {
		running(s)
		s.add(plain("other", 4))
		s.bind("other", "b")
		remove[*corev1.Pod](s, "p0")
		s.admit("job", nodes("b", "b"))
	}, nodesKept, []string{"Node b has 12 of 8"}, nil},
	{"a Workload is admitted onto pods of an earlier one that terminate", func(s *story) {
		running(s)
		s.stop("p0")
		remove[*kueue.Workload](s, "job")
		s.job("next", set{name: "node", pods: 1, gpus: 5})
		s.admit("next", nodes("a"))
	}, nodesKept, []string{"Pod team/p0 4"}, nil},
	{"a pod is bound onto what others have filled long ago", func(s *story) {
		s.node("a", 8)
		s.foreign("half", "a", 4)
		s.wait(time.Minute)
		s.add(plain("whole", 8))
		s.bind("whole", "a")
	}, nodesKept, []string{"12 of 8"}, nil},
	{"a node that others had overfilled is overfilled anew", func(s *story) {
		s.node("a", 8)
		s.add(plain("first", 8))
		s.bind("first", "a")
		s.foreign("fat", "a", 4)
		s.wait(time.Minute)
		remove[*corev1.Pod](s, "fat")
		s.add(plain("second", 2))
		s.bind("second", "a")
	}, nodesKept, []string{"10 of 8"}, nil},
	{"a pod is bound to a node that does not exist", func(s *story) {
		s.add(plain("lost", 1))
		s.bind("lost", "nowhere")
	}, nodesKept, []string{"Node nowhere has 1 of 0"}, nil},
}

var plantedEvictions = []planted{
	{"an eviction has a reason of its own", func(s *story) {
		running(s)
		s.evict("job", "Whim", "because")
	}, evictionsSayWhy, []string{`"Whim"`}, nil},
	{"an eviction has no message", func(s *story) {
		running(s)
		s.evict("job", kueue.WorkloadDeactivated, "")
	}, evictionsSayWhy, []string{"without a message"}, nil},
	{"a preemption names nobody", func(s *story) {
		running(s)
		s.evict("job", kueue.WorkloadEvictedByPreemption, "to make room for job team/job itself")
	}, evictionsSayWhy, []string{"names no other Workload or job"}, nil},
	{"who a job was preempted for does not start", func(s *story) {
		preempted(s)
		s.wait(time.Minute)
		s.wait(2 * time.Second)
		s.wait(time.Hour)
	}, beneficiaryStarts, []string{"Workload team/victim was stopped for Workload team/winner", "1m2s after all of them had left"}, []string{"is evicted (Preempted)"}},
	{"the victim starts again instead of the other one", func(s *story) {
		preempted(s)
		s.admit("victim", nodes("a"))
		s.wait(61 * time.Second)
	}, beneficiaryStarts, []string{"Workload team/victim was stopped for Workload team/winner"}, nil},
}

// preempted has a job stopped for another one, and leave.
func preempted(s *story) {
	s.node("a", 8)
	s.queue("q", 8)
	s.job("victim", set{name: "node", pods: 1, gpus: 8})
	s.admit("victim", nodes("a"))
	s.job("winner", set{name: "node", pods: 1, gpus: 8})
	s.evict("victim", kueue.WorkloadEvictedByPreemption, "Preempted for team/winner")
	s.wait(time.Hour)
	s.requeue("victim")
}

func TestAJobThatOthersWerePreemptedForNeedNotStartIf(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(*story)
	}{
		{"it starts in time", func(s *story) { s.wait(30 * time.Second); s.admit("winner", nodes("a")) }},
		{"it is deleted", func(s *story) { remove[*kueue.Workload](s, "winner") }},
		{"it is deactivated", func(s *story) { change(s, "winner", func(wl *kueue.Workload) { wl.Spec.Active = new(false) }) }},
		{"it asks for something else", func(s *story) { change(s, "winner", func(wl *kueue.Workload) { wl.Generation++ }) }},
		{"the node has fewer GPUs", func(s *story) { s.capacity("a", 4) }},
		{"the node is cordoned", func(s *story) { change(s, "a", func(n *corev1.Node) { n.Spec.Unschedulable = true }) }},
		{"the quota is lowered", func(s *story) { s.quota("q", 4) }},
		{"others bind a pod", func(s *story) { s.foreign("intruder", "a", 1) }},
		{"one of higher priority starts", func(s *story) {
			s.job("first", set{name: "node", pods: 1, gpus: 8})
			change(s, "first", func(wl *kueue.Workload) { wl.Spec.Priority = new(int32(7)) })
			s.admit("first", nodes("a"))
		}},
		{"another victim takes its time", func(s *story) {
			s.job("slow", set{name: "node", pods: 1, gpus: 0})
			s.admit("slow", nodes("a"))
			s.evict("slow", kueue.WorkloadEvictedByPreemption, "Preempted for team/winner")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStory(Options{})
			preempted(s)
			tc.do(s)
			s.wait(time.Hour)
			for _, v := range s.checker.Violations() {
				t.Error(v)
			}
		})
	}
}

// TestWhatMustNotHappen sees each planted violation caught, once.
func TestWhatMustNotHappen(t *testing.T) {
	for _, group := range [][]planted{plantedBinds, plantedCharges, plantedRoom, plantedEvictions} {
		for _, tc := range group {
			t.Run(tc.name, func(t *testing.T) {
				s := newStory(Options{})
				tc.tell(s)
				found := s.checker.Violations()
				if len(found) != 1 {
					t.Fatalf("%d violations, want 1: %v", len(found), found)
				}
				v := found[0]
				if v.Invariant != tc.invariant {
					t.Errorf("broken is %q, want %q", v.Invariant, tc.invariant)
				}
				inOrder(t, v.Summary, tc.summary)
				inOrder(t, strings.Join(v.History, "\n"), tc.history)
				if t.Failed() {
					t.Log(v)
				}
			})
		}
	}
}

// inOrder fails the test unless text holds the parts one after the other.
func inOrder(t *testing.T, text string, parts []string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Errorf("%q is not, or not in this order, in %q", part, text)
			return
		}
		rest = after
	}
}

func TestAPreemptionMayNameItsBeneficiaryInAnyWay(t *testing.T) {
	for _, name := range []string{"team/winner", "team/jobset-winner,", "(UID: WORKLOAD, JobUID: x)", "(UID: x, JobUID: JOB)", `job "team/winner"`} {
		s := newStory(Options{})
		s.node("a", 8)
		s.queue("q", 8)
		s.job("victim", set{name: "node", pods: 1, gpus: 8})
		s.admit("victim", nodes("a"))
		s.job("winner", set{name: "node", pods: 1, gpus: 8})
		change(s, "winner", func(wl *kueue.Workload) { wl.Name = "jobset-winner" })
		uids := strings.NewReplacer("WORKLOAD", string(s.objects["*v1beta2.Workload winner"].GetUID()), "JOB", string(s.objects["*v1alpha2.JobSet winner"].GetUID()))
		s.evict("victim", kueue.WorkloadEvictedByPreemption, "Preempted for "+uids.Replace(name))
		for _, v := range s.checker.Violations() {
			t.Errorf("%s: %v", name, v)
		}
	}
}
