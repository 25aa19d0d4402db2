package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Who chooses which GPUs of its node a pod gets.
const (
	// IslandsPredict: the node. Nodes are chosen by what is possible there.
	IslandsPredict = "predict"
	// IslandsDRA: Muster, for pods that claim GPUs, or whose GPUs are devices behind a
	// resource (dynamic resource allocation); else the node.
	IslandsDRA = "dra"
	// IslandsAnnotation: Muster, which writes them on the pod when it is bound, for a
	// device plugin that gives out those.
	IslandsAnnotation = "annotation"
)

// How the GPUs of a node may be joined, by their indices.
const (
	// ArrangedSwitch: NVSwitch, or NVLinks between each two.
	ArrangedSwitch = "nvswitch"
	// ArrangedCubeMesh: as four or eight V100s are.
	ArrangedCubeMesh = "cube-mesh"
	// ArrangedBridges: NVLink bridges between each two that follow each other.
	ArrangedBridges = "nvlink-pairs"
	// ArrangedPairs: each two that follow each other share a PCIe root, and each half
	// a NUMA node.
	ArrangedPairs = "pcie-pairs"
	// ArrangedAlike: it does not matter.
	ArrangedAlike = "alike"
)

// Islands is which GPUs of a node are close to each other, and who chooses among
// them.
type Islands struct {
	// Enforcement is IslandsPredict, IslandsDRA or IslandsAnnotation.
	Enforcement string `json:"enforcement"`
	// Products are those whose GPUs are joined in another way than Muster supposes,
	// such as cards with NVLink bridges. ResourceSlices go before.
	Products []ProductIslands `json:"products"`
}

// ProductIslands is how the GPUs of nodes with one product are joined.
type ProductIslands struct {
	// Product is a value of the node label nvidia.com/gpu.product.
	Product string `json:"product"`
	// Arrangement is one of ArrangedSwitch, ArrangedCubeMesh, ArrangedBridges,
	// ArrangedPairs and ArrangedAlike.
	Arrangement string `json:"arrangement"`
}

func (i *Islands) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if known := []string{IslandsAnnotation, IslandsDRA, IslandsPredict}; !slices.Contains(known, i.Enforcement) {
		errs = append(errs, field.NotSupported(at.Child("enforcement"), i.Enforcement, known))
	}
	seen := sets.New[string]()
	for k, p := range i.Products {
		at := at.Child("products").Index(k)
		if p.Product == "" {
			errs = append(errs, field.Required(at.Child("product"), "a value of the node label nvidia.com/gpu.product"))
		}
		errs = append(errs, invalid(at.Child("product"), p.Product, validation.IsValidLabelValue(p.Product))...)
		if seen.Has(p.Product) {
			errs = append(errs, field.Duplicate(at.Child("product"), p.Product))
		}
		seen.Insert(p.Product)
		if known := []string{ArrangedAlike, ArrangedCubeMesh, ArrangedBridges, ArrangedSwitch, ArrangedPairs}; !slices.Contains(known, p.Arrangement) {
			errs = append(errs, field.NotSupported(at.Child("arrangement"), p.Arrangement, known))
		}
	}
	return errs
}
