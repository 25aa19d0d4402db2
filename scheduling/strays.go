package scheduling

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/workload"
)

// adopt gives the pods that were waiting for their owner to be read their
// places, or lets them go where the owner is not managed.
func (l *Ledger) adopt(podOwner types.UID) {
	pods := l.strays[podOwner]
	delete(l.strays, podOwner)
	var free []*corev1.Pod
	for _, p := range slices.SortedFunc(maps.Values(pods), boundFirst) {
		if m, _, _ := l.jobOf(p); m == foreign {
			free = append(free, p)
		} else {
			l.record(p)
		}
	}
	if len(free) > 0 {
		l.effects.Activate(free)
	}
}

// unstray forgets a pod whose owner was never read.
func (l *Ledger) unstray(pod *corev1.Pod) {
	owner, _, ok := workload.SlotOf(pod)
	if !ok {
		return
	}
	l.unfree(pod)
	delete(l.strays[owner], pod.UID)
	if len(l.strays[owner]) == 0 {
		delete(l.strays, owner)
	}
	if uid, known := l.podOwners[owner]; known && uid == "" {
		if job, alone := workload.PodJob(pod); alone && job.UID == pod.UID {
			delete(l.podOwners, owner)
		} else if alone {
			l.effects.Sync(keyOf(job))
		}
	}
}

// found takes in the pods of a job that are there already, which nobody told
// of it while its pods were let go. One that is assumed on a node is told when
// it is bound.
func (l *Ledger) found(pods []*corev1.Pod) {
	for _, p := range pods {
		if assumed, err := l.cache.IsAssumedPod(p); err != nil || assumed {
			continue
		}
		if have, err := l.cache.GetPod(p); err == nil {
			l.record(have)
		} else if p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
			l.record(p)
		}
	}
}
