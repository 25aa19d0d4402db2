package placement

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-gpu/muster/placement/fragmentation"
)

// Mix is what GPUs the cluster's jobs have asked for lately, and on which nodes.
// Pods are placed so that what is left over is of use to such jobs. It is safe
// for concurrent use.
type Mix struct {
	isGPU func(v1.ResourceName) bool
	// islands may be nil.
	islands *Islands

	mu       sync.Mutex
	observed fragmentation.Histogram
	pools    []pool
	version  int
}

// pool is the nodes that some pods may use: those with their kind of GPUs and
// the labels that they select by. What else keeps pods off nodes does not count.
type pool struct {
	gpu      v1.ResourceName
	selector map[string]string
}

// mixture is the Mix as it is at one time. It does not change.
type mixture struct {
	*fragmentation.Mix
	pools []pool
	// version counts the changes of pools.
	version int
}

func newMix(isGPU func(v1.ResourceName) bool) *Mix { return &Mix{isGPU: isGPU} }

// Islands is what is known of GPUs inside nodes, nil if nothing is.
func (m *Mix) Islands() *Islands { return m.islands }

// Observe notes what a job asks for. Pods without GPUs do not count, nor do pods
// that cannot be read.
func (m *Mix) Observe(gang Gang) {
	for _, class := range gang.Classes {
		if d, err := demandOfPod(class.Pod, m.isGPU); err == nil && d.gpus > 0 {
			m.observe(pool{d.gpuName(), class.Pod.Spec.NodeSelector}, d.request(), class.Count)
		}
	}
}

func (m *Mix) observe(p pool, r fragmentation.Request, count int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.Pool = m.number(p)
	m.observed.Observe(r, count)
}

// number is that of a pool. A new one gets the number of one that is in no
// request that is remembered; if there is none, the least request is forgotten.
func (m *Mix) number(p pool) uint8 {
	for i, known := range m.pools {
		if known.gpu == p.gpu && maps.Equal(known.selector, p.selector) {
			return uint8(i)
		}
	}
	m.version++
	if len(m.pools) < fragmentation.MaxPools {
		m.pools = append(m.pools, p)
		return uint8(len(m.pools) - 1)
	}
	number := m.observed.FreePool()
	// The slice may be that of a mixture.
	m.pools = slices.Clone(m.pools)
	m.pools[number] = p
	return number
}

func (m *Mix) now() mixture {
	m.mu.Lock()
	defer m.mu.Unlock()
	return mixture{m.observed.Mix(), m.pools, m.version}
}

// of are the pools that a node is in.
func (m *mixture) of(node fwk.NodeInfo) (pools uint64) {
	for i := range m.pools {
		if m.pools[i].has(node) {
			pools |= 1 << i
		}
	}
	return pools
}

// mask are the pools of those who can use the GPUs that count for a demand.
func (m *mixture) mask(d *demand) (pools uint64) {
	for i := range m.pools {
		if d.gpus == 0 || d.has(m.pools[i].gpu) {
			pools |= 1 << i
		}
	}
	return pools
}

// has tells whether a node is in the pool.
func (p *pool) has(node fwk.NodeInfo) bool {
	if node.GetAllocatable().GetScalarResources()[p.gpu] == 0 {
		return false
	}
	for key, value := range p.selector {
		if found, ok := node.Node().Labels[key]; !ok || found != value {
			return false
		}
	}
	return true
}

// Fit is how well pods like one go onto nodes. It is safe for concurrent use.
type Fit struct {
	mixture mixture
	demand  demand
	request fragmentation.Request
	mask    uint64
	isGPU   func(v1.ResourceName) bool
	islands *Islands
}

// Fit is that of a pod. The error is that of a pod that cannot be read.
func (m *Mix) Fit(pod *v1.Pod) (*Fit, error) {
	d, err := demandOfPod(pod, m.isGPU)
	if err != nil {
		return nil, err
	}
	now := m.now()
	return &Fit{mixture: now, demand: d, request: d.request(), mask: now.mask(&d), isGPU: m.isGPU, islands: m.islands}, nil
}

// GPUs is how many GPUs the pod asks for.
func (f *Fit) GPUs() int64 { return f.demand.gpus }

// HasGPUs tells whether a node has GPUs that count for the pod, free or not; for
// a pod without GPUs those of all kinds count.
func (f *Fit) HasGPUs(node fwk.NodeInfo) bool {
	return f.demand.gpusOf(node.GetAllocatable(), f.isGPU) > 0
}

// On is the score on a node that Filter lets the pod onto, and how many of its
// GPUs are free.
func (f *Fit) On(node fwk.NodeInfo) (Score, int64) {
	gpus := f.demand.freeGPUs(node, f.isGPU)
	free := remainderOn(node, f.mixture.of(node)&f.mask).free(gpus)
	score, _ := f.mixture.Place(&free, &f.request)
	return scoreOf(score, f.islands.fit(node, gpus, &f.demand, 1), f.mixture.Mix, free.Pools), gpus
}

func demandOfPod(pod *v1.Pod, isGPU func(v1.ResourceName) bool) (demand, error) {
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return demand{}, err
	}
	return demandOf(info.CalculateResource().Resource, isGPU), nil
}

// request is what the demand is for the mix.
func (d *demand) request() fragmentation.Request {
	return fragmentation.Request{MilliCPU: d.milliCPU, Memory: d.memory, Devices: int32(d.gpus)}
}

// gpuName is the resource name of the GPUs, the first of several.
func (d *demand) gpuName() v1.ResourceName {
	for _, s := range d.scalars {
		if s.gpu {
			return s.name
		}
	}
	return ""
}

// has says that the demand has GPUs of that name.
func (d *demand) has(gpu v1.ResourceName) bool {
	return slices.ContainsFunc(d.scalars, func(s scalar) bool { return s.gpu && s.name == gpu })
}

// freeGPUs are the free GPUs of a node that count for the demand, as of gpusOf.
func (d *demand) freeGPUs(node fwk.NodeInfo, isGPU func(v1.ResourceName) bool) int64 {
	return d.gpusOf(node.GetAllocatable(), isGPU) - d.gpusOf(node.GetRequested(), isGPU)
}
