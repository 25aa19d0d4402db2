package workload

import (
	"encoding/json"
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
	"github.com/muster-gpu/muster/workload/identity"
)

// maxTopologyLevel is the longest level name that the Workload API takes.
const maxTopologyLevel = 63

// maxLayers is how many layers of slices the Workload API takes.
const maxLayers = 3

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
		n, ok := identity.Ordinal(size)
		if !ok || n == 0 {
			return nil, wrong(kueue.PodSetSliceSizeAnnotation, "a positive number of pods")
		}
		request.PodSetSliceRequiredTopology, request.PodSetSliceSize = slice, &n
	}
	request.PodsetSliceRequiredTopologyConstraints, no = layers(subject, annotations)
	return &request, no
}

// layers reads the slices within slices that pods ask for.
func layers(subject string, annotations map[string]string) ([]kueue.PodsetSliceRequiredTopologyConstraint, *reason.Reason) {
	written, found := annotations[kueue.PodSetSliceRequiredTopologyConstraintsAnnotation]
	if !found {
		return nil, nil
	}
	wrong := func(format string, args ...any) *reason.Reason {
		return reason.New(reason.Misconfigured, "%s has the annotation %s=%q, %s",
			subject, kueue.PodSetSliceRequiredTopologyConstraintsAnnotation, written, fmt.Sprintf(format, args...))
	}
	var out []kueue.PodsetSliceRequiredTopologyConstraint
	if err := json.Unmarshal([]byte(written), &out); err != nil {
		return nil, wrong("which is not a list of topologies and sizes: %v", err)
	}
	if len(out) == 0 || len(out) > maxLayers {
		return nil, wrong("which has %d layers, not 1 to %d", len(out), maxLayers)
	}
	for i, s := range out {
		switch {
		case len(s.Topology) > maxTopologyLevel || len(validation.IsQualifiedName(s.Topology)) > 0:
			return nil, wrong("in which %q is not the name of a node label of at most %d characters", s.Topology, maxTopologyLevel)
		case s.Size < 1:
			return nil, wrong("in which the slices of %s have %d pods", s.Topology, s.Size)
		case i > 0 && out[i-1].Size%s.Size != 0:
			return nil, wrong("in which %d pods are not whole slices of %d", out[i-1].Size, s.Size)
		case slices.ContainsFunc(out[:i], func(o kueue.PodsetSliceRequiredTopologyConstraint) bool { return o.Topology == s.Topology }):
			return nil, wrong("which has %s twice", s.Topology)
		}
	}
	return out, nil
}

// SlicesOf are the slices that a request asks for, the outermost first, in
// whichever way it does.
func SlicesOf(r *kueue.PodSetTopologyRequest) []kueue.PodsetSliceRequiredTopologyConstraint {
	switch {
	case r == nil:
		return nil
	case len(r.PodsetSliceRequiredTopologyConstraints) > 0:
		return r.PodsetSliceRequiredTopologyConstraints
	case r.PodSetSliceRequiredTopology != nil && r.PodSetSliceSize != nil:
		return []kueue.PodsetSliceRequiredTopologyConstraint{{Topology: *r.PodSetSliceRequiredTopology, Size: *r.PodSetSliceSize}}
	}
	return nil
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
	layers := has(kueue.PodSetSliceRequiredTopologyConstraintsAnnotation)
	switch {
	case levels > 1:
		return refuse("has more than one of the annotations %s, %s and %s", kueue.PodSetRequiredTopologyAnnotation,
			kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation)
	case layers && (slice || size):
		return refuse("has the annotation %s beside %s or %s, which do not go together", kueue.PodSetSliceRequiredTopologyConstraintsAnnotation,
			kueue.PodSetSliceRequiredTopologyAnnotation, kueue.PodSetSliceSizeAnnotation)
	case has(kueue.PodSetGroupName) && layers:
		return refuse("has the annotations %s and %s, which do not go together", kueue.PodSetGroupName, kueue.PodSetSliceRequiredTopologyConstraintsAnnotation)
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
		if s := SlicesOf(r); len(s) > 0 && ps.Count > 0 {
			switch size := s[0].Size; {
			case size > ps.Count:
				return reason.New(reason.Misconfigured, "pod set %q asks for slices of %d pods and has %d", ps.Name, size, ps.Count)
			case len(s) > 1 && ps.Count%size > 0:
				return reason.New(reason.Misconfigured, "pod set %q asks for slices within slices, and its %d pods are not whole slices of %d", ps.Name, ps.Count, size)
			}
		}
		if r.PodSetGroupName == nil {
			continue
		}
		name := *r.PodSetGroupName
		groups[name] = append(groups[name], ps)
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		sets := groups[name]
		// The pods of Kubernetes' own PodGroup are of as many kinds as they like.
		pair := job.Owner.GroupVersionKind != NativePodGroupGVK || name != job.Owner.Name
		differs := func(ps *PodSet) bool {
			return !ptr.Equal(ps.Topology.Required, sets[0].Topology.Required) || !ptr.Equal(ps.Topology.Preferred, sets[0].Topology.Preferred)
		}
		switch {
		case pair && len(sets) != 2:
			return reason.New(reason.Misconfigured, "the pod set group %q has %d pod sets; a group has 2", name, len(sets))
		case pair && sets[0].Count > 1 && sets[1].Count > 1:
			return reason.New(reason.Misconfigured, "the pod set group %q has %d and %d pods; one of its pod sets must have 1", name, sets[0].Count, sets[1].Count)
		case slices.ContainsFunc(sets[1:], differs):
			return reason.New(reason.Misconfigured, "the pod sets of the group %q ask for different topologies", name)
		}
	}
	return nil
}
