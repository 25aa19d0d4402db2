package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/muster-gpu/muster/api/reason"
)

// injectedAnnotation on a pod template says what Resume added to it. It travels
// with the template, through the Trainer too, so that the author's template can
// always be told from the running one: no Workload, second annotation or memory
// of this process has to agree with it.
const injectedAnnotation = "muster.dev/injected"

// injection is what is added to one pod template: only what the template does
// not have already, so that taking it out again restores the template exactly.
type injection struct {
	NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
	Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
	Labels       map[string]string   `json:"labels,omitempty"`
	Annotations  map[string]string   `json:"annotations,omitempty"`
	// gates are Kueue's; Muster takes them out only.
	gates []corev1.PodSchedulingGate
}

func (in *injection) empty() bool {
	return len(in.NodeSelector)+len(in.Tolerations)+len(in.Labels)+len(in.Annotations)+len(in.gates) == 0
}

// injectionOf is what info adds to the author's template. The error is a
// *reason.Reason where the two contradict each other.
func injectionOf(info *PodSetInfo, template *corev1.PodTemplateSpec) (*injection, error) {
	in := &injection{}
	for _, m := range []struct {
		what      string
		into      *map[string]string
		has, asks map[string]string
	}{
		{"node selector", &in.NodeSelector, template.Spec.NodeSelector, info.NodeSelector},
		{"label", &in.Labels, template.Labels, info.Labels},
		{"annotation", &in.Annotations, template.Annotations, info.Annotations},
	} {
		for _, key := range slices.Sorted(maps.Keys(m.asks)) {
			if has, found := m.has[key]; !found {
				if *m.into == nil {
					*m.into = map[string]string{}
				}
				(*m.into)[key] = m.asks[key]
			} else if has != m.asks[key] {
				return nil, reason.New(reason.Misconfigured, "pod set %q has the %s %s=%s, but its queue gives %s=%s",
					info.Name, m.what, key, has, key, m.asks[key])
			}
		}
	}
	in.Tolerations = without(union(nil, info.Tolerations), template.Spec.Tolerations)
	// A fixed order makes two resumes with the same infos alike.
	slices.SortFunc(in.Tolerations, func(a, b corev1.Toleration) int { return strings.Compare(a.String(), b.String()) })
	return in, nil
}

// inject adds the injection, and the note of it, to the author's template.
func (in *injection) inject(template *corev1.PodTemplateSpec) error {
	if in.empty() {
		return nil
	}
	note, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("writing annotation %s: %w", injectedAnnotation, err)
	}
	template.Spec.NodeSelector = joined(template.Spec.NodeSelector, in.NodeSelector)
	template.Spec.Tolerations = union(template.Spec.Tolerations, in.Tolerations)
	template.Labels = joined(template.Labels, in.Labels)
	template.Annotations = joined(template.Annotations, in.Annotations)
	template.Annotations = joined(template.Annotations, map[string]string{injectedAnnotation: string(note)})
	return nil
}

// restore turns a template back into its author's and returns what was taken
// out. A template whose annotation cannot be read is left as it is.
func restore(template *corev1.PodTemplateSpec) (*injection, error) {
	note, found := template.Annotations[injectedAnnotation]
	if !found {
		return &injection{}, nil
	}
	in := &injection{}
	if err := json.Unmarshal([]byte(note), in); err != nil {
		return nil, fmt.Errorf("reading annotation %s: %w", injectedAnnotation, err)
	}
	in.takeOut(template)
	template.Annotations = parted(template.Annotations, map[string]string{injectedAnnotation: note})
	return in, nil
}

// takeOut turns a template back into what it was before the injection.
func (in *injection) takeOut(template *corev1.PodTemplateSpec) {
	template.Spec.NodeSelector = parted(template.Spec.NodeSelector, in.NodeSelector)
	template.Spec.Tolerations = without(template.Spec.Tolerations, in.Tolerations)
	template.Labels = parted(template.Labels, in.Labels)
	template.Annotations = parted(template.Annotations, in.Annotations)
	if len(in.gates) > 0 {
		template.Spec.SchedulingGates = withoutGates(template.Spec.SchedulingGates, in.gates)
	}
}

// joined is a copy of m with more added.
func joined(m, more map[string]string) map[string]string {
	if len(more) == 0 {
		return m
	}
	all := make(map[string]string, len(m)+len(more))
	maps.Copy(all, m)
	maps.Copy(all, more)
	return all
}

// parted is a copy of m without the pairs of less; nil rather than empty.
func parted(m, less map[string]string) map[string]string {
	rest := maps.Clone(m)
	maps.DeleteFunc(rest, func(key, value string) bool {
		gone, found := less[key]
		return found && gone == value
	})
	if len(rest) == 0 {
		return nil
	}
	return rest
}

// union is the tolerations a, then those of b that a lacks, each once.
func union(a, b []corev1.Toleration) []corev1.Toleration {
	all := slices.Clone(a)
	for _, t := range b {
		if !hasToleration(all, t) {
			all = append(all, t)
		}
	}
	return all
}

// without is the tolerations of a that b lacks; nil rather than empty.
func without(a, b []corev1.Toleration) []corev1.Toleration {
	var rest []corev1.Toleration
	for _, t := range a {
		if !hasToleration(b, t) {
			rest = append(rest, t)
		}
	}
	return rest
}

func hasToleration(list []corev1.Toleration, t corev1.Toleration) bool {
	return slices.ContainsFunc(list, func(o corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, o) })
}
