package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// requiredTerms are the terms that a pod's node must meet because of other pods.
func requiredTerms(a *corev1.Affinity) []corev1.PodAffinityTerm {
	var out []corev1.PodAffinityTerm
	if a != nil && a.PodAffinity != nil {
		out = append(out, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
	}
	if a != nil && a.PodAntiAffinity != nil {
		out = append(out, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
	}
	return out
}

// SelectedLabels are the keys of the labels by which the pods of a template
// choose nodes near or apart from other pods, of whatever job. What is only
// preferred is not among them.
func SelectedLabels(spec *corev1.PodSpec) []string {
	var out []string
	selects := func(s *metav1.LabelSelector, more ...string) {
		out = append(out, more...)
		if s == nil {
			return
		}
		for key := range s.MatchLabels {
			out = append(out, key)
		}
		for i := range s.MatchExpressions {
			out = append(out, s.MatchExpressions[i].Key)
		}
	}
	for _, term := range requiredTerms(spec.Affinity) {
		selects(term.LabelSelector, slices.Concat(term.MatchLabelKeys, term.MismatchLabelKeys)...)
	}
	for _, c := range spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			selects(c.LabelSelector, c.MatchLabelKeys...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// resolveLabelKeys puts the values of the labels that affinity and spread name
// by their keys alone into the selectors, as the API server does when it
// creates a pod. The pod may share its spec's parts with others.
func resolveLabelKeys(pod *corev1.Pod) {
	byKey := func(t corev1.PodAffinityTerm) bool { return len(t.MatchLabelKeys)+len(t.MismatchLabelKeys) > 0 }
	if slices.ContainsFunc(requiredTerms(pod.Spec.Affinity), byKey) {
		a := pod.Spec.Affinity.DeepCopy()
		if a.PodAffinity != nil {
			resolveTerms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, pod.Labels)
		}
		if a.PodAntiAffinity != nil {
			resolveTerms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, pod.Labels)
		}
		pod.Spec.Affinity = a
	}
	spread := pod.Spec.TopologySpreadConstraints
	if !slices.ContainsFunc(spread, func(c corev1.TopologySpreadConstraint) bool { return len(c.MatchLabelKeys) > 0 }) {
		return
	}
	spread = slices.Clone(spread)
	for i := range spread {
		spread[i].LabelSelector = spread[i].LabelSelector.DeepCopy()
		resolve(spread[i].LabelSelector, spread[i].MatchLabelKeys, metav1.LabelSelectorOpIn, pod.Labels)
	}
	pod.Spec.TopologySpreadConstraints = spread
}

func resolveTerms(terms []corev1.PodAffinityTerm, labels map[string]string) {
	for i := range terms {
		resolve(terms[i].LabelSelector, terms[i].MatchLabelKeys, metav1.LabelSelectorOpIn, labels)
		resolve(terms[i].LabelSelector, terms[i].MismatchLabelKeys, metav1.LabelSelectorOpNotIn, labels)
	}
}

// resolve leaves out keys that the pod has no label of, and does nothing for a
// selector that is not there, which selects no pod. What was resolved for
// another pod is taken out: a selector may not name a key by itself too.
func resolve(s *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator, labels map[string]string) {
	if s == nil || len(keys) == 0 {
		return
	}
	s.MatchExpressions = slices.DeleteFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return slices.Contains(keys, r.Key) })
	for _, key := range keys {
		if value, ok := labels[key]; ok {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
		}
	}
}
