package placement

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

// Without is a snapshot from which pods are taken for a while: what is planned
// on it meanwhile is planned as if they had left their nodes. End makes the
// snapshot exactly what it was.
//
// Devices that no other pods share with them are free meanwhile, unless they are shared
// out by their capacity. Volumes that the pods have stay theirs: a plan that needs just
// those is missed.
type Without struct {
	snap   *cache.Snapshot
	logger klog.Logger
	claims *claims
	// away are the pods that are off their nodes now.
	away map[types.UID]awayPod
}

type awayPod struct {
	info fwk.PodInfo
	node string
}

// Without begins on a snapshot that must not be refreshed before End. It
// costs as much as all nodes of the snapshot are copied for. It must run on
// the scheduler's scheduling goroutine.
func (p *Planner) Without(logger klog.Logger, snap *cache.Snapshot) (*Without, error) {
	if err := snap.StartMutations(); err != nil {
		return nil, fmt.Errorf("taking pods off the snapshot: %w", err)
	}
	return &Without{snap: snap, logger: logger, claims: p.claims, away: map[types.UID]awayPod{}}, nil
}

// Remove takes pods off their nodes. One that the snapshot does not have, or
// that is off already, is passed over.
func (w *Without) Remove(pods []*v1.Pod) error {
	for _, pod := range pods {
		if _, off := w.away[pod.UID]; off {
			continue
		}
		info := w.find(pod)
		if info == nil {
			continue
		}
		if err := w.snap.RemovePod(w.logger, info.GetPod(), pod.Spec.NodeName); err != nil {
			return fmt.Errorf("taking pod %s off the snapshot: %w", klog.KObj(pod), err)
		}
		w.away[pod.UID] = awayPod{info, pod.Spec.NodeName}
		w.claims.absent(info.GetPod(), true)
	}
	return nil
}

// Restore puts pods back that Remove has taken; others are passed over.
func (w *Without) Restore(pods []*v1.Pod) error {
	for _, pod := range pods {
		p, off := w.away[pod.UID]
		if !off {
			continue
		}
		if err := w.snap.AddPod(p.info, p.node); err != nil {
			return fmt.Errorf("putting pod %s back into the snapshot: %w", klog.KObj(pod), err)
		}
		delete(w.away, pod.UID)
		w.claims.absent(p.info.GetPod(), false)
	}
	return nil
}

// End gives the snapshot back as it was when the Without began.
func (w *Without) End() error {
	if w.snap == nil {
		return errors.New("the pods are back in the snapshot already")
	}
	for _, p := range w.away {
		w.claims.absent(p.info.GetPod(), false)
	}
	err := w.snap.EndMutations()
	w.snap = nil
	return err
}

// find is the pod as the snapshot has it, nil if it does not.
func (w *Without) find(pod *v1.Pod) fwk.PodInfo {
	node, err := w.snap.Get(pod.Spec.NodeName)
	if err != nil {
		return nil
	}
	for _, info := range node.GetPods() {
		if info.GetPod().UID == pod.UID {
			return info
		}
	}
	return nil
}
