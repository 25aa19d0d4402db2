package simulator

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// The event handlers run one after the other for one kind, in the order of the
// API's events. What frees or takes GPU indices is therefore done here and not
// by the workers: the end of one pod is seen before the next one is bound to
// its GPUs.

func (s *simulator) watchPods(informer cache.SharedIndexInformer) error {
	err := informer.AddIndexers(cache.Indexers{gangIndex: func(object any) ([]string, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("indexing a %T as a pod", object)
		}
		return []string{gangKey(pod)}, nil
	}, nodeIndex: func(object any) ([]string, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("indexing a %T as a pod", object)
		}
		return []string{pod.Spec.NodeName}, nil
	}})
	if err != nil {
		return fmt.Errorf("indexing pods: %w", err)
	}
	s.pods = informer.GetIndexer()
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { s.podChanged(object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { s.podChanged(object.(*corev1.Pod)) },
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				s.forget(pod.UID)
				s.queue.Add(gangKey(pod))
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	s.podsSeen = handler.HasSynced
	return nil
}

func (s *simulator) podChanged(pod *corev1.Pod) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		s.gpus.release(pod.UID)
	} else if indices, err := parseIndices(pod.Annotations[GPUsAnnotation]); err != nil {
		klog.Background().Error(err, "Ignoring the GPU indices of a pod", "pod", klog.KObj(pod))
	} else if err := s.gpus.adopt(pod.Spec.NodeName, pod.UID, indices); err != nil {
		klog.Background().Error(err, "Ignoring the GPU indices of a pod", "pod", klog.KObj(pod))
	}
	s.queue.Add(gangKey(pod))
}

func (s *simulator) watchJobs(informer cache.SharedIndexInformer) error {
	err := informer.AddIndexers(cache.Indexers{gangIndex: func(object any) ([]string, error) {
		job, ok := object.(*batchv1.Job)
		if !ok {
			return nil, fmt.Errorf("indexing a %T as a Job", object)
		}
		return []string{jobGangKey(job)}, nil
	}})
	if err != nil {
		return fmt.Errorf("indexing Jobs by gang: %w", err)
	}
	s.jobs = informer.GetIndexer()
	wake := func(object any) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		if job, ok := object.(*batchv1.Job); ok {
			s.queue.Add(jobGangKey(job))
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: wake, DeleteFunc: wake,
		UpdateFunc: func(old, object any) {
			// A Job's status changes with each of its pods, and says nothing
			// about the size of the gang.
			if old.(*batchv1.Job).Generation != object.(*batchv1.Job).Generation {
				wake(object)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching Jobs: %w", err)
	}
	return nil
}

// watchNodes wakes the gangs with pods on a node that appears: pods may have
// been seen before their node.
func (s *simulator) watchNodes(informer cache.SharedIndexInformer) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		node, ok := object.(*corev1.Node)
		if !ok || s.pods == nil {
			return
		}
		for _, entry := range s.pods.List() {
			if pod := entry.(*corev1.Pod); pod.Spec.NodeName == node.Name {
				s.queue.Add(gangKey(pod))
			}
		}
	}})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	return nil
}
