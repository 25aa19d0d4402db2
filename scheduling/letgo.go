package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/workload"
)

// asksAnew says that a pod whose job was let go is not meant by that. A pod that
// waits in a queue is not: its group's pods were all on nodes by then. Nor is
// one that has come to its group since: the group may have a queue now, and is
// to be read again before the pod is let in.
func (l *Ledger) asksAnew(owner types.UID, pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return false
	}
	job, alone := workload.PodJob(pod)
	switch {
	case !alone:
		return false
	case pod.Labels[workload.QueueLabel] != "":
		return true
	case job.Kind != workload.PodGroupGVK.Kind:
		return false
	}
	_, free := l.free[owner][pod.UID]
	return !free
}

// LetGo lets the pods of a group go, with which it was read as one that Muster
// does not manage. Others that come to it wait until it is read again.
func (l *Ledger) LetGo(group types.UID, pods []*corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			continue
		}
		if l.free[group] == nil {
			l.free[group] = map[types.UID]struct{}{}
		}
		l.free[group][pod.UID] = struct{}{}
	}
	l.unmanaged(group)
	if uid, known := l.podOwners[group]; known && uid == "" {
		l.adopt(group)
	}
}

// unfree forgets that a pod was let go, which is on a node or gone.
func (l *Ledger) unfree(pod *corev1.Pod) {
	if len(l.free) == 0 {
		return
	}
	owner, _, _ := workload.SlotOf(pod)
	delete(l.free[owner], pod.UID)
	if len(l.free[owner]) == 0 {
		delete(l.free, owner)
	}
}

// Unmanaged records that pods of podOwner are none of Muster's business. The
// pods of a job that is charged stay its own until they are gone.
func (l *Ledger) Unmanaged(podOwner types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unmanaged(podOwner)
}

func (l *Ledger) unmanaged(podOwner types.UID) {
	if uid, known := l.podOwners[podOwner]; known && (uid == "" || l.jobs[uid] != nil) {
		return
	}
	l.podOwners[podOwner] = ""
	l.adopt(podOwner)
}

// isUnmanaged says that pods of podOwner were let go.
func (l *Ledger) isUnmanaged(podOwner types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	uid, known := l.podOwners[podOwner]
	return known && uid == ""
}

// ForgetPodOwner drops what is known of an unmanaged pod owner that was
// deleted.
func (l *Ledger) ForgetPodOwner(podOwner types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if uid, known := l.podOwners[podOwner]; known && uid == "" {
		delete(l.podOwners, podOwner)
		delete(l.free, podOwner)
	}
}
