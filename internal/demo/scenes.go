package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workFor is how long each of the two contending jobs works.
const workFor = 15 * time.Second

// deadlockAvoided is the story with Muster: of two jobs that fit only one at a
// time, one runs whole and the other holds nothing, says why, and runs next.
func (s *stage) deadlockAvoided(ctx context.Context) (outcome, error) {
	s.say("\n--- With Muster -------------------------------------------------------------")
	for _, o := range queueObjects() {
		if err := s.client.Create(ctx, o.(client.Object)); err != nil {
			return outcome{}, fmt.Errorf("creating %T: %w", o, err)
		}
	}
	if err := s.occupy(ctx, true); err != nil {
		return outcome{}, err
	}
	s.say("Two 16-GPU TrainJobs (4 nodes x 4 GPUs), apple and banana, are created in the same second.")
	apple := training{name: "apple", nodes: 4, gpus: 4, runFor: workFor, queued: true}
	banana := training{name: "banana", nodes: 4, gpus: 4, runFor: workFor, queued: true}
	if err := s.create(ctx, apple, banana); err != nil {
		return outcome{}, err
	}
	first, second := "", ""
	err := s.await(ctx, "one of the two jobs to run whole", func(ctx context.Context) error {
		a, errA := s.running(ctx, "apple")
		b, errB := s.running(ctx, "banana")
		if err := errors.Join(errA, errB); err != nil {
			return err
		}
		switch {
		case a == 4:
			first, second = "apple", "banana"
		case b == 4:
			first, second = "banana", "apple"
		default:
			return fmt.Errorf("apple runs %d of 4 pods, banana %d", a, b)
		}
		return nil
	})
	if err != nil {
		return outcome{}, err
	}
	p, err := s.draw(ctx)
	if err != nil {
		return outcome{}, err
	}
	var result outcome
	result.held, result.working = p.held("apple", "banana")
	if err := s.waitsWithNothing(ctx, second, "needs 16 GPUs in queue team-nlp, 8 of 32 free"); err != nil {
		return outcome{}, err
	}
	if result.held != 16 || result.working != 16 {
		return outcome{}, fmt.Errorf("%d GPUs are held and %d work, want 16 and 16", result.held, result.working)
	}
	for _, name := range []string{first, second} {
		if err := s.finishes(ctx, name); err != nil {
			return outcome{}, err
		}
		result.finished++
		if name == first {
			s.say("%s has finished; %s starts at once.", first, second)
			if err := s.runsWhole(ctx, second, 4); err != nil {
				return outcome{}, err
			}
			if _, err := s.draw(ctx); err != nil {
				return outcome{}, err
			}
		}
	}
	s.say("%s has finished too.", second)
	return result, s.clear(ctx, "wide", "apple", "banana")
}

// occupy starts an 8-GPU job that holds a node, so that 24 GPUs are free.
func (s *stage) occupy(ctx context.Context, queued bool) error {
	s.say("One 8-GPU job, wide, holds a node; 24 GPUs are free.")
	if err := s.create(ctx, training{name: "wide", nodes: 1, gpus: 8, queued: queued}); err != nil {
		return err
	}
	return s.runsWhole(ctx, "wide", 1)
}

func (s *stage) runsWhole(ctx context.Context, name string, pods int) error {
	return s.await(ctx, name+" to run whole", func(ctx context.Context) error {
		n, err := s.running(ctx, name)
		if err == nil && n != pods {
			err = fmt.Errorf("%d of %d pods run", n, pods)
		}
		return err
	})
}

func (s *stage) finishes(ctx context.Context, name string) error {
	return s.await(ctx, name+" to finish", func(ctx context.Context) error {
		done, err := s.complete(ctx, name)
		if err == nil && !done {
			err = errors.New("it has not")
		}
		return err
	})
}

// waitsWithNothing checks that a job is suspended, has no pod, and says why in
// words that contain want.
func (s *stage) waitsWithNothing(ctx context.Context, name, want string) error {
	var why string
	err := s.await(ctx, name+" to say why it waits", func(ctx context.Context) (err error) {
		if why, err = s.why(ctx, name); err == nil && !strings.Contains(why, want) {
			err = fmt.Errorf("it says %q, want %q", why, want)
		}
		return err
	})
	if err != nil {
		return err
	}
	suspended, err := s.suspended(ctx, name)
	if err != nil || !suspended {
		return fmt.Errorf("%s is not suspended (%w)", name, orNone(err))
	}
	pods, err := s.pods(ctx, name)
	if err != nil || len(pods) > 0 {
		return fmt.Errorf("%s waits but has %s (%w)", name, plural(len(pods), "pod"), orNone(err))
	}
	s.say("%s stays suspended and holds nothing: %q.", name, why)
	return nil
}

// deadlock is the same story on a plain kube-scheduler: each job gets three of
// its four pods, and both wait for ever.
func (s *stage) deadlock(ctx context.Context) (outcome, error) {
	s.say("\n--- Without Muster: the same jobs on a plain kube-scheduler -----------------")
	if err := s.client.Create(ctx, queueObjects()[0].(client.Object)); err != nil {
		return outcome{}, fmt.Errorf("creating the namespace: %w", err)
	}
	if err := s.occupy(ctx, false); err != nil {
		return outcome{}, err
	}
	s.say("apple and banana again, in the same second; the scheduler takes their pods in turn.")
	apple := training{name: "apple", nodes: 4, gpus: 4, runFor: workFor, gated: true}
	banana := training{name: "banana", nodes: 4, gpus: 4, runFor: workFor, gated: true}
	if err := s.create(ctx, apple, banana); err != nil {
		return outcome{}, err
	}
	if err := s.releaseInTurn(ctx, "apple", "banana"); err != nil {
		return outcome{}, err
	}
	err := s.await(ctx, "each job to run three of four pods", func(ctx context.Context) error {
		for _, name := range []string{"apple", "banana"} {
			if n, err := s.running(ctx, name); err != nil || n != 3 {
				return fmt.Errorf("%s runs %d pods (%w)", name, n, orNone(err))
			}
		}
		return nil
	})
	if err != nil {
		return outcome{}, err
	}
	p, err := s.draw(ctx)
	if err != nil {
		return outcome{}, err
	}
	var result outcome
	result.held, result.working = p.held("apple", "banana")
	s.say("Each job has three of its four pods and waits for the last; 24 GPUs are held, none works.")
	s.say("Waiting longer than the whole training takes (%s) ...", workFor)
	if err := s.stuck(ctx, workFor+5*time.Second); err != nil {
		return outcome{}, err
	}
	if result.held != 24 || result.working != 0 {
		return outcome{}, fmt.Errorf("%d GPUs are held and %d work, want 24 and 0", result.held, result.working)
	}
	s.say("Nothing has moved, and nothing ever will.")
	return result, nil
}

// releaseInTurn takes the gates off the jobs' pods one by one, a pod of each
// job at a time, and waits for the scheduler's decision on each.
func (s *stage) releaseInTurn(ctx context.Context, jobs ...string) error {
	pods := map[string][]corev1.Pod{}
	for _, name := range jobs {
		err := s.await(ctx, "the four gated pods of "+name, func(ctx context.Context) (err error) {
			if pods[name], err = s.pods(ctx, name); err == nil && len(pods[name]) != 4 {
				err = fmt.Errorf("there are %d", len(pods[name]))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for i := range 4 {
		for _, name := range jobs {
			if err := s.release(ctx, &pods[name][i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *stage) release(ctx context.Context, pod *corev1.Pod) error {
	open := pod.DeepCopy()
	open.Spec.SchedulingGates = nil
	if err := s.client.Patch(ctx, open, client.MergeFrom(pod)); err != nil {
		return fmt.Errorf("letting pod %s go: %w", pod.Name, err)
	}
	return s.await(ctx, "a decision on pod "+pod.Name, func(ctx context.Context) error {
		if err := s.client.Get(ctx, client.ObjectKeyFromObject(pod), open); err != nil {
			return err
		}
		for _, c := range open.Status.Conditions {
			if c.Type == corev1.PodScheduled && (c.Status == corev1.ConditionTrue || c.Reason == corev1.PodReasonUnschedulable) {
				return nil
			}
		}
		return errors.New("none yet")
	})
}

// stuck watches for a while that no job finishes and no pod joins.
func (s *stage) stuck(ctx context.Context, long time.Duration) error {
	deadline := time.Now().Add(long)
	for time.Now().Before(deadline) {
		for _, name := range []string{"apple", "banana"} {
			n, err := s.running(ctx, name)
			if err != nil {
				return err
			}
			done, err := s.complete(ctx, name)
			if err != nil {
				return err
			}
			if n != 3 || done {
				return fmt.Errorf("%s is not stuck: %d of 4 pods run, finished: %v", name, n, done)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
	return nil
}

// holes is the story of fragmentation: 8 GPUs are free, 4 on each of two
// nodes, so an 8-GPU pod cannot start, and the job behind it can.
func (s *stage) holes(ctx context.Context) error {
	s.say("\n--- With Muster: quota alone is not a place ---------------------------------")
	s.say("Eight 4-GPU jobs fill the cluster.")
	fillers := []string{"cherry", "date", "elder", "fig", "grape", "hazel", "iris", "juniper"}
	for _, name := range fillers {
		if err := s.create(ctx, training{name: name, nodes: 1, gpus: 4, queued: true}); err != nil {
			return err
		}
	}
	nodeOf := map[string]string{}
	for _, name := range fillers {
		if err := s.runsWhole(ctx, name, 1); err != nil {
			return err
		}
		pods, err := s.pods(ctx, name)
		if err != nil || len(pods) != 1 {
			return fmt.Errorf("%s has %s (%w)", name, plural(len(pods), "pod"), orNone(err))
		}
		nodeOf[name] = pods[0].Spec.NodeName
	}
	one := fillers[0]
	two := ""
	for _, name := range fillers {
		if nodeOf[name] != nodeOf[one] {
			two = name
		}
	}
	s.say("%s and %s end; they were on different nodes.", one, two)
	if err := s.clear(ctx, one, two); err != nil {
		return err
	}
	p, err := s.draw(ctx)
	if err != nil {
		return err
	}
	if free := p.free(); len(free) != 2 || free[nodeOf[one]] != 4 || free[nodeOf[two]] != 4 {
		return fmt.Errorf("free GPUs are %v, want 4 on %s and 4 on %s", free, nodeOf[one], nodeOf[two])
	}
	s.say("An 8-GPU job of one pod, kiwi, has quota: 8 of 32 are free. A 4-GPU job, lemon, comes behind it.")
	if err := s.create(ctx, training{name: "kiwi", nodes: 1, gpus: 8, queued: true}); err != nil {
		return err
	}
	if err := s.waitsWithNothing(ctx, "kiwi", "8 GPUs free, but no node has 8"); err != nil {
		return err
	}
	if err := s.create(ctx, training{name: "lemon", nodes: 1, gpus: 4, queued: true}); err != nil {
		return err
	}
	if err := s.runsWhole(ctx, "lemon", 1); err != nil {
		return err
	}
	s.say("lemon runs meanwhile.")
	_, err = s.draw(ctx)
	return err
}
