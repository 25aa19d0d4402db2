package defaults

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Annotation records on a pod template, and so on its pods, which RuntimeDefaults
// have changed it.
const Annotation = "muster.dev/runtime-defaults"

// record is the annotation's value, in JSON. Beside the names it has what may be
// changed in a suspended JobSet, so that it can be put back: the RuntimeDefaults may
// be others by then, and the job must not become a mixture of the two.
type record struct {
	// Applied are "name@generation" of those that have changed something.
	Applied     []string            `json:"applied"`
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	Labels      map[string]string   `json:"labels,omitempty"`
	Annotations map[string]string   `json:"annotations,omitempty"`
}

// Applied lists the RuntimeDefaults that have changed a pod, as "name@generation".
func Applied(pod *corev1.PodTemplateSpec) []string { return recorded(pod).Applied }

// recorded is what a pod template says of itself. What cannot be read is nothing.
func recorded(pod *corev1.PodTemplateSpec) record {
	var r record
	if json.Unmarshal([]byte(pod.Annotations[Annotation]), &r) != nil {
		return record{}
	}
	return r
}

// note writes down what this run has added, to what an earlier one has written.
func (s *stamper) note() {
	if len(s.record.Applied) == 0 {
		return
	}
	r := recorded(s.pod)
	for _, name := range s.record.Applied {
		if !slices.Contains(r.Applied, name) {
			r.Applied = append(r.Applied, name)
		}
	}
	r.Tolerations = append(r.Tolerations, s.record.Tolerations...)
	r.Labels, r.Annotations = joined(r.Labels, s.record.Labels), joined(r.Annotations, s.record.Annotations)
	value, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and tolerations are JSON
	}
	s.doc.set(s.at.to("metadata", "annotations", Annotation), string(value))
}

// joined is both maps, of which the second wins; nil if both are empty.
func joined(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}
