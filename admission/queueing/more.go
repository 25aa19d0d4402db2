package queueing

import (
	"fmt"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-gpu/muster/workload"
)

// The kinds of Ray, whose clusters have a pod template for the head and one for
// each group of workers; and the kinds that serve, which cannot be suspended:
// their pods wait instead.
var (
	RayJob          = schema.GroupKind{Group: "ray.io", Kind: "RayJob"}
	RayCluster      = schema.GroupKind{Group: "ray.io", Kind: "RayCluster"}
	Deployment      = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	StatefulSet     = schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
	LeaderWorkerSet = schema.GroupKind{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"}
)

const kubeRay = "ray.io/kuberay-operator"

// raySpec is the specification of a Ray cluster.
type raySpec struct {
	HeadGroupSpec    *jobSpec   `json:"headGroupSpec"`
	WorkerGroupSpecs []*jobSpec `json:"workerGroupSpecs"`
}

type leaderWorkerTemplate struct {
	LeaderTemplate *podTemplate `json:"leaderTemplate"`
	WorkerTemplate *podTemplate `json:"workerTemplate"`
}

// serves says that the object is of a kind whose pods are jobs of their own, or
// parts of one.
func (o *Object) serves() bool {
	return o.kind == Deployment || o.kind == StatefulSet || o.kind == LeaderWorkerSet
}

// onOthers says that a RayJob runs on a cluster which is there.
func (o *Object) onOthers() bool {
	return o.kind == RayJob && o.body.Spec != nil && len(o.body.Spec.ClusterSelector) > 0
}

// template is a pod template of an object, and where it is.
type template struct {
	path string
	*podTemplate
}

// moreTemplates are the pod templates of the kinds of this file that exist.
func (o *Object) moreTemplates() []template {
	var out []template
	add := func(path string, t *podTemplate) {
		if t != nil && t.Spec != nil {
			out = append(out, template{path, t})
		}
	}
	ray := func(path string, s *raySpec) {
		if s == nil {
			return
		}
		if s.HeadGroupSpec != nil {
			add(path+"/headGroupSpec/template", s.HeadGroupSpec.Template)
		}
		for i, group := range s.WorkerGroupSpecs {
			if group != nil {
				add(fmt.Sprintf("%s/workerGroupSpecs/%d/template", path, i), group.Template)
			}
		}
	}
	s := o.body.Spec
	switch o.kind {
	case RayCluster:
		ray("/spec", &s.raySpec)
	case RayJob:
		ray("/spec/rayClusterSpec", s.RayClusterSpec)
		add("/spec/submitterPodTemplate", s.SubmitterPodTemplate)
	case Deployment, StatefulSet:
		add("/spec/template", s.Template)
	case LeaderWorkerSet:
		if t := s.LeaderWorkerTemplate; t != nil {
			add("/spec/leaderWorkerTemplate/leaderTemplate", t.LeaderTemplate)
			add("/spec/leaderWorkerTemplate/workerTemplate", t.WorkerTemplate)
		}
	}
	return out
}

// inherited are the operations by which the pods of an object that serves get
// its queue and its priority, where their template names none.
func (o *Object) inherited() []jsonpatch.Operation {
	var patch []jsonpatch.Operation
	for _, t := range o.moreTemplates() {
		missing := map[string]string{}
		for _, key := range []string{QueueLabel, workload.PriorityClassLabel} {
			if value := o.body.Metadata.Labels[key]; value != "" && (t.Metadata == nil || t.Metadata.Labels[key] == "") {
				missing[key] = value
			}
		}
		switch {
		case len(missing) == 0:
		case t.Metadata == nil:
			patch = append(patch, jsonpatch.NewOperation("add", t.path+"/metadata", map[string]any{"labels": missing}))
		case t.Metadata.Labels == nil:
			patch = append(patch, jsonpatch.NewOperation("add", t.path+"/metadata/labels", missing))
		default:
			for _, key := range []string{QueueLabel, workload.PriorityClassLabel} {
				if value, lacks := missing[key]; lacks {
					patch = append(patch, jsonpatch.NewOperation("add", t.path+"/metadata/labels/"+pointer(key), value))
				}
			}
		}
	}
	return patch
}

// controlled says that another object controls this one, which may put back what
// is changed here.
func (o *Object) controlled() bool {
	for _, ref := range o.body.Metadata.OwnerReferences {
		if ref.Controller != nil && *ref.Controller {
			return true
		}
	}
	return false
}
