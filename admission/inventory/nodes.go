package inventory

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/policy"
)

// staleAfter is when what a node's agent has written is no longer believed.
const staleAfter = 3 * time.Minute

// addNodes adds what the nodes' agents say. A GPU is idle if somebody holds it and no
// holder uses it; it counts once for a namespace, and for each pod of it. Nodes that have not
// been heard of lately have GPUs, and none that is known to be idle.
func addNodes(out *policy.Inventory, nodes []*v1alpha1.GPUNode, now time.Time) {
	for _, node := range nodes {
		facts := policy.GPUNode{GPUs: int64(node.Status.Summary.Devices)}
		heard := node.Status.LastHeartbeat.Time
		if heard.After(now) {
			heard = now // that node's clock is fast
		}
		if heard.After(out.ObservedAt) {
			out.ObservedAt = heard
		}
		if now.Sub(heard) < staleAfter {
			var inNamespace map[string]int64
			facts.Idle, inNamespace = idle(node.Status.Devices)
			for name, n := range inNamespace {
				if namespace, exists := out.Namespaces[name]; exists {
					namespace.IdleGPUs += n
					out.Namespaces[name] = namespace
				}
			}
		}
		out.GPUNodes[node.Name] = facts
	}
}

// idle are the pods that hold GPUs which nobody uses, by their names, and how many of
// these each namespace holds.
func idle(devices []v1alpha1.GPUDevice) ([]policy.Holder, map[string]int64) {
	type pod struct{ namespace, name string }
	pods, namespaces := map[pod]int64{}, map[string]int64{}
	for i := range devices {
		holders := devices[i].Holders
		if slices.ContainsFunc(holders, func(h v1alpha1.GPUHolder) bool { return h.Verdict != v1alpha1.GPUIdle }) {
			continue
		}
		counted := map[string]bool{}
		for _, h := range holders {
			pods[pod{h.Namespace, h.Pod}]++
			if !counted[h.Namespace] {
				counted[h.Namespace] = true
				namespaces[h.Namespace]++
			}
		}
	}
	var out []policy.Holder
	for p, n := range pods {
		out = append(out, policy.Holder{Namespace: p.namespace, Pod: p.name, GPUs: n})
	}
	slices.SortFunc(out, func(a, b policy.Holder) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	return out, namespaces
}

// sameFacts says that two reports of a node differ in nothing but their age, as far as
// policies know.
func sameFacts(a, b *v1alpha1.GPUNode) bool {
	pods, namespaces := idle(a.Status.Devices)
	podsThen, namespacesThen := idle(b.Status.Devices)
	return a.Status.Summary.Devices == b.Status.Summary.Devices && slices.Equal(pods, podsThen) && maps.Equal(namespaces, namespacesThen)
}
