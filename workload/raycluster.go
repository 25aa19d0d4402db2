package workload

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload/identity"
)

// rayClusterKind is a RayCluster that somebody created as such, or a RayService;
// one that was made for a RayJob belongs to the RayJob. It never ends by itself.
type rayClusterKind struct{ Options }

var _ Kind = rayClusterKind{}

var rayClusterGVK = rayVersion.WithKind("RayCluster")

func (rayClusterKind) GroupVersionKind() schema.GroupVersionKind { return rayClusterGVK }

func (rayClusterKind) New() client.Object { return newObject(rayClusterGVK) }

// Read implements Kind.
func (k rayClusterKind) Read(_ context.Context, _ client.Reader, obj client.Object) (*Job, bool, *reason.Reason, error) {
	o, err := asObject(obj, "RayCluster")
	if err != nil {
		return nil, false, nil, err
	}
	by := o.str("spec", "managedBy")
	owner := metav1.GetControllerOfNoCopy(o)
	if o.GetLabels()[QueueLabel] == "" || foreignManager(&by, rayController) || (owner != nil && identity.IsRay(owner, "RayJob")) {
		return nil, false, nil, nil
	}
	job := newJob(rayClusterGVK, o)
	job.PodOwnerUID, job.Elastic = o.GetUID(), true
	job.Suspended = o.is("spec", "suspend")
	spec := raySpecOf(o, "spec")
	templates, no := spec.templates()
	var sets []PodSet
	if no == nil {
		sets, no = spec.podSets(templates)
	}
	if no == nil {
		for i := range sets {
			sets[i].Stamp.Labels[rayClusterLabel] = o.GetName()
		}
		no = readRay(job, k.Options, sets, "create the RayCluster anew")
	}
	if job.over() {
		no = nil
	}
	return job, true, no, nil
}

// Suspend implements Kind. What Resume injected stays in the templates until
// the next Resume.
func (rayClusterKind) Suspend(ctx context.Context, c client.Client, obj client.Object) error {
	return suspendObject(ctx, c, obj, "RayCluster")
}

// Resume implements Kind.
func (rayClusterKind) Resume(ctx context.Context, c client.Client, obj client.Object, infos []PodSetInfo) error {
	o, err := asObject(obj, "RayCluster")
	if err != nil {
		return err
	}
	templates, no := raySpecOf(o, "spec").templates()
	if no != nil {
		return no
	}
	operations, found, err := rayOperations("/spec", templates, infos)
	switch {
	case err != nil:
	case found != len(infos):
		err = errOtherSets(len(infos), found)
	default:
		err = resumeRay(ctx, c, o, o.is("spec", "suspend"), operations)
	}
	if err != nil {
		return fmt.Errorf("resuming RayCluster %s/%s: %w", o.GetNamespace(), o.GetName(), err)
	}
	return nil
}

// suspendObject suspends an object that is read without Go types and has
// spec.suspend.
func suspendObject(ctx context.Context, c client.Client, obj client.Object, kind string) error {
	o, err := asObject(obj, kind)
	if err != nil {
		return err
	}
	if o.is("spec", "suspend") {
		return nil
	}
	if err := suspend(ctx, c, o.DeepCopy()); err != nil {
		return fmt.Errorf("suspending %s %s/%s: %w", kind, o.GetNamespace(), o.GetName(), err)
	}
	return nil
}

// errOtherSets says that what is to be resumed is not what was admitted.
func errOtherSets(asked, found int) error {
	return fmt.Errorf("%d pod sets are to be injected, of which it has %d: it has changed", asked, found)
}
