package quota

import (
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// eligible is ineligible without words.
func eligible(spec *corev1.PodSpec, f *flavor) bool {
	return (len(f.taints) == 0 && !choosy(spec, f)) || ineligible(spec, f) == ""
}

// choosy says that the pods may not accept the flavor's labels.
func choosy(spec *corev1.PodSpec, f *flavor) bool {
	return spec != nil && len(f.nodeLabels) > 0 && (len(spec.NodeSelector) > 0 || spec.Affinity != nil)
}

// ineligible says why the pods of a template may not be given a flavor, or
// returns "" where they may. The rule is Kueue's: every NoSchedule and
// NoExecute taint of the flavor is tolerated by the pod or by the flavor
// itself, and the pod's node selector and required node affinity accept the
// flavor's labels, looked at on the flavor's own label keys only. Nodes are not
// read. The phrase follows "pod set x: ".
func ineligible(spec *corev1.PodSpec, f *flavor) string {
	if taint, ok := untolerated(spec, f); ok {
		return fmt.Sprintf("taint %s of flavor %s is not tolerated", taint.ToString(), f.name)
	}
	if !choosy(spec, f) {
		return ""
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: f.nodeLabels}}
	match, err := requiredOn(spec, f.nodeLabels).Match(node)
	switch {
	case err != nil:
		return fmt.Sprintf("required node affinity is invalid: %v", err)
	case !match:
		return fmt.Sprintf("node selector or affinity does not match flavor %s", f.name)
	default:
		return ""
	}
}

func untolerated(spec *corev1.PodSpec, f *flavor) (corev1.Taint, bool) {
	for _, taint := range f.taints {
		if taint.Effect != corev1.TaintEffectNoSchedule && taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		if corev1helpers.TolerationsTolerateTaint(logr.Discard(), f.tolerate, &taint, true) {
			continue
		}
		if spec != nil && corev1helpers.TolerationsTolerateTaint(logr.Discard(), spec.Tolerations, &taint, true) {
			continue
		}
		return taint, true
	}
	return corev1.Taint{}, false
}

// requiredOn keeps of a pod's requirements on nodes those on the given label
// keys: whether the other labels match is the business of placement.
func requiredOn(spec *corev1.PodSpec, keys map[string]string) nodeaffinity.RequiredNodeAffinity {
	var kept corev1.PodSpec
	for k, v := range spec.NodeSelector {
		if _, ok := keys[k]; ok {
			if kept.NodeSelector == nil {
				kept.NodeSelector = map[string]string{}
			}
			kept.NodeSelector[k] = v
		}
	}
	if terms := requiredTermsOn(spec, keys); len(terms) > 0 {
		kept.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
	return nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: kept})
}

// requiredTermsOn returns nil where the affinity asks nothing of the keys.
// Terms are alternatives, so one that says nothing about them accepts any value.
func requiredTermsOn(spec *corev1.PodSpec, keys map[string]string) []corev1.NodeSelectorTerm {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil ||
		spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	var terms []corev1.NodeSelectorTerm
	for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		var kept []corev1.NodeSelectorRequirement
		for _, e := range term.MatchExpressions {
			if _, ok := keys[e.Key]; ok {
				kept = append(kept, e)
			}
		}
		if len(kept) == 0 {
			return nil
		}
		terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: kept})
	}
	return terms
}
