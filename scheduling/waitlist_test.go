package scheduling

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/workload"
)

// waitlistErrors compares the waitlist with what it would be, made anew.
func (l *Ledger) waitlistErrors() []string {
	var errs []string
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Sprintf(format, args...)) }
	w := &l.waits
	for _, e := range l.jobs {
		had, charged, lost := e.spot, len(w.charged), len(w.lost)
		l.enqueue(e)
		if had != e.spot || charged != len(w.charged) || lost != len(w.lost) {
			wrong("%s is filed wrongly: %+v, want %+v", e, had, e.spot)
		}
	}
	if told, ok := l.effects.(*wishes); ok {
		for e := range w.charged {
			if !told.holders[e.job.Owner.UID] {
				wrong("%s holds capacity, and is not said to", e)
			}
		}
		if len(told.holders) != len(w.charged) {
			wrong("%d jobs are said to hold capacity, %d do", len(told.holders), len(w.charged))
		}
	}
	inLines, inBuckets, places := 0, 0, 0
	for q, line := range w.lines {
		inLines += len(line.items)
		if !slices.IsSortedFunc(line.items, (*entry).before) {
			wrong("the line of %s is not in order", q)
		}
		for _, e := range line.items {
			if l.jobs[e.job.Owner.UID] != e || !e.unadmitted() || e.queue() != q {
				wrong("%s is in the line of %s", e, q)
			}
		}
	}
	for key, b := range w.buckets {
		inBuckets += len(b.jobs.items)
		if b.key != key || len(b.jobs.items) == 0 || b.rank != b.jobs.items[0].rank() || !slices.IsSortedFunc(b.jobs.items, (*entry).before) {
			wrong("bucket %d is in disorder", b.born)
			continue
		}
		for _, e := range b.jobs.items {
			if e.spot.bucket != b || shapeOf(e.job) != key.shape {
				wrong("%s is in bucket %d", e, b.born)
			}
		}
	}
	for _, set := range w.quota {
		places += len(set)
	}
	for _, set := range w.room {
		places += len(set)
	}
	lackGPUs := map[*bucket]bool{}
	for _, list := range w.gpus {
		for _, b := range list.items {
			lackGPUs[b] = true
		}
		if !slices.IsSortedFunc(list.items, list.compare) {
			wrong("those that wait for GPUs are not in order")
		}
	}
	places += len(lackGPUs)
	due := 0
	for _, h := range w.turn.items {
		due += len(h.due.items)
	}
	if places += due + l.headErrors(wrong); places != len(w.buckets) || due != w.dueBuckets {
		wrong("%d buckets are in lists, of %d", places, len(w.buckets))
	}
	waiting, ready := 0, 0
	for _, e := range l.jobs {
		if e.unadmitted() && !e.ended {
			waiting++
			if e.state == Pending && e.startable() && !e.requeueAt.after(l.clock.Now()) {
				ready++
			}
		}
	}
	if waiting != inLines || ready != inBuckets {
		wrong("%d jobs wait and %d may start; %d are in lines and %d in buckets", waiting, ready, inLines, inBuckets)
	}
	return errs
}

func TestJobsThatOnlyTheKubeletTellsApartHaveOneShape(t *testing.T) {
	tests := map[string]struct {
		change func(*workload.PodSet)
		same   bool
	}{
		"commands": {func(ps *workload.PodSet) { ps.Template.Spec.Containers[0].Command = []string{"train", "--seed=7"} }, true},
		"environment": {func(ps *workload.PodSet) {
			ps.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SEED", Value: "7"}}
		}, true},
		"images":      {func(ps *workload.PodSet) { ps.Template.Spec.Containers[0].Image = "trainer:2" }, true},
		"annotations": {func(ps *workload.PodSet) { ps.Template.Annotations = map[string]string{"run": "7"} }, true},
		"configuration": {func(ps *workload.PodSet) {
			ps.Template.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}}
		}, true},
		"claims": {func(ps *workload.PodSet) {
			ps.Template.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		}, false},
		"the number of pods":                          {func(ps *workload.PodSet) { ps.Count++ }, false},
		"the name of the pod set, which reasons tell": {func(ps *workload.PodSet) { ps.Name = "worker" }, false},
		"requests": {func(ps *workload.PodSet) {
			ps.Template.Spec.Containers[0].Resources = set("x", 0, 1, 4).Template.Spec.Containers[0].Resources
		}, false},
		"host ports": {func(ps *workload.PodSet) {
			ps.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, ContainerPort: 80}}
		}, false},
		"labels, which affinity reads": {func(ps *workload.PodSet) { ps.Template.Labels = map[string]string{"app": "x"} }, false},
		"node selectors":               {func(ps *workload.PodSet) { ps.Template.Spec.NodeSelector = map[string]string{"zone": "a"} }, false},
		"tolerations":                  {func(ps *workload.PodSet) { ps.Template.Spec.Tolerations = []corev1.Toleration{{Key: "x"}} }, false},
		"the scheduler":                {func(ps *workload.PodSet) { ps.Template.Spec.SchedulerName = "other" }, false},
	}
	base := job("a", set("node", 0, 2, 8))
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			other := job("b", set("node", 0, 2, 8))
			tc.change(&other.PodSets[0])
			if got := shapeOf(base) == shapeOf(other); got != tc.same {
				t.Errorf("same shape is %v", got)
			}
			if shapeOf(base) != shapeOf(job("a", set("node", 0, 2, 8))) {
				t.Error("the shape of a job is changed by looking at it")
			}
		})
	}
}

// Jobs that ask for the same share a reason, but not whom they may have stopped.
func TestAJobOfAHigherPriorityIsTriedAlthoughOthersLikeItWait(t *testing.T) {
	c := newContest(t, 8)
	c.policy("main", "", 8, lowerPriority)
	c.runs(one("low", 8), 0)
	c.submit(one("peer", 8), 0)
	c.pass()
	c.wantLeaving()
	high := one("high", 8)
	c.submit(high, 5)
	c.pass()
	c.wantState(high, Claimed)
	c.wantLeaving("low")
}
