package scheduling

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// TestLedgerIsSafeForAllWhoCallIt has informers, the gate, the scheduling
// goroutine and the controllers at it at once, as in the scheduler. It says
// something when it is run with -race, or when a lock is taken twice.
func TestLedgerIsSafeForAllWhoCallIt(t *testing.T) {
	const rounds = 200
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newScene(ctx, t, 64, 8, 8)
	effects := newEffects()
	s.effects = effects
	var jobs []*workload.Job
	for i := range 4 {
		jobs = append(jobs, job(fmt.Sprintf("job-%d", i), set("node", 0, 1, 2)))
	}
	podOf := func(j *workload.Job, round int) *corev1.Pod {
		return pod(j, "node", 0, fmt.Sprintf("%s-%d", j.Owner.Name, round/4))
	}
	everyone := map[string]func(round int){
		"controller": func(round int) {
			for i, j := range jobs {
				wl := workload.NewWorkload(j, 0, nil)
				wl.ResourceVersion = fmt.Sprint(round + 1)
				want := s.read(with(j, func(j *workload.Job) { j.Suspended = (round+i)%3 == 0 }), wl, nil)
				switch want.do {
				case doSuspend:
					s.stopped(j.Owner.UID)
				case doRequeue, doFinish, doDelete:
					s.left(j.Owner.UID)
				}
				s.observe(j.Owner.UID, wl)
			}
		},
		"writer": func(round int) {
			for _, j := range jobs {
				if a, ok := s.admissionOf(j.Owner.UID); ok {
					wl := a.workload.DeepCopy()
					wl.Status.Admission = admissionStatus(a)
					s.written(j.Owner.UID, a.replanned, wl, wrote, nil)
				}
			}
		},
		"pods": func(round int) {
			for _, j := range jobs {
				s.Seen(podOf(j, round))
				if round%4 == 3 {
					s.Deleted(podOf(j, round))
				}
			}
		},
		"scheduler's cache": func(round int) {
			for _, j := range jobs {
				bound := onNode(podOf(j, round), "node-0")
				// Many of these pods are unknown to the cache, which is an error
				// there and must do no harm here.
				_ = s.watched.AddPod(s.logger, bound)
				if round%4 == 3 {
					_ = s.watched.RemovePod(s.logger, bound)
				}
			}
		},
		"gate": func(round int) {
			for _, j := range jobs {
				s.MayEnter(podOf(j, round))
			}
		},
		"scheduling goroutine": func(round int) {
			s.mu.Lock()
			if b := s.next(); b != nil {
				e := b.jobs.items[0]
				if a, no := s.quota.Assign(e.request(nil)); no == nil {
					_ = s.charge(e, e.version, a, [][]string{{"node-1"}}, prototypes(e, a, s.quota))
				}
			}
			s.mu.Unlock()
			for _, j := range jobs {
				p := podOf(j, round)
				s.Take(p)
				if node, _ := s.NodeFor(p); node != "" {
					s.Reserve(p)
					s.GiveBack(p, round%2 == 0)
				}
			}
		},
		"clock": func(round int) {
			s.clock.Step(time.Second)
			s.expire(20 * time.Second)
		},
		"reporter": func(int) { s.picture(s.clock.Now()) },
		"nodes": func(round int) {
			s.watched.UpdateNode(s.logger, node("node-1", 8), node("node-1", 8+int64(round%2)))
			s.NodeGone("node-2")
		},
		"admin": func(round int) {
			j := jobs[round%len(jobs)]
			s.workloadDeleted(j.Owner.UID, "")
			if e := s.workloadOf(j.Owner.UID); e != nil && round%10 == 9 {
				s.stop(j, eviction{reason: kueue.WorkloadDeactivated})
			}
			s.Settled(j.Owner.UID, podOf(j, round), round%7 == 0)
		},
		"effects": func(int) {
			effects.mu.Lock()
			defer effects.mu.Unlock()
			clear(effects.wake)
			clear(effects.back)
		},
	}
	var all sync.WaitGroup
	for _, act := range everyone {
		all.Go(func() {
			for round := range rounds {
				act(round)
			}
		})
	}
	all.Wait()
	for _, j := range jobs {
		s.ownerGone(j.Owner.UID)
	}
}
