package scheduling

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/workload"
)

const completionLabel = "batch.kubernetes.io/job-completion-index"

// selecting makes the pods of a set stay apart from those with the labels.
func selecting(ps workload.PodSet, term corev1.PodAffinityTerm) workload.PodSet {
	ps.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term},
	}}
	return ps
}

func having(keys ...string) corev1.PodAffinityTerm {
	term := corev1.PodAffinityTerm{TopologyKey: "rack", LabelSelector: &metav1.LabelSelector{}}
	for _, key := range keys {
		term.LabelSelector.MatchExpressions = append(term.LabelSelector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists})
	}
	return term
}

// inReplicas makes a pod set one of that many replicas.
func inReplicas(ps workload.PodSet, replicas int32) workload.PodSet {
	ps.PodsPerReplica = ps.Count / replicas
	return stamped(ps)
}

func TestClasses(t *testing.T) {
	node := func() workload.PodSet { return inReplicas(set("node", 0, 6, 1), 3) }
	spread := func(when corev1.UnsatisfiableConstraintAction) workload.PodSet {
		ps := node()
		ps.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			TopologyKey: "rack", WhenUnsatisfiable: when, LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"batch.kubernetes.io/job-name"},
		}}
		return ps
	}
	for name, tc := range map[string]struct {
		sets []workload.PodSet
		want []string
	}{
		"pods that select by nothing are one class": {
			[]workload.PodSet{node()}, []string{"node 0-6"}},
		"pods that select by what all of them have are one class": {
			[]workload.PodSet{selecting(node(), having(jobset.JobSetNameKey, "app"))}, []string{"node 0-6"}},
		"pods that select by a label of their Job are a class for each": {
			[]workload.PodSet{selecting(node(), having(jobset.JobIndexKey))}, []string{"node[0] 0-2", "node[1] 2-4", "node[2] 4-6"}},
		"and so they are if they name the label's key alone": {
			[]workload.PodSet{selecting(node(), corev1.PodAffinityTerm{TopologyKey: "rack", LabelSelector: &metav1.LabelSelector{}, MismatchLabelKeys: []string{jobset.JobKey}})},
			[]string{"node[0] 0-2", "node[1] 2-4", "node[2] 4-6"}},
		"or if they are spread by it": {
			[]workload.PodSet{spread(corev1.DoNotSchedule)}, []string{"node[0] 0-2", "node[1] 2-4", "node[2] 4-6"}},
		"what is only preferred costs nothing": {
			[]workload.PodSet{spread(corev1.ScheduleAnyway)}, []string{"node 0-6"}},
		"pods that select by their own number are a class each": {
			[]workload.PodSet{selecting(inReplicas(set("node", 0, 4, 1), 2), having(completionLabel))},
			[]string{"node[0][0] 0-1", "node[0][1] 1-2", "node[1][0] 2-3", "node[1][1] 3-4"}},
		"a set is divided also if only another one selects by the label": {
			[]workload.PodSet{node(), selecting(stamped(set("driver", 0, 1, 0)), having(jobset.JobIndexKey))},
			[]string{"node[0] 0-2", "node[1] 2-4", "node[2] 4-6", "driver 0-1"}},
		"replicas that have a domain to themselves are a class each, whatever the others are": {
			[]workload.PodSet{exclusive(set("node", 0, 4, 1), 2), stamped(set("driver", 0, 2, 0))},
			[]string{"node[0] 0-2", "node[1] 2-4", "driver 0-2"}},
		"pods that follow each other in their slots are not numbered": {
			[]workload.PodSet{func() workload.PodSet {
				ps := selecting(node(), having(completionLabel))
				ps.Completions = 12
				return ps
			}()}, []string{"node[0] 0-2", "node[1] 2-4", "node[2] 4-6"}},
		"pods on which no controller writes are one class": {
			[]workload.PodSet{selecting(set("node", 0, 4, 1), having(jobset.JobIndexKey))}, []string{"node 0-4"}},
	} {
		t.Run(name, func(t *testing.T) {
			j := job("train", tc.sets...)
			var bases []*corev1.Pod
			for i := range j.PodSets {
				bases = append(bases, prototype(newEntry(j), &j.PodSets[i], workload.PodSetInfo{}))
			}
			var got []string
			covered := make([]int, len(j.PodSets))
			for _, c := range classesOf(j, bases) {
				got = append(got, fmt.Sprintf("%s %d-%d", c.name, c.from, c.to))
				if c.from != covered[c.set] || c.size() < 1 {
					t.Errorf("class %s does not begin where the one before it ends", c.name)
				}
				covered[c.set] = c.to
				if first := j.PodSets[c.set].Slot(int32(c.from)); c.pod.Labels[jobset.JobIndexKey] != "" && c.pod.Labels[jobset.JobIndexKey] != fmt.Sprint(first.Replica) {
					t.Errorf("class %s has the labels of replica %s", c.name, c.pod.Labels[jobset.JobIndexKey])
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("classes (-want +got):\n%s", diff)
			}
			for i, n := range covered {
				if n != int(j.PodSets[i].Count) {
					t.Errorf("%d slots of pod set %s are in a class, of %d", n, j.PodSets[i].Name, j.PodSets[i].Count)
				}
			}
		})
	}
}

func TestHoldsCarryWhatTheControllersWrite(t *testing.T) {
	s := testScene(t, 8, 8, 8)
	j := s.admitted(job("a", exclusive(set("node", 0, 4, 1), 2)), []string{"node-0", "node-0", "node-1", "node-1"})
	labels := func() (out []string) {
		for i := range 4 {
			hold := s.slot(j, "node", i).hold
			term := hold.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
			own := term.LabelSelector.MatchExpressions[0].Values[0] == hold.Labels[jobset.JobKey]
			out = append(out, fmt.Sprintf("%s %s near its own: %v", hold.Spec.NodeName, hold.Labels[batchJobName], own))
		}
		return out
	}
	want := []string{
		"node-0 train-node-0 near its own: true", "node-0 train-node-0 near its own: true",
		"node-1 train-node-1 near its own: true", "node-1 train-node-1 near its own: true",
	}
	if diff := cmp.Diff(want, labels()); diff != "" {
		t.Errorf("holds (-want +got):\n%s", diff)
	}
	// Held again, they are the same.
	p := pod(j, "node", 2, "p")
	for _, q := range []*corev1.Pod{p, pod(j, "node", 0, "q")} {
		s.Seen(q)
	}
	s.take(p)
	s.GiveBack(p, false)
	if diff := cmp.Diff(want, labels()); diff != "" {
		t.Errorf("holds after one was taken and given back (-want +got):\n%s", diff)
	}
}

const batchJobName = "batch.kubernetes.io/job-name"

func TestLeadersStartWithoutThosePodsThatFollowThem(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	j := s.admitted(job("a", exclusive(set("node", 0, 4, 2), 2), set("driver", 0, 1, 0)), []string{"node-0", "node-0", "node-1", "node-1"}, []string{"node-0"})
	leaders := []*corev1.Pod{pod(j, "node", 0, "l0"), pod(j, "node", 2, "l1")}
	driver := pod(j, "driver", 0, "d")
	s.Seen(leaders[0])
	s.Seen(leaders[1])
	if ok, _ := s.MayEnter(leaders[0]); ok {
		t.Error("leaders do not wait for the driver, which starts with them")
	}
	s.bindAll(driver, leaders[0], leaders[1])

	followers := []*corev1.Pod{pod(j, "node", 1, "f0"), pod(j, "node", 3, "f1")}
	s.Seen(followers[0])
	if ok, _ := s.MayEnter(followers[0]); ok {
		t.Error("a pod that follows does not wait for the others that do")
	}
	s.Seen(followers[1])
	s.take(followers[0])
	s.assume(followers[0])
	if wait, _ := s.Reserve(followers[0]); !wait {
		t.Error("it does not wait at the barrier")
	}
	s.take(followers[1])
	s.assume(followers[1])
	if wait, release := s.Reserve(followers[1]); wait || len(release) != 1 {
		t.Errorf("the last one waits: %v, and lets %v go", wait, release)
	}
}

func TestJobThatWasRestoredWithoutItsTemplatesLearnsWhoStartsWithWhom(t *testing.T) {
	before := testScene(t, 16, 8, 8)
	j := before.admitted(job("a", exclusive(set("node", 0, 4, 2), 2), set("launcher", 1, 1, 0)),
		[]string{"node-0", "node-0", "node-1", "node-1"}, []string{"node-0"})
	wl := before.entry(j).workload
	s := testScene(t, 16, 8, 8)
	s.restore(with(j, func(j *workload.Job) { j.PodSets, j.PodOwnerUID = nil, "" }), wl, nil)
	leaders := []*corev1.Pod{pod(j, "node", 0, "l0"), pod(j, "node", 2, "l1")}
	for _, p := range leaders {
		s.Seen(p)
	}
	// Its JobSet is there again.
	s.read(j, wl, nil)
	for i, p := range leaders {
		if ok, why := s.MayEnter(p); !ok {
			t.Errorf("leader %d may not enter: %s", i, why)
		}
		if s.wishes.woken[p.UID] == 0 {
			t.Errorf("leader %d is not woken", i)
		}
	}
}

func TestSuccessesOfAnEarlierAttemptDoNotCount(t *testing.T) {
	queue := func() workload.PodSet {
		ps := set("node", 0, 2, 4)
		ps.Completions = 3
		return ps
	}
	t.Run("when the JobSet restarts while pods run", func(t *testing.T) {
		s := testScene(t, 8, 8)
		j := s.admitted(job("a", queue()), []string{"node-0", "node-0"})
		bound := s.bindAll(pod(j, "node", 0, "c0"), pod(j, "node", 1, "c1"))
		s.gone(bound[0])
		s.gone(bound[1])
		s.settle(true)
		if s.slot(j, "node", 0).done == s.slot(j, "node", 1).done {
			t.Fatal("two of three have succeeded, and not one of two slots is done")
		}
		s.Seen(ofAttempt(1, pod(j, "node", 0, "again-0")))
		for i := range 2 {
			if s.slot(j, "node", i).done {
				t.Errorf("slot %d is done in an attempt that has just begun", i)
			}
		}
		// Late news of the first attempt.
		s.Settled(j.Owner.UID, bound[1], true)
		if got := s.entry(j).set("node").succeeded[0]; got != 0 {
			t.Errorf("%d pods count as succeeded", got)
		}
	})
	t.Run("when they are read at start", func(t *testing.T) {
		before := testScene(t, 8, 8)
		j := before.admitted(job("a", queue()), []string{"node-0", "node-0"})
		wl := before.entry(j).workload
		s := testScene(t, 8, 8)
		again := with(running(j), func(j *workload.Job) {
			j.PodSets[0].Stamp.Labels = map[string]string{"jobset.sigs.k8s.io/restart-attempt": "1"}
		})
		s.restore(again, wl, []*corev1.Pod{pod(j, "node", 0, "c0"), pod(j, "node", 1, "c1"), ofAttempt(1, pod(j, "node", 0, "again-0"))})
		if got := s.entry(j).set("node").succeeded[0]; got != 1 {
			t.Errorf("%d pods count as succeeded, want that of the second attempt", got)
		}
		for i := range 2 {
			if s.slot(j, "node", i).done {
				t.Errorf("slot %d is done although two pods are to come", i)
			}
		}
	})
}

func TestReplicasThatRunMorePodsThanAtATimeEndOneByOne(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	ps := inReplicas(set("node", 0, 4, 4), 2)
	ps.Completions = 6
	j := s.admitted(job("a", ps), []string{"node-0", "node-0", "node-1", "node-1"})
	bound := s.bindAll(pod(j, "node", 0, "a0"), pod(j, "node", 1, "a1"), pod(j, "node", 2, "b0"), pod(j, "node", 3, "b1"))
	s.gone(bound[0])
	s.gone(bound[2])
	s.settle(true)
	// The last pod of the second replica comes before that of the first, whose
	// slot it must not take.
	last, third := pod(j, "node", 2, "b2"), pod(j, "node", 0, "a2")
	last.Labels[completionLabel], third.Labels[completionLabel] = "2", "2"
	s.Seen(last)
	if got := s.slot(j, "node", 2).pod; got != last {
		t.Fatalf("slot 2 has pod %v", got)
	}
	s.gone(s.bindAll(third, last)[0])
	s.gone(bound[1])
	s.settle(true)
	for i, want := range []bool{true, true, false, false} {
		if got := s.slot(j, "node", i).done; got != want {
			t.Errorf("slot %d is done: %v, want %v", i, got, want)
		}
	}
}

func TestShapesOfJobsWhosePodsSelectByTheControllersLabels(t *testing.T) {
	named := func(name string, ps workload.PodSet) *workload.Job {
		ps.Stamp.Labels = map[string]string{jobset.JobSetNameKey: name}
		return job(name, ps)
	}
	for name, tc := range map[string]struct {
		of   func() workload.PodSet
		same bool
	}{
		"what nobody selects by tells no job from another":         {func() workload.PodSet { return stamped(set("node", 0, 4, 1)) }, true},
		"exclusive jobs are alike":                                 {func() workload.PodSet { return exclusive(set("node", 0, 4, 1), 2) }, true},
		"a selected name tells them apart":                         {func() workload.PodSet { return selecting(stamped(set("node", 0, 4, 1)), having(jobset.JobSetNameKey)) }, false},
		"labels of the template do so only by what they are":       {func() workload.PodSet { return selecting(stamped(set("node", 0, 4, 1)), having("app")) }, true},
		"pods that select by a label of their Job are unlike, too": {func() workload.PodSet { return selecting(stamped(set("node", 0, 4, 1)), having(jobset.JobIndexKey)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shapeOf(named("a", tc.of())) == shapeOf(named("b", tc.of())); got != tc.same {
				t.Errorf("same shape is %v", got)
			}
		})
	}
	if shapeOf(job("a", exclusive(set("node", 0, 4, 1), 2))) == shapeOf(job("a", exclusive(set("node", 0, 4, 1), 4))) {
		t.Error("two Jobs of two pods and four of one have one shape, and need different racks")
	}
	if shapeOf(job("a", exclusive(set("node", 0, 4, 1), 2))) == shapeOf(job("a", inReplicas(set("node", 0, 4, 1), 2))) {
		t.Error("exclusive pods and others have one shape")
	}
}
