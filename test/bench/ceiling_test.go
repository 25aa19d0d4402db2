package bench

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ceilingWorkers are how many bindings are sent at a time, one number after the
// other: what the API server does at most is the best of them.
var ceilingWorkers = []int{8, 16, 32}

// ceiling has all pods of a load bound by nobody who would decide anything: each
// worker takes the next pod, whose node is known, and sends its binding as a
// scheduler does. The figures are those of the fastest number of workers.
func (r *gangRun) ceiling(ctx context.Context) (*gangFigures, error) {
	config := rest.CopyConfig(r.cluster.Config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	nodes := &corev1.NodeList{}
	if err := r.cluster.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	var best *gangFigures
	for _, workers := range ceilingWorkers {
		prefix := fmt.Sprintf("w%d", workers)
		if err := r.submit(ctx, prefix); err != nil {
			return nil, err
		}
		f, err := r.measure(ctx, func(ctx context.Context) error {
			return inParallel(ctx, workers, r.load.pods(), func(ctx context.Context, i int) error {
				pod := r.load.pod(prefix, i/r.load.size, i%r.load.size, r.scheduler)
				binding := &corev1.Binding{
					ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
					Target:     corev1.ObjectReference{Kind: "Node", Name: nodes.Items[i/8].Name},
				}
				if err := k.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
					return fmt.Errorf("binding pod %s: %w", pod.Name, err)
				}
				if !r.events {
					return nil
				}
				if _, err := k.EventsV1().Events(pod.Namespace).Create(ctx, scheduled(pod, binding.Target.Name), metav1.CreateOptions{}); err != nil {
					return fmt.Errorf("writing the event of pod %s: %w", pod.Name, err)
				}
				return nil
			})
		})
		if err != nil {
			return nil, err
		}
		fmt.Printf("  %s, %s, %d workers: %.0f pods/s\n", r.name, r.load, workers, f.perSecond())
		if best == nil || f.perSecond() > best.perSecond() {
			best = f
		}
	}
	return best, nil
}

// scheduled is the event that a kube-scheduler writes about a pod.
func scheduled(pod *corev1.Pod, node string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + ".scheduled"},
		EventTime:  metav1.NowMicro(), ReportingController: "nobody", ReportingInstance: "nobody",
		Type: corev1.EventTypeNormal, Reason: "Scheduled", Action: "Binding",
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name},
		Note:      fmt.Sprintf("Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node),
	}
}
