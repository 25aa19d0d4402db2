package workload

import (
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// maxTopologyLevel is the longest level name that the Workload API takes.
const maxTopologyLevel = 63

// topologyRequest reads the topology annotations of a replicated job's pods, by
// Kueue's rule: required before preferred before unconstrained, a slice beside
// any of them. The labels that number the pods are always in it.
func topologyRequest(rj *jobset.ReplicatedJob) (*kueue.PodSetTopologyRequest, *reason.Reason) {
	return topologyOf(fmt.Sprintf("replicated job %q", rj.Name), rj.Template.Spec.Template.Annotations, kueue.PodSetTopologyRequest{
		PodIndexLabel:      new(batchv1.JobCompletionIndexAnnotation),
		SubGroupIndexLabel: new(jobset.JobIndexKey),
		SubGroupCount:      new(rj.Replicas),
	})
}

// topologyOf fills in what the annotations of the pods of subject ask for.
func topologyOf(subject string, annotations map[string]string, request kueue.PodSetTopologyRequest) (*kueue.PodSetTopologyRequest, *reason.Reason) {
	wrong := func(annotation, want string) *reason.Reason {
		return reason.New(reason.Misconfigured, "%s has the annotation %s=%q, which is not %s",
			subject, annotation, annotations[annotation], want)
	}
	level := func(annotation string) (*string, *reason.Reason) {
		value, found := annotations[annotation]
		if !found {
			return nil, nil
		}
		if value == "" || len(value) > maxTopologyLevel {
			return nil, wrong(annotation, "a topology level of 1 to 63 characters")
		}
		return &value, nil
	}

	required, no := level(kueue.PodSetRequiredTopologyAnnotation)
	if no != nil {
		return nil, no
	}
	preferred, no := level(kueue.PodSetPreferredTopologyAnnotation)
	if no != nil {
		return nil, no
	}
	unconstrained, free := annotations[kueue.PodSetUnconstrainedTopologyAnnotation]
	switch {
	case required != nil:
		request.Required = required
	case preferred != nil:
		request.Preferred = preferred
	case free:
		yes, err := strconv.ParseBool(unconstrained)
		if err != nil {
			return nil, wrong(kueue.PodSetUnconstrainedTopologyAnnotation, "true or false")
		}
		request.Unconstrained = &yes
	}
	if group, found := annotations[kueue.PodSetGroupName]; found && (required != nil || preferred != nil) {
		request.PodSetGroupName = &group
	}

	slice, no := level(kueue.PodSetSliceRequiredTopologyAnnotation)
	if no != nil {
		return nil, no
	}
	if size, found := annotations[kueue.PodSetSliceSizeAnnotation]; found && slice != nil {
		n, ok := ordinal(size)
		if !ok || n == 0 {
			return nil, wrong(kueue.PodSetSliceSizeAnnotation, "a positive number of pods")
		}
		request.PodSetSliceRequiredTopology, request.PodSetSliceSize = slice, &n
	}
	return &request, nil
}
