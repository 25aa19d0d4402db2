package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement/islands"
)

// Attributes of devices: those of the driver, and those that are the same for all.
const (
	typeAttribute       = "type"
	uuidAttribute       = "uuid"
	parentAttribute     = "parentUUID"
	productAttribute    = "productName"
	pcieRootAttribute   = "resource.kubernetes.io/pcieRoot"
	pciBusAttribute     = "resource.kubernetes.io/pciBusID"
	numaAttribute       = "resource.kubernetes.io/numaNode"
	driverNUMAAttribute = "numa"
)

// device is what a slice says of one.
type device struct {
	id                                    structured.DeviceID
	kind, uuid, parent, product, pciBusID string
	pcieRoot                              string
	numa                                  *int64
}

// read puts the slices of a node together, nil if there are no GPUs.
func (s *Slices) read(of map[string]*resourceapi.ResourceSlice) *Node {
	var gpus, parts []device
	for _, d := range devices(of) {
		switch {
		case d.parent != "" || d.kind == "mig":
			parts = append(parts, d)
		case d.kind == "gpu" || d.kind == "":
			gpus = append(gpus, d)
		}
	}
	if len(gpus) == 0 || len(gpus) > islands.MaxDevices {
		return nil
	}
	// Their order is that of their bus addresses, as it is for all tools of NVIDIA.
	slices.SortStableFunc(gpus, func(a, b device) int { return strings.Compare(a.pciBusID, b.pciBusID) })
	n := &Node{}
	byUUID := map[string]int{}
	for i, d := range gpus {
		n.UUIDs = append(n.UUIDs, d.uuid)
		n.devices = append(n.devices, Device{d.id, i})
		byUUID[d.uuid] = i
	}
	if len(byUUID) < len(gpus) || slices.Contains(n.UUIDs, "") {
		n.UUIDs = nil
	}
	for _, d := range parts {
		if i, ok := byUUID[d.parent]; ok {
			n.devices = append(n.devices, Device{d.id, i})
		}
	}
	joins := join(gpus)
	linked, doubt := s.products.linked(gpus)
	n.Doubt = doubt
	shape, err := islands.New(len(gpus), append(joins, linked...)...)
	if err != nil {
		return nil
	}
	n.Shape = s.shapes.shared(shape)
	return n
}

// devices are those of the newest generation of each pool, in the order in which
// the driver has them.
func devices(of map[string]*resourceapi.ResourceSlice) (found []device) {
	newest := map[string]int64{}
	for _, slice := range of {
		pool := slice.Spec.Pool
		newest[pool.Name] = max(newest[pool.Name], pool.Generation)
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		slice := of[name]
		if slice.Spec.Pool.Generation < newest[slice.Spec.Pool.Name] {
			continue
		}
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			numa := attribute(d, numaAttribute).IntValue
			if numa == nil {
				numa = attribute(d, driverNUMAAttribute).IntValue
			}
			found = append(found, device{
				id:       structured.MakeDeviceID(slice.Spec.Driver, slice.Spec.Pool.Name, d.Name),
				kind:     text(d, typeAttribute),
				uuid:     text(d, uuidAttribute),
				parent:   text(d, parentAttribute),
				product:  text(d, productAttribute),
				pciBusID: text(d, pciBusAttribute),
				pcieRoot: text(d, pcieRootAttribute),
				numa:     numa,
			})
		}
	}
	return found
}

// attribute is one of the device, whether or not the driver's own are written with
// its name.
func attribute(d *resourceapi.Device, name resourceapi.QualifiedName) resourceapi.DeviceAttribute {
	if a, ok := d.Attributes[name]; ok {
		return a
	}
	return d.Attributes[gpu.Driver+"/"+name]
}

func text(d *resourceapi.Device, name resourceapi.QualifiedName) string {
	if a := attribute(d, name); a.StringValue != nil {
		return *a.StringValue
	}
	return ""
}

// join has those GPUs joined that say the same PCIe root, or the same NUMA node.
func join(gpus []device) (joins []islands.Join) {
	roots, numa := map[string]islands.Set{}, map[int64]islands.Set{}
	for i, d := range gpus {
		if d.pcieRoot != "" {
			roots[d.pcieRoot] |= islands.SetOf(i)
		}
		// Less than 0 is none.
		if d.numa != nil && *d.numa >= 0 {
			numa[*d.numa] |= islands.SetOf(i)
		}
	}
	for _, set := range roots {
		joins = append(joins, islands.Join{Link: islands.PCIe, Devices: set})
	}
	for _, set := range numa {
		joins = append(joins, islands.Join{Link: islands.NUMA, Devices: set})
	}
	return joins
}

// linked are the joins that devices do not tell: those of their product. Where they
// tell PCIe roots or NUMA nodes, only the NVLinks of it count.
func (p *Products) linked(gpus []device) (joins []islands.Join, doubt string) {
	product := gpus[0].product
	for _, d := range gpus {
		if d.product != product {
			return nil, fmt.Sprintf("GPUs of several products, %s and %s", cmp.Or(product, "one without a name"), cmp.Or(d.product, "one without a name"))
		}
	}
	arrangement, ok := p.arrangement(strings.ReplaceAll(product, " ", "-"))
	if !ok {
		return nil, ""
	}
	all, err := arrangement.Joins(len(gpus))
	if err != nil {
		return nil, fmt.Sprintf("%s: %v", product, err)
	}
	told := len(join(gpus)) > 0
	return slices.DeleteFunc(all, func(j islands.Join) bool { return told && j.Link > islands.NVLink }), ""
}
