package workload

import (
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"

	"github.com/muster-gpu/muster/api/reason"
)

// Exclusive is JobSet's exclusive placement: each Job of a replicated job has a
// topology domain to itself. The zero Exclusive is none.
type Exclusive struct {
	// TopologyKey is the node label whose values are the domains.
	TopologyKey string
	// ByNodeSelector: the nodes of each Job are labelled and tainted for it in
	// advance. Otherwise JobSet gives the first pod of a Job, its leader,
	// affinity to its own Job and anti-affinity to other Jobs of the same pod
	// priority, and refuses the others until the leader is on a node; then it
	// gives them the leader's domain as node selector.
	ByNodeSelector bool
}

// Follows says that the pod of that index exists only once another one, its
// leader, is on its node.
func (p *PodSet) Follows(index int32) bool {
	return p.Exclusive.TopologyKey != "" && !p.Exclusive.ByNodeSelector && index%p.PodsPerReplica != 0
}

// exclusiveOf reads the annotations of a JobSet and of one of its replicated
// jobs. The label that the replicated job names comes first, that of the pod
// template last.
func exclusiveOf(js *jobset.JobSet, rj *jobset.ReplicatedJob) (Exclusive, *reason.Reason) {
	var e Exclusive
	exclusive := false
	for _, annotations := range []map[string]string{rj.Template.Annotations, js.Annotations, rj.Template.Spec.Template.Annotations} {
		key, found := annotations[jobset.ExclusiveKey]
		if !found {
			continue
		}
		if !exclusive {
			exclusive, e.TopologyKey = true, key
		}
		if _, found := annotations[jobset.NodeSelectorStrategyKey]; found {
			e.ByNodeSelector = true
		}
	}
	switch {
	case !exclusive:
		return Exclusive{}, nil
	case e.ByNodeSelector:
		return e, nil
	case e.TopologyKey == "":
		return e, reason.New(reason.Misconfigured, "replicated job %q has the annotation %s without the node label that it should name",
			rj.Name, jobset.ExclusiveKey)
	case ptr.Deref(rj.Template.Spec.CompletionMode, batchv1.IndexedCompletion) != batchv1.IndexedCompletion:
		return e, reason.New(reason.Misconfigured, "replicated job %q has the annotation %s, which needs completionMode Indexed: else no pod leads the others",
			rj.Name, jobset.ExclusiveKey)
	}
	return e, nil
}

// Stamped is a copy of a pod of the set, as far as the template goes, with what
// the controllers will add to the one of a slot: labels, what keeps it alone in
// its domain, and the label keys that the API server resolves. A pod that
// follows a leader is planned as the leader is: near its own Job and away from
// others comes to the same domain as the node selector that it will have.
func (p *PodSet) Stamped(pod *corev1.Pod, s Slot) *corev1.Pod {
	out := *pod
	out.Labels = maps.Clone(pod.Labels)
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	maps.Copy(out.Labels, p.LabelsOf(s))
	switch e := p.Exclusive; {
	case p.Stamp.JobPrefix == "":
		// No JobSet's.
	case e.ByNodeSelector:
		out.Spec.NodeSelector = joined(pod.Spec.NodeSelector, map[string]string{
			jobset.NamespacedJobKey: p.Stamp.Namespace + "_" + p.jobName(s.Replica),
		})
		out.Spec.Tolerations = append(slices.Clip(pod.Spec.Tolerations), corev1.Toleration{
			Key: jobset.NoScheduleTaintKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	default:
		if pod.Spec.Priority != nil || pod.Spec.PriorityClassName == "" {
			// A pod without a class has priority 0.
			out.Labels[constants.PriorityKey] = fmt.Sprint(ptr.Deref(pod.Spec.Priority, 0))
		}
		if e.TopologyKey != "" {
			out.Spec.Affinity = e.affinity(pod.Spec.Affinity, out.Labels)
		}
	}
	resolveLabelKeys(&out)
	return &out
}

// affinity adds to a pod's affinity what JobSet gives a leader.
func (e Exclusive) affinity(own *corev1.Affinity, labels map[string]string) *corev1.Affinity {
	term := func(requirements ...metav1.LabelSelectorRequirement) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{
			LabelSelector: &metav1.LabelSelector{MatchExpressions: requirements},
			TopologyKey:   e.TopologyKey, NamespaceSelector: &metav1.LabelSelector{},
		}
	}
	key, priority := []string{labels[jobset.JobKey]}, []string{labels[constants.PriorityKey]}
	return besideAndApart(own,
		term(metav1.LabelSelectorRequirement{Key: jobset.JobKey, Operator: metav1.LabelSelectorOpIn, Values: key}),
		term(
			metav1.LabelSelectorRequirement{Key: jobset.JobKey, Operator: metav1.LabelSelectorOpExists},
			metav1.LabelSelectorRequirement{Key: jobset.JobKey, Operator: metav1.LabelSelectorOpNotIn, Values: key},
			metav1.LabelSelectorRequirement{Key: constants.PriorityKey, Operator: metav1.LabelSelectorOpIn, Values: priority}))
}

// besideAndApart adds to a pod's affinity that it must be where pods of one kind
// are, and where none of another are.
func besideAndApart(own *corev1.Affinity, beside, apart corev1.PodAffinityTerm) *corev1.Affinity {
	out := own.DeepCopy()
	if out == nil {
		out = &corev1.Affinity{}
	}
	if out.PodAffinity == nil {
		out.PodAffinity = &corev1.PodAffinity{}
	}
	if out.PodAntiAffinity == nil {
		out.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	near, away := &out.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, &out.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	*near, *away = append(*near, beside), append(*away, apart)
	return out
}
