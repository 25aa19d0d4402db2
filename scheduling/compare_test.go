package scheduling

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// comparison is a job of two pods of one GPU on a stage of two nodes with 100
// CPUs each, of which the planner prefers node-0: it has just two GPUs.
func comparison(t *testing.T) (*stage, *workload.Job) {
	t.Helper()
	s := newStage(t.Context(), t)
	s.plain.AddNode(s.logger, flavored("node-0", "gpu", 2))
	s.plain.AddNode(s.logger, flavored("node-1", "gpu", 8))
	s.queue("main", false, []string{"gpu"}, 8)
	s.Restored()
	return s, job("a", set("node", 0, 2, 1))
}

// run admits the job and has it written.
func (s *stage) run(j *workload.Job) *workload.Job {
	s.t.Helper()
	s.submit(j, 0)
	if diff := cmp.Diff([]string{j.Owner.Name}, s.pass()); diff != "" {
		s.t.Fatalf("admitted (-want +got):\n%s", diff)
	}
	s.wrote(j)
	s.read(running(j), nil, nil)
	return running(j)
}

// wrote is the news that the newest admission of a job is in the API.
func (s *stage) wrote(j *workload.Job) {
	s.t.Helper()
	a, ok := s.admissionOf(j.Owner.UID)
	if !ok {
		s.t.Fatalf("there is nothing to write for %s", j.Owner.Name)
	}
	s.written(j.Owner.UID, a.replanned, s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j)), wrote, nil)
}

// thirsty is a pod with a sidecar that nobody has foreseen.
func thirsty(j *workload.Job, index int32, uid, cpus string) *corev1.Pod {
	p := pod(j, "node", index, uid)
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)},
	}})
	return p
}

// cpus are what the cache counts on a node.
func (s *scene) cpus(node string) int64 { return s.plain.Dump().Nodes[node].Requested.MilliCPU / 1000 }

func (s *stage) planned(j *workload.Job) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, set := range s.jobs[j.Owner.UID].sets {
		for _, sl := range set.slots {
			out = append(out, sl.node)
		}
	}
	return out
}

func TestPodsThatNeedMoreThanPlannedAreAllPlannedAnewBeforeOneIsLetIn(t *testing.T) {
	s, j := comparison(t)
	j = s.run(j)
	if diff := cmp.Diff([]string{"node-0", "node-0"}, s.planned(j)); diff != "" {
		t.Fatalf("planned (-want +got):\n%s", diff)
	}
	first, second := thirsty(j, 0, "first", "60"), thirsty(j, 1, "second", "60")
	s.Seen(first)
	s.Seen(second)
	shut := func(when string) {
		t.Helper()
		for _, p := range []*corev1.Pod{first, second} {
			if in, _ := s.MayEnter(p); in || s.wishes.woken[p.UID] > 0 {
				t.Errorf("%s pod %s is let in", when, p.Name)
			}
			s.Take(p)
			if node, _ := s.NodeFor(p); node != "" {
				t.Errorf("%s pod %s is sent to %s", when, p.Name, node)
			}
		}
	}
	shut("before the new plan")
	if got := s.taken("node-0"); got != 2 {
		t.Errorf("before the new plan %d GPUs are held, want 2", got)
	}
	s.pass()
	shut("before the write")
	nodes := s.planned(j)
	if len(nodes) != 2 || nodes[0] == nodes[1] {
		t.Fatalf("planned on %v; one node cannot take both", nodes)
	}
	if s.cpus("node-0") != 60 || s.cpus("node-1") != 60 {
		t.Errorf("held are %d and %d CPUs, want 60 and 60", s.cpus("node-0"), s.cpus("node-1"))
	}
	s.wrote(j)
	for _, p := range []*corev1.Pod{first, second} {
		s.take(p)
		if node, _ := s.NodeFor(p); node == "" {
			t.Errorf("pod %s has no node", p.Name)
		}
	}
	want := []string{"PodsDiffer: pods of set node are not what was planned: they request 60 more cpu (injected: proxy); they are planned anew"}
	if diff := cmp.Diff(want, s.wishes.notes["a"]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestWhatPodsTurnedOutToNeedIsHeldWhenTheyComeBack(t *testing.T) {
	s, j := comparison(t)
	j = s.run(j)
	first, second := thirsty(j, 0, "first", "40"), thirsty(j, 1, "second", "40")
	s.Seen(first)
	s.Seen(second)
	s.pass()
	s.wrote(j)
	bound := s.bindAll(first, second)
	node := bound[0].Spec.NodeName
	before := s.cpus(node)
	s.gone(bound[0])
	if got := s.cpus(node); got != before {
		t.Errorf("%d CPUs are held where %d were used", got, before)
	}
	notes := len(s.wishes.notes["a"])
	again := thirsty(j, 0, "again", "40")
	s.Seen(again)
	s.take(again)
	if len(s.wishes.notes["a"]) != notes {
		t.Errorf("a pod like those before it is planned anew: %v", s.wishes.notes["a"])
	}
}

func TestPodsThatWereThereBeforeTheirJobWasPlannedAreComparedToo(t *testing.T) {
	s, j := comparison(t)
	s.submit(j, 0)
	pods := []*corev1.Pod{thirsty(j, 0, "first", "60"), thirsty(j, 1, "second", "60")}
	for _, p := range pods {
		s.Seen(p)
	}
	s.pass()
	s.wrote(j)
	for _, p := range pods {
		if in, _ := s.MayEnter(p); in {
			t.Fatalf("pod %s is let in on %v", p.Name, s.planned(j))
		}
	}
	s.pass()
	s.wrote(j)
	for _, p := range pods {
		s.take(p)
	}
	if nodes := s.planned(j); nodes[0] == nodes[1] {
		t.Errorf("planned on %v; one node cannot take both", nodes)
	}
}

func TestAPodOfASetThatRunsIsPlannedAnewAlone(t *testing.T) {
	s, j := comparison(t)
	j = s.run(j)
	bound := s.bindAll(pod(j, "node", 0, "first"), pod(j, "node", 1, "second"))
	s.gone(bound[0])
	// node-0 has no room for it any more.
	filler := plainPod("filler", "node-0", 0)
	filler.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("90")
	if err := s.watched.AddPod(s.logger, filler); err != nil {
		t.Fatal(err)
	}
	again := thirsty(j, 0, "again", "20")
	s.Seen(again)
	s.pass()
	if diff := cmp.Diff([]string{"node-1", "node-0"}, s.planned(j)); diff != "" {
		t.Errorf("planned (-want +got):\n%s", diff)
	}
}

func TestPodsThatKeepDifferingAreLeftToTheFiltersInTheEnd(t *testing.T) {
	s, j := comparison(t)
	j = s.run(j)
	for i := range 3 * mostReplans {
		p := pod(j, "node", 0, fmt.Sprint("pod-", i))
		p.Spec.NodeSelector = map[string]string{"zone": fmt.Sprint(i % 2)}
		s.Seen(p)
		s.pass()
		s.Deleted(p)
	}
	if len(s.wishes.notes["a"]) != mostReplans {
		t.Errorf("planned anew %d times, want %d", len(s.wishes.notes["a"]), mostReplans)
	}
}

func TestAJobIsChargedForWhatAdmissionAddsAndPlannedWithWhatWebhooksAdd(t *testing.T) {
	s, j := comparison(t)
	rendered := func(cpus string) *corev1.Pod {
		p := &corev1.Pod{Spec: *j.PodSets[0].Template.Spec.DeepCopy()}
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpus)
		return p
	}
	j.PodSets[0].Rendered = &workload.Rendered{Charged: rendered("5"), Placed: rendered("60")}
	j = s.run(j)
	if nodes := s.planned(j); nodes[0] == nodes[1] {
		t.Errorf("planned on %v; one node cannot take both", nodes)
	}
	if got := s.entry(j).assignment.PodSetUsage[0][corev1.ResourceCPU]; got != 10_000 {
		t.Errorf("charged for %d mCPU, want 10000", got)
	}

	t.Run("and keeps both while it is charged", func(t *testing.T) {
		later := with(j, func(j *workload.Job) { j.PodSets[0].Rendered = nil })
		s.read(later, nil, nil)
		if got := s.entry(j); got.state != Admitted || got.job.PodSets[0].Rendered == nil {
			t.Errorf("it is %s, rendered as %v", got.state, got.job.PodSets[0].Rendered)
		}
	})
}

func TestShapeIsThatOfTheRenderedPods(t *testing.T) {
	render := func(charged, placed int64, env string) shape {
		j := job("a", set("node", 0, 2, 1))
		p := func(gpus int64) *corev1.Pod { return &corev1.Pod{Spec: set("x", 0, 1, gpus).Template.Spec} }
		j.PodSets[0].Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "RUN", Value: env}}
		j.PodSets[0].Rendered = &workload.Rendered{Charged: p(charged), Placed: p(placed)}
		return shapeOf(j)
	}
	if render(1, 1, "a") != render(1, 1, "b") {
		t.Error("jobs whose pods are rendered alike have two shapes")
	}
	if render(1, 1, "a") == render(2, 1, "a") || render(1, 1, "a") == render(1, 2, "a") {
		t.Error("jobs whose pods are rendered as others have one shape")
	}
}
