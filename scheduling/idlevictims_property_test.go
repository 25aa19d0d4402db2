package scheduling

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// TestWhatAgentsSayChangesTheOrderOfVictimsAndNothingElse draws running jobs and what
// agents say of them: the same jobs may be stopped as before, those first that are idle,
// and among these, and among the others, in the order of before.
func TestWhatAgentsSayChangesTheOrderOfVictimsAndNothingElse(t *testing.T) {
	reordered := 0
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		defer cancel()
		s := newStage(ctx, t)
		for i := range 3 {
			s.watched.AddNode(s.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", 8))
		}
		for _, name := range []string{"a", "b"} {
			drawQueue(t, s, name)
		}
		s.Restored()
		var all []*corev1.Pod
		idle := map[types.UID]bool{}
		says := map[types.UID]v1alpha1.GPUHolder{}
		for i := range rapid.IntRange(1, 6).Draw(t, "running") {
			j := job(fmt.Sprintf("running-%d", i), set("node", 0, int32(rapid.IntRange(1, 2).Draw(t, "pods")), rapid.SampledFrom([]int64{1, 2, 4}).Draw(t, "gpus")))
			j.Queue = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue")
			s.submit(j, int32(rapid.IntRange(0, 2).Draw(t, "priority")))
			s.mu.Lock()
			b := s.next()
			started := b != nil && s.start(b.jobs.items[0])
			s.mu.Unlock()
			if !started {
				s.ownerGone(j.Owner.UID)
				s.left(j.Owner.UID)
				continue
			}
			wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j), func(wl *kueue.Workload) { wl.Spec.Priority = new(s.entry(j).priority) })
			s.written(j.Owner.UID, 0, wl, wrote, nil)
			s.read(running(j), wl, nil)
			idle[j.Owner.UID] = true
			for _, p := range s.bindAll(pods(j, "node", j.Owner.Name)...) {
				all = append(all, p)
				v := rapid.SampledFrom([]v1alpha1.GPUVerdict{v1alpha1.GPUIdle, v1alpha1.GPUIdle, v1alpha1.GPUIdle, v1alpha1.GPUActive, v1alpha1.GPUStalled}).Draw(t, "verdict")
				says[p.UID] = v1alpha1.GPUHolder{Verdict: v, Since: metav1.NewTime(epoch0), Reclaimable: v == v1alpha1.GPUIdle && rapid.IntRange(0, 5).Draw(t, "for long") > 0}
				idle[j.Owner.UID] = idle[j.Owner.UID] && says[p.UID].Reclaimable
			}
			s.clock.Step(time.Second)
		}
		j := job("wants", set("node", 0, 1, rapid.SampledFrom([]int64{4, 8}).Draw(t, "gpus wanted")))
		j.Queue = "a"
		s.submit(j, int32(rapid.IntRange(0, 3).Draw(t, "its priority")))
		before, ok := s.victimsOf(ctx, j.Owner.UID)
		if !ok {
			return
		}

		devices := map[string][]v1alpha1.GPUDevice{}
		for _, p := range all {
			devices[p.Spec.NodeName] = append(devices[p.Spec.NodeName], gpusOfPod(p, says[p.UID])...)
		}
		for node, of := range devices {
			s.gpuNodes.set(gpuNodeOf(node, s.clock.Now(), of...))
		}
		after, _ := s.victimsOf(ctx, j.Owner.UID)
		var want []types.UID
		for _, first := range []bool{true, false} {
			for _, uid := range before {
				if idle[uid] == first {
					want = append(want, uid)
				}
			}
		}
		if diff := cmp.Diff(want, after); diff != "" {
			t.Fatalf("who may be stopped, in order (-want +got):\n%s", diff)
		}
		if !slices.Equal(before, after) {
			reordered++
		}
	})
	if reordered == 0 {
		t.Error("no order was another one")
	}
}

// victimsOf are the jobs that may be stopped for a job that waits, in order; not ok: it
// could start, or never can.
func (s *stage) victimsOf(ctx context.Context, uid types.UID) (out []types.UID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.jobs[uid]
	a, _ := s.quota.Assign(e.request(nil))
	if a == nil {
		return nil, false
	}
	p := &pass{Cycle: s.cycle, ctx: ctx, start: s.clock.Now()}
	look, _ := p.search(&attempt{b: e.spot.bucket, e: e, job: e.job, version: e.version}, &option{assignment: a, classes: prototypes(e, a, s.quota)})
	if look == nil {
		return nil, false
	}
	return names(look.order), true
}
