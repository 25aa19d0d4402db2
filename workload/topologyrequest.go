package workload

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
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

// topologyOf fills in what the annotations of the pods of subject ask for. What
// Kueue's webhooks would refuse is refused, because a guess would place pods
// where their author does not want them.
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
		if len(validation.IsQualifiedName(value)) > 0 {
			return nil, wrong(annotation, "the name of a node label")
		}
		return &value, nil
	}
	if no := contradiction(subject, annotations); no != nil {
		return nil, no
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
	if group, found := annotations[kueue.PodSetGroupName]; found {
		if _, err := strconv.ParseUint(group, 10, 64); err == nil || group == "" {
			return nil, wrong(kueue.PodSetGroupName, "a name: it must not be empty or a number")
		}
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

// contradiction is what is wrong with annotations that do not go together.
func contradiction(subject string, annotations map[string]string) *reason.Reason {
	has := func(annotation string) bool {
		_, found := annotations[annotation]
		return found
	}
	refuse := func(format string, args ...any) *reason.Reason {
		return reason.New(reason.Misconfigured, subject+" "+format, args...)
	}
	levels := 0
	for _, a := range []string{kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation} {
		if has(a) {
			levels++
		}
	}
	slice, size := has(kueue.PodSetSliceRequiredTopologyAnnotation), has(kueue.PodSetSliceSizeAnnotation)
	switch {
	case levels > 1:
		return refuse("has more than one of the annotations %s, %s and %s", kueue.PodSetRequiredTopologyAnnotation,
			kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation)
	case has(kueue.PodSetSliceRequiredTopologyConstraintsAnnotation):
		return refuse("has the annotation %s: slices within slices are not supported", kueue.PodSetSliceRequiredTopologyConstraintsAnnotation)
	case slice != size:
		return refuse("has only one of the annotations %s and %s", kueue.PodSetSliceRequiredTopologyAnnotation, kueue.PodSetSliceSizeAnnotation)
	case has(kueue.PodSetGroupName) && slice:
		return refuse("has the annotations %s and %s, which do not go together", kueue.PodSetGroupName, kueue.PodSetSliceRequiredTopologyAnnotation)
	case has(kueue.PodSetGroupName) && !has(kueue.PodSetRequiredTopologyAnnotation) && !has(kueue.PodSetPreferredTopologyAnnotation):
		return refuse("has the annotation %s without %s or %s", kueue.PodSetGroupName,
			kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation)
	}
	return nil
}

// CheckTopology says what is wrong with the topology requests of a job's pod sets
// together, nil if nothing is: Kueue's rules for groups of pod sets, and for the
// size of slices.
func CheckTopology(job *Job) *reason.Reason {
	groups := map[string][]*PodSet{}
	for i := range job.PodSets {
		ps := &job.PodSets[i]
		r := ps.Topology
		if r == nil {
			continue
		}
		if r.PodSetSliceSize != nil && ps.Count > 0 && *r.PodSetSliceSize > ps.Count {
			return reason.New(reason.Misconfigured, "pod set %q asks for slices of %d pods and has %d", ps.Name, *r.PodSetSliceSize, ps.Count)
		}
		if r.PodSetGroupName == nil {
			continue
		}
		name := *r.PodSetGroupName
		groups[name] = append(groups[name], ps)
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		sets := groups[name]
		switch {
		case len(sets) != 2:
			return reason.New(reason.Misconfigured, "the pod set group %q has %d pod sets; a group has 2", name, len(sets))
		case sets[0].Count > 1 && sets[1].Count > 1:
			return reason.New(reason.Misconfigured, "the pod set group %q has %d and %d pods; one of its pod sets must have 1", name, sets[0].Count, sets[1].Count)
		case !ptr.Equal(sets[0].Topology.Required, sets[1].Topology.Required) || !ptr.Equal(sets[0].Topology.Preferred, sets[1].Topology.Preferred):
			return reason.New(reason.Misconfigured, "the pod sets of the group %q ask for different topologies", name)
		}
	}
	return nil
}
