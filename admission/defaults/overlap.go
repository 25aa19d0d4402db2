package defaults

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// Status is what is to be said of one of the RuntimeDefaults beside all of them.
func Status(of *v1alpha1.RuntimeDefaults, all []*v1alpha1.RuntimeDefaults, around Around) v1alpha1.RuntimeDefaultsStatus {
	status := v1alpha1.RuntimeDefaultsStatus{ObservedGeneration: of.Generation}
	for _, other := range all {
		if other.Name == of.Name || apart(&of.Spec.Match, &other.Spec.Match) {
			continue
		}
		fields := disputed(&of.Spec, &other.Spec)
		if len(fields) == 0 {
			continue
		}
		first := other
		if Less(of, other) {
			first = of
		}
		status.Overlaps = append(status.Overlaps, v1alpha1.DefaultsOverlap{With: other.Name, First: first.Name, Fields: fields})
	}
	slices.SortFunc(status.Overlaps, func(a, b v1alpha1.DefaultsOverlap) int { return strings.Compare(a.With, b.With) })
	if name := of.Spec.Pod.PriorityClassName; name != "" && !around.PriorityClasses.Has(name) {
		status.Missing = append(status.Missing, "PriorityClass "+name)
	}
	if name := of.Spec.Pod.RuntimeClassName; name != "" && !around.RuntimeClasses.Has(name) {
		status.Missing = append(status.Missing, "RuntimeClass "+name)
	}
	return status
}

// apart says that no pod can be selected by both. Selectors that cannot be told
// apart by the labels that they name outright count as overlapping.
func apart(a, b *v1alpha1.DefaultsMatch) bool {
	return disjoint(a.Kinds, b.Kinds) || disjoint(a.Queues, b.Queues) || disjoint(a.Runtimes, b.Runtimes) ||
		contradict(a.NamespaceSelector, b.NamespaceSelector) || contradict(a.PodSelector, b.PodSelector)
}

// disjoint says that two lists, of which an empty one means anything, have nothing
// in common.
func disjoint[T comparable](a, b []T) bool {
	return len(a) > 0 && len(b) > 0 && !slices.ContainsFunc(a, func(x T) bool { return slices.Contains(b, x) })
}

// contradict says that two selectors want different values of a label.
func contradict(a, b *metav1.LabelSelector) bool {
	if a == nil || b == nil {
		return false
	}
	for key, value := range a.MatchLabels {
		if other, found := b.MatchLabels[key]; found && other != value {
			return true
		}
	}
	return false
}

// disputed lists the fields for which both have a value, and not the same.
func disputed(a, b *v1alpha1.RuntimeDefaultsSpec) []string {
	x, y := wanted(a), wanted(b)
	if disjoint(a.Containers.Names, b.Containers.Names) {
		x, y = podWide(a), podWide(b)
	}
	var fields []string
	for _, field := range slices.Sorted(maps.Keys(x)) {
		if other, found := y[field]; found && other != x[field] {
			fields = append(fields, field)
		}
	}
	return fields
}

// podWide are the values of a pod's fields by what they are called.
func podWide(s *v1alpha1.RuntimeDefaultsSpec) map[string]string {
	m := map[string]string{}
	for key, value := range s.Pod.Labels {
		m["label "+key] = value
	}
	for key, value := range s.Pod.Annotations {
		m["annotation "+key] = value
	}
	for field, value := range map[string]string{
		"priorityClassName": s.Pod.PriorityClassName, "schedulerName": s.Pod.SchedulerName, "runtimeClassName": s.Pod.RuntimeClassName,
		"terminationGracePeriodSeconds": seconds(s.Pod.TerminationGracePeriodSeconds),
	} {
		if value != "" {
			m[field] = value
		}
	}
	return m
}

// wanted are these and the values of a container's fields. Tolerations and
// capabilities are united, and never disputed.
func wanted(s *v1alpha1.RuntimeDefaultsSpec) map[string]string {
	m := podWide(s)
	c := &s.Containers
	for _, e := range c.Env {
		m["env "+e.Name] = e.Value
	}
	for _, r := range c.Resources {
		m["resource "+r.Name] = fmt.Sprintf("%d, for each GPU: %v", r.Count, r.PerGPU)
	}
	if c.ImagePullPolicy != "" {
		m["imagePullPolicy"] = string(c.ImagePullPolicy)
	}
	if shm := c.SharedMemory; shm != nil {
		m[shmPath] = fmt.Sprintf("%v, %d %%", shm.SizeLimit, shm.MemoryPercent)
	}
	return m
}
