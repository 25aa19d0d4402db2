package placement

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"
	fwk "k8s.io/kube-scheduler/framework"
)

// SharesOpenClaim tells whether the pod names a claim, which others may name
// as well, that has no volume or devices yet. It gets them when a pod is bound,
// and until then the scheduler refuses the others: such pods must not be made
// to wait for each other.
func SharesOpenClaim(h fwk.Handle, pod *v1.Pod) bool {
	open, _ := openClaims(h, pod)
	return open
}

// AwaitsClaim tells whether such a claim is getting its volume or devices right
// now. A node that is refused meanwhile may be right in a moment.
func AwaitsClaim(h fwk.Handle, pod *v1.Pod) bool {
	_, binding := openClaims(h, pod)
	return binding
}

// openClaims is safe on any goroutine.
func openClaims(h fwk.Handle, pod *v1.Pod) (open, binding bool) {
	for i := range pod.Spec.Volumes {
		source := pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim, err := h.SharedInformerFactory().Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(pod.Namespace).Get(source.ClaimName)
		if err != nil || claim.Spec.VolumeName != "" {
			continue
		}
		open = true
		binding = binding || claim.Annotations[volume.AnnSelectedNode] != ""
	}
	for _, r := range pod.Spec.ResourceClaims {
		if r.ResourceClaimName == nil || h.SharedDRAManager() == nil {
			continue
		}
		tracker := h.SharedDRAManager().ResourceClaims()
		claim, err := tracker.Get(pod.Namespace, *r.ResourceClaimName)
		if err != nil || claim.Status.Allocation != nil {
			continue
		}
		open = true
		binding = binding || tracker.GetPendingAllocation(claim.UID) != nil
	}
	return open, binding
}
