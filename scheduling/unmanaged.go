package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/workload"
)

// Why GPUs in use are charged to nobody: values of a metric's label.
const (
	// noQueue: the pods name no queue and were let run.
	noQueue = "no-queue"
	// otherScheduler: the pods name a scheduler that is not Muster's.
	otherScheduler = "other-scheduler"
	// notAdmitted: the pods name a queue, and somebody put them onto their
	// nodes without an admission.
	notAdmitted = "not-admitted"
)

// unmanagedIn is a label pair of muster_unmanaged_gpus.
type unmanagedIn struct{ namespace, reason string }

// countUnmanaged measures the GPUs that pods take which Muster did not admit.
func (j *Jobs) countUnmanaged() {
	pods, err := j.pods.List(labels.Everything())
	if err != nil {
		// The lister reads memory.
		klog.Background().Error(err, "Listing pods")
		return
	}
	var onNodes []*corev1.Pod
	for _, pod := range pods {
		if pod.Spec.NodeName != "" && (workload.AsksGPU(pod) || j.renderer.ClaimsGPU(pod)) {
			onNodes = append(onNodes, pod)
		}
	}
	gpus, claiming := map[unmanagedIn]int64{}, map[unmanagedIn][]*corev1.Pod{}
	for pod, why := range j.ledger.uncharged(onNodes) {
		at := unmanagedIn{pod.Namespace, why}
		if why == noQueue && !j.served.Has(pod.Spec.SchedulerName) {
			at.reason = otherScheduler
		}
		gpus[at] += workload.GPUs(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
		claiming[at] = append(claiming[at], pod)
	}
	for at, pods := range claiming {
		gpus[at] += j.renderer.ClaimedGPUs(pods)
	}
	for at, n := range gpus {
		metrics.UnmanagedGPUs.WithLabelValues(at.namespace, at.reason).Set(float64(n))
	}
	for at := range j.unmanaged {
		if _, still := gpus[at]; !still {
			metrics.UnmanagedGPUs.DeleteLabelValues(at.namespace, at.reason)
		}
	}
	j.unmanaged = gpus
}

// uncharged says of pods on nodes which are charged to nobody, and why.
func (l *Ledger) uncharged(pods []*corev1.Pod) map[*corev1.Pod]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[*corev1.Pod]string{}
	for _, pod := range pods {
		switch m, e, _ := l.jobOf(pod); {
		case m == stray:
			// Whose it is will be known in a moment.
		case m == foreign && pod.Labels[workload.QueueLabel] == "":
			out[pod] = noQueue
		case m == foreign, !e.holdsCapacity(), e.seats[pod.UID] == nil:
			out[pod] = notAdmitted
		}
	}
	return out
}
