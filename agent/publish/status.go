package publish

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/agent/reader"
	"github.com/muster-gpu/muster/agent/verdict"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

// Device is what is known of one device.
type Device struct {
	Reading reader.Reading
	Holders []Holder
}

// Holder is a pod that holds a device, and what it does with it.
type Holder struct {
	Namespace, Pod, UID string
	Containers          []string
	// Share of the device.
	Share device.Share
	// Workload as "TrainJob/llm", and its ClusterQueue; "" where not known.
	Workload, Queue string
	Standing        verdict.Standing
}

// The most that is told of what is wrong with a device: reasons, and bytes of each.
const (
	maxReasons = 4
	maxReason  = 128
)

// Status is what a GPUNode says of these devices, without a heartbeat. It is the same
// in whatever order they come.
func Status(devices []Device, conditions ...metav1.Condition) v1alpha1.GPUNodeStatus {
	status := v1alpha1.GPUNodeStatus{Conditions: conditions}
	minors, cut := map[string]int32{}, map[string]bool{}
	for _, d := range devices {
		minors[d.Reading.Device.UUID] = int32(d.Reading.Device.Minor)
		cut[d.Reading.Device.Parent] = true
	}
	for _, d := range devices {
		said := say(d, minors)
		status.Devices = append(status.Devices, said)
		if cut[said.UUID] {
			continue
		}
		status.Summary.Devices++
		if len(said.Unhealthy) > 0 {
			status.Summary.Unhealthy++
		}
		if len(said.Holders) == 0 {
			continue
		}
		status.Summary.Held++
		if !slices.ContainsFunc(said.Holders, func(h v1alpha1.GPUHolder) bool { return h.Verdict != v1alpha1.GPUIdle }) {
			status.Summary.Idle++
		}
	}
	slices.SortFunc(status.Devices, func(a, b v1alpha1.GPUDevice) int {
		return cmp.Or(cmp.Compare(a.Minor, b.Minor), cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.UUID, b.UUID))
	})
	return status
}

func say(d Device, minors map[string]int32) v1alpha1.GPUDevice {
	about := d.Reading.Device
	said := v1alpha1.GPUDevice{
		UUID:      about.UUID,
		Minor:     int32(about.Minor),
		Product:   about.Product,
		MemoryMiB: int64(about.MemoryBytes >> 20),
		Profile:   about.Profile,
		PCIRoot:   about.PCIRoot,
		Island:    about.Island,
	}
	if about.NUMANode >= 0 {
		node := int32(about.NUMANode)
		said.NUMANode = &node
	}
	for _, peer := range about.Peers {
		if minor, there := minors[peer]; there {
			said.NVLinkPeers = append(said.NVLinkPeers, minor)
		}
	}
	slices.Sort(said.NVLinkPeers)
	reasons := d.Reading.Health.Reasons
	if d.Reading.Health.Lost {
		reasons = append([]string{reader.ErrLost.Error()}, reasons...)
	}
	for _, reason := range reasons[:min(len(reasons), maxReasons)] {
		said.Unhealthy = append(said.Unhealthy, reason[:min(len(reason), maxReason)])
	}
	for _, h := range d.Holders {
		holder := v1alpha1.GPUHolder{
			Namespace:   h.Namespace,
			Pod:         h.Pod,
			PodUID:      h.UID,
			Containers:  h.Containers,
			Workload:    h.Workload,
			Queue:       h.Queue,
			Verdict:     v1alpha1.GPUVerdict(h.Standing.Verdict),
			Since:       metav1.NewTime(h.Standing.Since).Rfc3339Copy(),
			Reclaimable: h.Standing.Reclaimable,
		}
		if h.Share.Parts != h.Share.Of {
			holder.Share = fmt.Sprintf("%d/%d", h.Share.Parts, h.Share.Of)
		}
		said.Holders = append(said.Holders, holder)
	}
	slices.SortFunc(said.Holders, func(a, b v1alpha1.GPUHolder) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.PodUID, b.PodUID))
	})
	return said
}
