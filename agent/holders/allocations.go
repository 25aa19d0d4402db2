package holders

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/api/gpu"
)

// Pod names a pod. The kubelet's list has no UID.
type Pod struct{ Namespace, Name string }

// Allocation is one device, or a share of one, in the hands of one pod.
type Allocation struct {
	ID  ID
	Pod Pod
	// Containers that have it, sorted. Of a claim that several containers of the pod
	// use it is not known which has which device: all are named.
	Containers []string
	// Share is the part of the device that the pod has: of a device that is shared out
	// its replicas among all, of a claim that several pods use an equal part.
	Share device.Share
	// Replicated: others may hold the device at the same time.
	Replicated bool
}

// MaxAllocations is more than a node can have: 16 GPUs of 256 shares.
const MaxAllocations = 4096

// Allocations are the devices that the pods of a list hold, sorted, each once for each
// pod. The kubelet lists a device once for each of its NUMA nodes, and in any order.
// replicas says into how many shares a device is divided, by GetAllocatableResources;
// where that is not known, as many as are held. What cannot be read is left out, and
// the error says what; it does not grow with the list.
func Allocations(list []*podresources.PodResources, replicas map[ID]int) ([]Allocation, error) {
	l := lister{held: map[hold]*taken{}}
	for _, pod := range list {
		name := Pod{Namespace: pod.GetNamespace(), Name: pod.GetName()}
		for _, container := range pod.GetContainers() {
			for _, d := range container.GetDevices() {
				if !isGPU(d.GetResourceName()) {
					continue
				}
				for _, text := range d.GetDeviceIds() {
					id, replica, err := ParseID(text)
					if err != nil {
						l.refuse(err)
						continue
					}
					l.take(id, name, container.GetName(), replica)
				}
			}
			for _, claim := range container.GetDynamicResources() {
				for _, d := range claim.GetClaimResources() {
					if d.GetDriverName() != gpu.Driver {
						continue
					}
					id := ID{Minor: -1, GPUInstance: -1, Driver: d.GetDriverName(), Pool: d.GetPoolName(), Device: d.GetDeviceName()}
					if len(id.Pool)+len(id.Device) > 2*maxIDLength {
						l.refuse(fmt.Errorf("the name of a device of driver %s has %d characters", id.Driver, len(id.Pool)+len(id.Device)))
						continue
					}
					l.take(id, name, container.GetName(), "")
				}
			}
		}
	}
	return l.allocations(replicas), l.err()
}

// Replicas says into how many shares each device is divided, from the devices that the
// kubelet can hand out.
func Replicas(allocatable []*podresources.ContainerDevices) map[ID]int {
	seen := map[ID]map[string]bool{}
	for _, d := range allocatable {
		if !isGPU(d.GetResourceName()) {
			continue
		}
		for _, text := range d.GetDeviceIds() {
			id, replica, err := ParseID(text)
			if err != nil || replica == "" || len(seen) >= MaxAllocations {
				continue
			}
			if seen[id] == nil {
				seen[id] = map[string]bool{}
			}
			seen[id][replica] = true
		}
	}
	replicas := map[ID]int{}
	for id, numbers := range seen {
		replicas[id] = len(numbers)
	}
	return replicas
}

// isGPU says that the resource is of GPUs that the agent can read.
func isGPU(resource string) bool {
	return strings.HasPrefix(resource, "nvidia.com/") && gpu.Is(corev1.ResourceName(resource))
}

// hold is one device in the hands of one pod.
type hold struct {
	id  ID
	pod Pod
}

// taken is what a pod has of a device.
type taken struct{ containers, replicas map[string]bool }

// lister collects the holds of one list.
type lister struct {
	held map[hold]*taken
	// first is what could not be read first, and refused how much could not be.
	first   error
	refused int
}

func (l *lister) refuse(err error) {
	if l.first == nil {
		l.first = err
	}
	l.refused++
}

func (l *lister) err() error {
	if l.first == nil {
		return nil
	}
	return fmt.Errorf("%d devices of the kubelet's list are left out, the first one because: %w", l.refused, l.first)
}

var errTooMany = errors.New("the list has more devices than a node can have")

func (l *lister) take(id ID, pod Pod, container, replica string) {
	h := hold{id, pod}
	if l.held[h] == nil {
		if len(l.held) >= MaxAllocations {
			l.refuse(errTooMany)
			return
		}
		l.held[h] = &taken{containers: map[string]bool{}, replicas: map[string]bool{}}
	}
	l.held[h].containers[container] = true
	if replica != "" {
		l.held[h].replicas[replica] = true
	}
}

func (l *lister) allocations(replicas map[ID]int) []Allocation {
	pods, shares := map[ID]int{}, map[ID]int{}
	for h, t := range l.held {
		pods[h.id]++
		shares[h.id] += len(t.replicas)
	}
	all := make([]Allocation, 0, len(l.held))
	for h, t := range l.held {
		a := Allocation{ID: h.id, Pod: h.pod, Share: device.Share{Parts: 1, Of: int64(pods[h.id])}}
		if n := len(t.replicas); n > 0 {
			a.Share = device.Share{Parts: int64(n), Of: int64(max(replicas[h.id], shares[h.id]))}
		}
		a.Replicated = len(t.replicas) > 0 || h.id.Driver != ""
		for name := range t.containers {
			a.Containers = append(a.Containers, name)
		}
		slices.Sort(a.Containers)
		all = append(all, a)
	}
	slices.SortFunc(all, compare)
	return all
}
