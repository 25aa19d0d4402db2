package policy

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// PolicyLabel on a ConfigMap, with the value PolicyLabelRego, says that it holds a
// policy: kube-mgmt's, so that its users need not write their policies again.
const (
	PolicyLabel     = "openpolicyagent.org/policy"
	PolicyLabelRego = "rego"
)

// FromConfigMap is the policy of a ConfigMap, whose keys are its files; it refuses, and
// is asked about all kinds. ok is false for one without the label, and for one without
// files. Whoever may write the ConfigMap decides what the cluster takes: callers read
// one namespace only.
func FromConfigMap(m *corev1.ConfigMap) (p Policy, ok bool) {
	if m.Labels[PolicyLabel] != PolicyLabelRego || len(m.Data) == 0 {
		return Policy{}, false
	}
	p = Policy{Name: "configmap/" + m.Name, Generation: m.Generation}
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		p.Files = append(p.Files, File{Name: key, Rego: m.Data[key]})
	}
	return p, true
}
