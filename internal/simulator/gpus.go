package simulator

import (
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
)

// GPUResource is the resource whose units have indices.
const GPUResource corev1.ResourceName = "nvidia.com/gpu"

// gpuBook records which pod holds which GPU index of each node. An index
// belongs to one pod at a time, from admission until the pod has ended or is
// gone.
type gpuBook struct {
	mu sync.Mutex
	// holders maps node, then index, to the pod that holds it.
	holders map[string]map[int]types.UID
	// held maps a pod to what it holds.
	held map[types.UID]holding
}

type holding struct {
	node    string
	indices []int
}

func newGPUBook() *gpuBook {
	return &gpuBook{holders: map[string]map[int]types.UID{}, held: map[types.UID]holding{}}
}

// allocate gives pod the GPUs that it claims, and the count lowest free indices of
// a node with total GPUs. A pod that holds indices already gets the same again, and
// fresh is false. The error says what the kubelet's device manager says; a GPU that
// is claimed twice is one too.
func (b *gpuBook) allocate(node string, total int, pod types.UID, claimed []int, count int) (indices []int, fresh bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h, ok := b.held[pod]; ok {
		return h.indices, false, nil
	}
	if err := b.free(node, pod, claimed); err != nil {
		return nil, false, err
	}
	if len(claimed)+count == 0 {
		return nil, false, nil
	}
	for index := 0; index < total && len(indices) < count; index++ {
		if _, taken := b.holders[node][index]; !taken && !slices.Contains(claimed, index) {
			indices = append(indices, index)
		}
	}
	if len(indices) < count {
		return nil, false, fmt.Errorf("allocate failed due to requested number of devices unavailable for %s: requested %d, available %d", GPUResource, count, len(indices))
	}
	indices = slices.Sorted(slices.Values(slices.Concat(claimed, indices)))
	b.record(node, pod, indices)
	return indices, true, nil
}

// adopt records what an annotation says that a pod holds, as after a restart.
// An index that another pod holds already is an error, and nothing is
// recorded.
func (b *gpuBook) adopt(node string, pod types.UID, indices []int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.held[pod]; ok || len(indices) == 0 {
		return nil
	}
	if err := b.free(node, pod, indices); err != nil {
		return err
	}
	b.record(node, pod, indices)
	return nil
}

// free says by its error which of the indices another pod holds.
func (b *gpuBook) free(node string, pod types.UID, indices []int) error {
	for _, index := range indices {
		if holder, taken := b.holders[node][index]; taken {
			return fmt.Errorf("GPU %d of node %s is held by pod %s, and claimed by pod %s", index, node, holder, pod)
		}
	}
	return nil
}

func (b *gpuBook) record(node string, pod types.UID, indices []int) {
	if b.holders[node] == nil {
		b.holders[node] = map[int]types.UID{}
	}
	for _, index := range indices {
		b.holders[node][index] = pod
	}
	b.held[pod] = holding{node: node, indices: indices}
}

// release frees what a pod holds, if anything.
func (b *gpuBook) release(pod types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, ok := b.held[pod]
	if !ok {
		return
	}
	delete(b.held, pod)
	for _, index := range h.indices {
		delete(b.holders[h.node], index)
	}
}

// gpusAsked is how many GPUs a pod's containers need at the same time of those that
// its node advertises: init containers run before the others and use the same ones.
func gpusAsked(pod *corev1.Pod) int {
	if pod.Status.ExtendedResourceClaimStatus != nil {
		return 0
	}
	quantity := resource.PodRequests(pod, resource.PodResourcesOptions{})[GPUResource]
	return int(quantity.Value())
}
