package simulator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// next looks at one gang; false ends the worker.
func (s *simulator) next(ctx context.Context) bool {
	key, shutdown := s.queue.Get()
	if shutdown {
		return false
	}
	defer s.queue.Done(key)
	again, err := s.sync(ctx, key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if !apierrors.IsConflict(err) {
			klog.FromContext(ctx).Error(err, "Simulating a gang", "gang", key)
		}
		s.queue.AddRateLimited(key)
	default:
		s.queue.Forget(key)
		if !again.IsZero() {
			// Timers may fire early by their resolution.
			s.queue.AddAfter(key, again.Sub(s.clock.Now())+time.Millisecond)
		}
	}
	return true
}

// sync takes the next step of every pod of a gang that has one, and returns
// when the earliest of the others has.
func (s *simulator) sync(ctx context.Context, key string) (again time.Time, err error) {
	pods, err := typed[*corev1.Pod](s.pods.ByIndex(gangIndex, key))
	if err != nil || len(pods) == 0 {
		return time.Time{}, err
	}
	jobs, err := typed[*batchv1.Job](s.jobs.ByIndex(gangIndex, key))
	if err != nil {
		return time.Time{}, err
	}
	now := s.clock.Now()
	// One pod's failed write is no reason to give up the others'.
	var group errgroup.Group
	group.SetLimit(parallelWrites)
	for _, step := range plan(key, pods, jobs, now) {
		if step.do == wait {
			if !step.again.IsZero() && (again.IsZero() || step.again.Before(again)) {
				again = step.again
			}
			continue
		}
		if version, ok := s.decidedOn.Load(step.pod.UID); ok && version == step.pod.ResourceVersion {
			// Our own write is not in the cache yet; its event wakes us.
			continue
		}
		group.Go(func() error { return s.take(ctx, step, now) })
	}
	return again, group.Wait()
}

// step is the decision for one pod.
type step struct {
	decision
	pod *corev1.Pod
	// invalid says why the pod's annotations cannot be followed.
	invalid error
}

// plan decides for every pod of a gang.
func plan(key string, pods []*corev1.Pod, jobs []*batchv1.Job, now time.Time) []step {
	expected, known := expectedRanks(key, jobs)
	ranks := gangRanks(pods, expected)
	if !known {
		// No number of pods completes a gang of which Jobs are missing.
		expected = len(pods) + 1
	}
	queue := len(jobs) == 1 && jobs[0].Labels[jobSetUIDLabel] == "" && isQueue(jobs[0])
	steps := make([]step, 0, len(pods))
	for _, pod := range pods {
		behaviour, err := behaviourOf(pod)
		theirs, size := ranks, expected
		if queue {
			theirs, size = []rank{rankOf(pod)}, 1
		}
		steps = append(steps, step{decision: decide(pod, behaviour, theirs, size, now), pod: pod, invalid: err})
	}
	return steps
}

// take does one step. What the API refuses because the pod changed meanwhile
// is decided anew on the next event.
func (s *simulator) take(ctx context.Context, st step, now time.Time) error {
	pod := st.pod
	node, err := s.nodes.Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) || err == nil && !simulated(node) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking up node %s: %w", pod.Spec.NodeName, err)
	}
	switch st.do {
	case admit:
		return s.admit(ctx, node, st, now)
	case run:
		address := podIP(int(s.address.Add(1) - 1))
		return s.write(ctx, pod, running(pod, hostIP(node), address, now))
	case finish:
		if err := s.write(ctx, pod, finished(pod, st.exitCode, now)); err != nil {
			return err
		}
		s.gpus.release(pod.UID)
		return nil
	case remove:
		err := s.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("removing pod %s: %w", klog.KObj(pod), err)
		}
		s.decidedOn.Store(pod.UID, pod.ResourceVersion)
		return nil
	}
	return fmt.Errorf("unknown step %q of pod %s", st.do, klog.KObj(pod))
}

func (s *simulator) admit(ctx context.Context, node *corev1.Node, st step, now time.Time) error {
	pod := st.pod
	if st.invalid != nil {
		return s.write(ctx, pod, refused(pod, reasonSimulation, st.invalid, now))
	}
	claimed, err := s.claimed(ctx, pod)
	if err != nil {
		return err
	}
	total := node.Status.Allocatable[GPUResource]
	indices, fresh, err := s.gpus.allocate(node.Name, int(total.Value()), pod.UID, claimed, gpusAsked(pod))
	if err != nil {
		return s.write(ctx, pod, refused(pod, reasonAdmission, err, now))
	}
	err = s.write(ctx, pod, admitted(pod, indices, now))
	// Only a definite no frees the indices: a write whose answer was lost may
	// have given them to the pod.
	if fresh && (apierrors.IsConflict(err) || errors.Is(err, errGone)) {
		s.gpus.release(pod.UID)
	}
	return err
}

// errGone: the pod is no longer in the API.
var errGone = errors.New("the pod is gone")

func (s *simulator) write(ctx context.Context, pod *corev1.Pod, patch podPatch) error {
	content, err := patch.encode()
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, content, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	if err != nil {
		return fmt.Errorf("writing the status of pod %s: %w", klog.KObj(pod), err)
	}
	s.decidedOn.Store(pod.UID, pod.ResourceVersion)
	return nil
}

// typed types what an index returns.
func typed[T any](entries []any, err error) ([]T, error) {
	if err != nil {
		return nil, fmt.Errorf("looking up objects: %w", err)
	}
	objects := make([]T, 0, len(entries))
	for _, entry := range entries {
		object, ok := entry.(T)
		if !ok {
			return nil, fmt.Errorf("looking up objects: found a %T", entry)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
