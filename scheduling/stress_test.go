package scheduling

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// Everybody who calls the Ledger in a scheduler does so at once: the scheduling
// goroutine, the bindings, the informers, the reconciler and the clocks. It is
// for the race detector; what must hold of the Ledger holds at the end.
func TestStressOfAllThatCallTheLedger(t *testing.T) {
	const (
		workers, size, rounds = 4, 6, 25
		nodes                 = 8
	)
	s := newStageOn(t.Context(), t, clock.RealClock{}, nil)
	effects := newEffects()
	s.Ledger.effects = effects
	s.queue("main", false, []string{"gpu"}, nodes*8)
	for i := range nodes {
		s.watched.AddNode(s.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", 8))
	}
	s.Restored()

	stop := make(chan struct{})
	var background sync.WaitGroup
	again := func(do func(i int)) {
		background.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					do(i)
				}
			}
		})
	}
	// seen are the pods that wait, assumed those that are being bound.
	seen, assumed := make(chan *corev1.Pod, workers*size*rounds), make(chan *corev1.Pod, workers*size*rounds)
	bound := make([]chan *corev1.Pod, workers)
	for i := range bound {
		bound[i] = make(chan *corev1.Pod, size)
	}
	// The scheduling goroutine.
	again(func(i int) {
		s.cycle.Pass(s.ctx)
		select {
		case p := <-seen:
			if ok, _ := s.MayEnter(p); !ok {
				seen <- p
				return
			}
			s.Take(p)
			name, _ := s.NodeFor(p)
			if name == "" {
				s.GiveBack(p, false)
				seen <- p
				return
			}
			on := onNode(p, name)
			if err := s.watched.AssumePod(s.logger, on); err != nil {
				t.Errorf("assuming: %v", err)
				return
			}
			s.Reserve(p)
			if i%5 == 0 {
				s.GiveBack(p, i%2 == 0)
				_ = s.watched.ForgetPod(s.logger, on)
				seen <- p
				return
			}
			assumed <- on
		case <-time.After(time.Millisecond):
		}
	})
	// The informer of pods tells of those that are bound.
	again(func(int) {
		select {
		case p := <-assumed:
			s.confirm(p)
			var worker int
			_, _ = fmt.Sscanf(p.Name, "w%d-", &worker)
			bound[worker] <- p
		case <-time.After(time.Millisecond):
		}
	})
	// The clocks, the reports and the metrics.
	again(func(int) {
		s.tick(Timing{StartTimeout: time.Hour})
		s.giveUpNodes(5 * time.Millisecond)
		s.heldGPUs()
		s.syncFirst()
		lines, _ := s.picture(time.Now())
		for _, l := range lines {
			_ = l.job.Owner.Name + l.why.Message
		}
		time.Sleep(time.Millisecond)
	})
	// The nodes.
	again(func(i int) {
		name := fmt.Sprintf("node-%d", i%nodes)
		up := flavored(name, "gpu", 8)
		away := up.DeepCopy()
		cordoned(away)
		s.watched.UpdateNode(s.logger, up, away)
		time.Sleep(time.Duration(i%7) * time.Millisecond)
		s.watched.UpdateNode(s.logger, away, up)
		time.Sleep(time.Millisecond)
	})

	// The jobs, each brought to its end.
	var versions sync.Mutex
	newer := func(j *workload.Job, change ...func(*kueue.Workload)) *kueue.Workload {
		versions.Lock()
		defer versions.Unlock()
		return s.workloadOfJob(j, change...)
	}
	var work sync.WaitGroup
	for w := range workers {
		work.Go(func() {
			for round := range rounds {
				j := job(fmt.Sprintf("w%d-job-%d", w, round), set("node", 0, size, 2))
				s.read(j, newer(j), nil)
				write := func() bool {
					a, ok := s.admissionOf(j.Owner.UID)
					if ok {
						s.written(j.Owner.UID, a.replanned, newer(j, isTrue(kueue.WorkloadAdmitted), func(wl *kueue.Workload) { wl.Status.Admission = admissionStatus(a) }), wrote, nil)
					}
					return ok
				}
				deadline := time.Now().Add(30 * time.Second)
				for !write() {
					if time.Now().After(deadline) {
						t.Errorf("%s is never admitted", j.Owner.Name)
						return
					}
					time.Sleep(time.Millisecond)
				}
				s.read(running(j), nil, nil)
				for i := range int32(size) {
					p := pod(j, "node", i, fmt.Sprintf("w%d-%d-%d", w, round, i))
					s.Seen(p)
					seen <- p
				}
				var on []*corev1.Pod
				for len(on) < size {
					select {
					case p := <-bound[w]:
						on = append(on, p)
					case <-time.After(time.Millisecond):
						write()
					}
					if time.Now().After(deadline) {
						t.Errorf("only %d pods of %s are bound", len(on), j.Owner.Name)
						return
					}
				}
				done := with(running(j), func(j *workload.Job) { j.Finish = &workload.Finish{Succeeded: true} })
				s.read(done, nil, nil)
				for _, p := range on {
					s.gone(p)
				}
				s.ownerGone(j.Owner.UID)
				s.left(j.Owner.UID)
			}
		})
	}
	work.Wait()
	close(stop)
	background.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, wrong := range s.waitlistErrors() {
		t.Error(wrong)
	}
}
