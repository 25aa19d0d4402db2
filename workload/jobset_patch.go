package workload

import (
	"context"
	"fmt"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// patchJobSet writes the differences between two versions of a JobSet: its
// suspension and the parts of the pod templates that may change. Only those
// are sent, by a JSON patch, so that fields of a later JobSet API than the one
// compiled in here are not lost in the list of replicated jobs.
func patchJobSet(ctx context.Context, c client.Client, from, to *jobset.JobSet) error {
	var operations []operation
	for i := range to.Spec.ReplicatedJobs {
		operations = append(operations, templateOperations(
			fmt.Sprintf("/spec/replicatedJobs/%d/template/spec/template", i),
			&from.Spec.ReplicatedJobs[i].Template.Spec.Template,
			&to.Spec.ReplicatedJobs[i].Template.Spec.Template)...)
	}
	if len(operations) > 0 {
		// The indices in the paths hold for this version alone; the API server
		// answers with a conflict if there is a later one.
		operations = append(operations, operation{Op: "add", Path: "/metadata/resourceVersion", Value: from.ResourceVersion})
	}
	if suspend := ptr.Deref(to.Spec.Suspend, false); suspend != ptr.Deref(from.Spec.Suspend, false) {
		operations = append(operations, operation{Op: "add", Path: "/spec/suspend", Value: suspend})
	}
	return send(ctx, c, from.DeepCopy(), operations)
}
