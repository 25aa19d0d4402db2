package scheduling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// TestPassAdmitsInTurnAndLeavesNobodyWhoCouldStart checks what the passes promise:
// whoever could start when they end has started; and whoever is admitted comes
// first by turn, of all that could start then and for whom no other one of their
// own queue stands in front whose turn comes later. All jobs are asked each time
// whether they could start, by the real quota, planner and nodes; what the waitlist
// says of them is not. The same happens to a second scheduler, whose passes try one
// job each: the budget of a pass changes nobody's turn.
func TestPassAdmitsInTurnAndLeavesNobodyWhoCouldStart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, end := newPair(t)
		defer end()
		p.both(func(s *stage) {
			s.queue("main", false, []string{"new"}, 16)
			s.queue("two", false, []string{"old", "new"}, 8, 8)
			s.queue("strict", false, []string{"new"}, 8)
			// Nobody is stopped for others.
			for _, queue := range []string{"main", "two", "strict"} {
				s.setQueueHints(types.NamespacedName{Name: queue}, workload.QueueHints{MinRuntime: new(1000 * time.Hour)})
			}
			s.Restored()
		})
		p.twin[1].cycle.budget = -1
		for i, flavor := range []string{"new", "new", "old"} {
			p.setNode(flavored(fmt.Sprintf("node-%d", i), flavor, 8))
		}
		for range 3 {
			t.Repeat(map[string]func(*rapid.T){
				"submit":              p.submit,
				"submit another":      p.submit,
				"change a job":        p.changeJob,
				"change its priority": p.changePriority,
				"end a job":           p.endJob,
				"refuse a job":        p.refuseJob,
				"set a node":          p.changeNode,
				"remove a node":       p.removeNode,
				"start a pod":         p.startPod,
				"stop a pod":          p.stopPod,
				"change quota":        p.changeQuota,
				"change a cohort":     p.changeCohort,
				"wait": func(*rapid.T) {
					p.both(func(s *stage) {
						s.clock.Step(700 * time.Millisecond)
						s.expire(time.Hour)
					})
				},
				"pass": p.pass,
				"": func(t *rapid.T) {
					if errs := p.twin[0].waitlistErrors(); len(errs) > 0 {
						t.Fatalf("the waitlist: %s", strings.Join(errs, "; "))
					}
				},
			})
		}
		p.pass(t)
	})
}

// pair is two stages to which the same happens.
type pair struct {
	twin  [2]*stage
	jobs  map[string]*workload.Job
	nodes map[string]*corev1.Node
	pods  map[string]*corev1.Pod
	born  int
}

// newPair has two empty stages, until end.
func newPair(t *rapid.T) (p *pair, end func()) {
	ctx, end := context.WithCancel(context.Background())
	p = &pair{
		twin: [2]*stage{newStage(ctx, t), newStage(ctx, t)},
		jobs: map[string]*workload.Job{}, nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{},
	}
	// Where pods go may depend on what was refused before.
	p.both(func(s *stage) { s.sees = func(placement.Gang) {} })
	return p, end
}

func (p *pair) both(do func(*stage)) {
	for _, s := range p.twin {
		do(s)
	}
}

// pass compares who is admitted. The tick before is what tells of pods that
// came.
func (p *pair) pass(t *rapid.T) {
	p.both(func(s *stage) { s.expire(time.Hour) })
	got, want := p.twin[0].pass(), p.twin[1].passInTurn()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("admitted (-one in each pass +got):\n%s", diff)
	}
	for name, j := range p.jobs {
		if a, b := p.twin[0].entry(j).nodes(), p.twin[1].entry(j).nodes(); !slices.Equal(a, b) {
			t.Fatalf("%s is on %v, want %v", name, a, b)
		}
	}
}

func (p *pair) name(prefix string) string {
	p.born++
	return fmt.Sprintf("%s-%d", prefix, p.born)
}

// draw picks a key.
func draw[T any](t *rapid.T, m map[string]T, label string) (string, bool) {
	if len(m) == 0 {
		return "", false
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(m))).Draw(t, label), true
}

func drawJob(t *rapid.T, name string) *workload.Job {
	gpus := rapid.SampledFrom([]int64{0, 1, 2, 4, 8}).Draw(t, "gpus")
	j := job(name, set("node", 0, int32(rapid.IntRange(1, 3).Draw(t, "count")), gpus))
	spec := &j.PodSets[0].Template.Spec
	if gpus == 0 {
		spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("70")}}
	}
	term := []corev1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, TopologyKey: corev1.LabelHostname}}
	switch rapid.IntRange(0, 9).Draw(t, "special") {
	case 0:
		spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}
	case 1:
		spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}
	case 2:
		spec.Tolerations = []corev1.Toleration{{Key: "reserved", Operator: corev1.TolerationOpExists}}
	case 3:
		j.PodSets[0].Template.Labels = map[string]string{"app": "db"}
	case 4:
		j.PodSets = append(j.PodSets, set("later", 1, 1, 4))
	}
	j.Queue = rapid.SampledFrom([]string{"main", "main", "two", "strict"}).Draw(t, "queue")
	j.Created = epoch0.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "age")) * time.Minute)
	return j
}

func (p *pair) submit(t *rapid.T) {
	name := p.name("job")
	p.read(drawJob(t, name), int32(rapid.IntRange(0, 1).Draw(t, "priority")))
}

func (p *pair) read(j *workload.Job, priority int32) {
	p.jobs[j.Owner.Name] = j
	p.both(func(s *stage) { s.submit(with(j, func(*workload.Job) {}), priority) })
}

// changeJob changes what a job asks for, or how urgent it is.
func (p *pair) changeJob(t *rapid.T) {
	if name, ok := draw(t, p.jobs, "job"); ok && p.twin[0].state(p.jobs[name]) == Pending {
		j := p.jobs[name]
		if rapid.Bool().Draw(t, "other pods") {
			j = drawJob(t, name)
		}
		p.read(j, int32(rapid.IntRange(0, 1).Draw(t, "priority")))
	}
}

// changePriority is what someone does to a Workload.
func (p *pair) changePriority(t *rapid.T) {
	if name, ok := draw(t, p.jobs, "job"); ok {
		priority := int32(rapid.IntRange(0, 2).Draw(t, "priority"))
		j := p.jobs[name]
		p.both(func(s *stage) {
			s.observe(j.Owner.UID, s.workloadOfJob(j, func(wl *kueue.Workload) { wl.Spec.Priority = &priority }))
		})
	}
}

// endJob deletes a job; what it held is free at once.
func (p *pair) endJob(t *rapid.T) {
	if name, ok := draw(t, p.jobs, "job"); ok {
		uid := p.jobs[name].Owner.UID
		delete(p.jobs, name)
		p.both(func(s *stage) {
			s.ownerGone(uid)
			s.left(uid)
		})
	}
}

// refuseJob has the write of an admission fail, with or without a back-off.
func (p *pair) refuseJob(t *rapid.T) {
	if name, ok := draw(t, p.jobs, "job"); ok && p.twin[0].state(p.jobs[name]) == Admitting {
		p.both(func(s *stage) { s.written(p.jobs[name].Owner.UID, 0, nil, refused, errUnanswered) })
	}
}

func (p *pair) setNode(n *corev1.Node) {
	old := p.nodes[n.Name]
	p.nodes[n.Name] = n
	p.both(func(s *stage) {
		if old == nil {
			s.watched.AddNode(s.logger, n)
		} else {
			s.watched.UpdateNode(s.logger, old, n)
		}
	})
}

func (p *pair) changeNode(t *rapid.T) {
	name := fmt.Sprintf("node-%d", rapid.IntRange(0, 3).Draw(t, "node"))
	n := flavored(name, rapid.SampledFrom([]string{"new", "old"}).Draw(t, "flavor"), int64(rapid.SampledFrom([]int{4, 8}).Draw(t, "gpus")))
	switch rapid.IntRange(0, 4).Draw(t, "special") {
	case 0:
		n.Spec.Unschedulable = true
	case 1:
		n.Spec.Taints = []corev1.Taint{{Key: "reserved", Effect: corev1.TaintEffectNoSchedule}}
	}
	p.setNode(n)
}

// removeNode removes a node on which nothing runs.
func (p *pair) removeNode(t *rapid.T) {
	name, ok := draw(t, p.nodes, "node")
	if !ok || len(p.twin[0].plain.Dump().Nodes[name].GetPods()) > 0 {
		return
	}
	n := p.nodes[name]
	delete(p.nodes, name)
	p.both(func(s *stage) {
		if err := s.watched.RemoveNode(s.logger, n); err != nil {
			t.Fatalf("removing %s: %v", name, err)
		}
	})
}

func (p *pair) startPod(t *rapid.T) {
	node, ok := draw(t, p.nodes, "node")
	gpus := rapid.SampledFrom([]int64{0, 0, 1, 4}).Draw(t, "gpus")
	if !ok || p.twin[0].taken(node)+gpus > 8 {
		return
	}
	pod := plainPod(p.name("pod"), node, gpus, func(q *corev1.Pod) {
		if rapid.IntRange(0, 2).Draw(t, "label") == 0 {
			q.Labels = map[string]string{"app": "db"}
		}
	})
	p.pods[pod.Name] = pod
	p.both(func(s *stage) {
		if err := s.watched.AddPod(s.logger, pod); err != nil {
			t.Fatalf("adding %s: %v", pod.Name, err)
		}
	})
}

func (p *pair) stopPod(t *rapid.T) {
	if name, ok := draw(t, p.pods, "pod"); ok {
		pod := p.pods[name]
		delete(p.pods, name)
		p.both(func(s *stage) {
			if err := s.watched.RemovePod(s.logger, pod); err != nil {
				t.Fatalf("removing %s: %v", name, err)
			}
		})
	}
}

func (p *pair) changeQuota(t *rapid.T) {
	name := rapid.SampledFrom([]string{"main", "two", "strict"}).Draw(t, "queue")
	flavors := map[string][]string{"main": {"new"}, "two": {"old", "new"}, "strict": {"new"}}[name]
	quotas := make([]int64, len(flavors))
	for i := range quotas {
		quotas[i] = rapid.SampledFrom([]int64{0, 4, 8, 16, 32}).Draw(t, "gpus")
	}
	cq := clusterQueue(name, flavors, quotas...)
	if name == "strict" || rapid.IntRange(0, 5).Draw(t, "strategy") == 0 {
		cq.Spec.QueueingStrategy = kueue.StrictFIFO
	}
	cq.Spec.CohortName = kueue.CohortReference(rapid.SampledFrom([]string{"", "a", "a", "b"}).Draw(t, "cohort"))
	for i := range flavors {
		q := &cq.Spec.ResourceGroups[0].Flavors[i].Resources[0]
		q.BorrowingLimit = drawLimit(t, "borrowing")
		q.LendingLimit = drawLimit(t, "lending")
	}
	if rapid.Bool().Draw(t, "reclaim") {
		cq.Spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny}
	}
	if rapid.IntRange(0, 5).Draw(t, "selects") == 0 {
		cq.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "other"}}
	}
	stopped := rapid.IntRange(0, 6).Draw(t, "stopped") == 0
	p.both(func(s *stage) { s.set(cq, stopped) })
}

func drawLimit(t *rapid.T, what string) *resource.Quantity {
	if n := rapid.SampledFrom([]int64{-1, -1, 0, 4, 8}).Draw(t, what); n >= 0 {
		return resource.NewQuantity(n, resource.DecimalSI)
	}
	return nil
}

// changeCohort makes cohort b a part of cohort a, or not, with a quota of its own.
func (p *pair) changeCohort(t *rapid.T) {
	c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	c.Spec.ParentName = kueue.CohortReference(rapid.SampledFrom([]string{"", "a"}).Draw(t, "parent"))
	c.Spec.ResourceGroups = clusterQueue("", []string{"new"}, rapid.SampledFrom([]int64{0, 8}).Draw(t, "gpus")).Spec.ResourceGroups
	p.both(func(s *stage) { s.UpdateQuota(func(t *quota.Tree) { t.SetCohort(c) }) })
}
