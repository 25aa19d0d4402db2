package v1alpha1

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxLevels is how many levels a Topology object may have.
const maxLevels = 16

// Presets are the names of lists of levels, outermost first, as those who label
// nodes label them. A node that lacks one of the labels is near no other at that
// level, so a list may have more than a cluster uses.
var Presets = map[string][]string{
	// NVIDIA Topograph since 1.0; tier 0 is the switch next to the node.
	"topograph": {
		"fabric.topograph.run/tier-2", "fabric.topograph.run/tier-1", "fabric.topograph.run/tier-0",
		"accelerator.topograph.run/domain", "accelerator.topograph.run/sub-domain", corev1.LabelHostname,
	},
	// NVIDIA Topograph before 1.0.
	"topograph-0": {
		"network.topology.nvidia.com/core", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf",
		"network.topology.nvidia.com/accelerator", corev1.LabelHostname,
	},
	// The first versions of it.
	"topograph-0-block": {
		"network.topology.nvidia.com/datacenter", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/block",
		"network.topology.nvidia.com/accelerator", corev1.LabelHostname,
	},
	// GPU Feature Discovery: nodes that share an NVLink network.
	"nvlink": {"nvidia.com/gpu.clique", corev1.LabelHostname},
	// AWS numbers layers from the outermost.
	"aws": {
		corev1.LabelTopologyZone, "topology.k8s.aws/network-node-layer-1", "topology.k8s.aws/network-node-layer-2",
		"topology.k8s.aws/network-node-layer-3", corev1.LabelHostname,
	},
	"gke": {
		corev1.LabelTopologyZone, "cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock",
		"cloud.google.com/gce-topology-host", corev1.LabelHostname,
	},
	"zone": {corev1.LabelTopologyRegion, corev1.LabelTopologyZone, corev1.LabelHostname},
	"rack": {corev1.LabelTopologyZone, "topology.kubernetes.io/rack", corev1.LabelHostname},
}

// Topology is where nodes are close to each other, for flavors that name no
// Topology object, and what jobs prefer that ask for nothing.
type Topology struct {
	// Preset is one of Presets, for all flavors; empty for none.
	Preset string `json:"preset"`
	// Levels are node labels, outermost first, in the place of a preset.
	Levels []string `json:"levels"`
	// PreferredLevel is the level that pod sets prefer which ask for none; empty
	// for none. Flavors that do not have it are left alone.
	PreferredLevel string `json:"preferredLevel"`
	// Flavors are those for which something else is right.
	Flavors []FlavorTopology `json:"flavors"`
}

// FlavorTopology is a Topology for one ResourceFlavor. What it leaves empty is
// that of all flavors.
type FlavorTopology struct {
	Name           string   `json:"name"`
	Preset         string   `json:"preset,omitempty"`
	Levels         []string `json:"levels,omitempty"`
	PreferredLevel string   `json:"preferredLevel,omitempty"`
}

// LevelsOf are the levels of a flavor that names no Topology object; nil for
// none.
func (t *Topology) LevelsOf(flavor string) []string {
	for i := range t.Flavors {
		if f := &t.Flavors[i]; f.Name == flavor && (f.Preset != "" || len(f.Levels) > 0) {
			return levelsOf(f.Preset, f.Levels)
		}
	}
	return levelsOf(t.Preset, t.Levels)
}

// PreferredLevelOf is the level that the pods in a flavor prefer, empty for none.
func (t *Topology) PreferredLevelOf(flavor string) string {
	for i := range t.Flavors {
		if f := &t.Flavors[i]; f.Name == flavor && f.PreferredLevel != "" {
			return f.PreferredLevel
		}
	}
	return t.PreferredLevel
}

func levelsOf(preset string, levels []string) []string {
	if preset != "" {
		return Presets[preset]
	}
	return levels
}

func (t *Topology) validate(at *field.Path) field.ErrorList {
	errs := validateLevels(at, t.Preset, t.Levels)
	errs = append(errs, preferredLevel(at, t.PreferredLevel)...)
	seen := sets.New[string]()
	for i := range t.Flavors {
		f, at := &t.Flavors[i], at.Child("flavors").Index(i)
		errs = append(errs, objectName(at.Child("name"), f.Name)...)
		if seen.Has(f.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), f.Name))
		}
		seen.Insert(f.Name)
		errs = append(errs, validateLevels(at, f.Preset, f.Levels)...)
		errs = append(errs, preferredLevel(at, f.PreferredLevel)...)
	}
	return errs
}

func preferredLevel(at *field.Path, level string) field.ErrorList {
	if level == "" {
		return nil
	}
	return invalid(at.Child("preferredLevel"), level, validation.IsQualifiedName(level))
}

func validateLevels(at *field.Path, preset string, levels []string) field.ErrorList {
	var errs field.ErrorList
	if _, known := Presets[preset]; preset != "" && !known {
		errs = append(errs, field.NotSupported(at.Child("preset"), preset, slices.Sorted(maps.Keys(Presets))))
	}
	list := at.Child("levels")
	if preset != "" && len(levels) > 0 {
		errs = append(errs, field.Forbidden(list, "a preset has its own levels"))
	}
	if len(levels) > maxLevels {
		errs = append(errs, field.TooMany(list, len(levels), maxLevels))
	}
	seen := sets.New[string]()
	for i, level := range levels {
		errs = append(errs, invalid(list.Index(i), level, validation.IsQualifiedName(level))...)
		if seen.Has(level) {
			errs = append(errs, field.Duplicate(list.Index(i), level))
		}
		seen.Insert(level)
		if level == corev1.LabelHostname && i < len(levels)-1 {
			errs = append(errs, field.Invalid(list.Index(i), level, fmt.Sprintf("must be the last level, not number %d of %d", i+1, len(levels))))
		}
	}
	return errs
}
