package placement

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"
)

// provisioner binds, in a trial, the claims for which a volume is to be
// provisioned. A pod that shares such a claim is scheduled once the volume is
// there, and is bound to where the volume can be reached from; until then
// VolumeBinding ties all of them to the node of the first.
type provisioner struct {
	volumebinding.SchedulerVolumeBinder
	claims *claims
}

// AssumePodVolumes is called by Reserve.
func (p *provisioner) AssumePodVolumes(logger klog.Logger, pod *v1.Pod, node string, volumes *volumebinding.PodVolumes) (bool, error) {
	all, err := p.SchedulerVolumeBinder.AssumePodVolumes(logger, pod, node, volumes)
	if err != nil {
		return all, err
	}
	for _, d := range volumes.DynamicProvisions {
		if isShared(d.PVC) {
			if err := p.claims.provision(d.PVC, node); err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

// isShared tells claims that pods of several nodes may mount. Others are left
// tied to one node: their volume can be attached to no second one.
func isShared(claim *v1.PersistentVolumeClaim) bool {
	return slices.Contains(claim.Spec.AccessModes, v1.ReadWriteMany) || slices.Contains(claim.Spec.AccessModes, v1.ReadOnlyMany)
}

// provision binds the claim to a volume made for a pod on the node.
func (c *claims) provision(claim *v1.PersistentVolumeClaim, node string) error {
	info, err := c.nodes.Get(node)
	if err != nil {
		return err
	}
	class, err := c.classes.Get(volume.GetPersistentVolumeClaimClass(claim))
	if err != nil {
		return err
	}
	c.bind(claim, class, info.Node())
	return nil
}

// bind binds the claim to a volume of the class, if it has one, provisioned for
// a pod on the node, if that is known. By the rules of CSI such a volume can be
// reached from the nodes that have the node's values for the driver's topology
// keys, and from everywhere that the class allows if the driver has none.
func (c *claims) bind(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node *v1.Node) {
	pv := &v1.PersistentVolume{}
	pv.Name = "plan/" + string(claim.UID)
	pv.Spec.ClaimRef = &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	if class != nil {
		pv.Spec.StorageClassName = class.Name
		pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: class.Provisioner, VolumeHandle: pv.Name}
		if terms := c.reach(class, node); len(terms) > 0 {
			pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: terms}}
		}
	}
	bound := claim.DeepCopy()
	bound.Spec.VolumeName = pv.Name
	bound.Status.Phase = v1.ClaimBound
	// Another version than the one that VolumeBinding assumes, or it would take
	// its own for newer.
	bound.ResourceVersion += "bound"
	if bound.Annotations == nil {
		bound.Annotations = map[string]string{}
	}
	bound.Annotations[volume.AnnBindCompleted] = "yes"
	c.lay(c.volumes.volumes, pv.Name, pv)
	c.lay(c.volumes.claims, claim.Namespace+"/"+claim.Name, bound)
}

// reach are the nodes that a provisioned volume can be reached from, none for
// all.
func (c *claims) reach(class *storagev1.StorageClass, node *v1.Node) []v1.NodeSelectorTerm {
	if node != nil {
		if keys := c.topologyKeys(class.Provisioner, node.Name); len(keys) > 0 {
			var term v1.NodeSelectorTerm
			for _, key := range keys {
				term.MatchExpressions = append(term.MatchExpressions, v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{node.Labels[key]}})
			}
			return []v1.NodeSelectorTerm{term}
		}
	}
	var terms []v1.NodeSelectorTerm
	for _, allowed := range class.AllowedTopologies {
		var term v1.NodeSelectorTerm
		for _, e := range allowed.MatchLabelExpressions {
			term.MatchExpressions = append(term.MatchExpressions, v1.NodeSelectorRequirement{Key: e.Key, Operator: v1.NodeSelectorOpIn, Values: e.Values})
		}
		terms = append(terms, term)
	}
	return terms
}

// topologyKeys are the labels by which a CSI driver says where its volumes are.
func (c *claims) topologyKeys(driver, node string) []string {
	csi, err := c.csiNodes.Get(node)
	if err != nil {
		// The node has no CSI driver.
		return nil
	}
	for _, d := range csi.Spec.Drivers {
		if d.Name == driver {
			return d.TopologyKeys
		}
	}
	return nil
}

// volumeKeys adds the labels by which volumes of the class say where they can
// be reached from.
func (c *claims) volumeKeys(className string, keys sets.Set[string]) {
	fromTerms := func(terms []v1.NodeSelectorTerm) {
		for _, term := range terms {
			for _, e := range term.MatchExpressions {
				keys.Insert(e.Key)
			}
		}
	}
	made, err := c.volumes.volumes.ByIndex("storageclass", className)
	if err != nil {
		// VolumeBinding made the index.
		made = nil
	}
	for _, object := range made {
		if pv, ok := object.(*v1.PersistentVolume); ok && pv.Spec.NodeAffinity != nil && pv.Spec.NodeAffinity.Required != nil {
			fromTerms(pv.Spec.NodeAffinity.Required.NodeSelectorTerms)
		}
	}
	class, err := c.classes.Get(className)
	if err != nil {
		return
	}
	fromTerms(c.reach(class, nil))
	drivers, err := c.csiNodes.List(labels.Everything())
	if err != nil {
		return
	}
	for _, node := range drivers {
		keys.Insert(c.topologyKeys(class.Provisioner, node.Name)...)
	}
}
