package defaults

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// Subject is what RuntimeDefaults can select a pod by, beside its own labels.
type Subject struct {
	// Namespace are the labels of the namespace.
	Namespace labels.Set
	// Kind is that of the object that makes the pod; Pod where there is none.
	Kind string
	// Queue is the LocalQueue that the job names, or empty.
	Queue string
	// Runtime is that of the TrainJob, or nil.
	Runtime *v1alpha1.RuntimeReference
}

// Less says that the values of a are used where b wants others: the order of
// RuntimeDefaults by class, weight and name.
func Less(a, b *v1alpha1.RuntimeDefaults) bool { return compare(a, b) < 0 }

func compare(a, b *v1alpha1.RuntimeDefaults) int {
	rank := func(d *v1alpha1.RuntimeDefaults) int {
		if required(d) {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)),
		cmp.Compare(b.Spec.Weight, a.Spec.Weight),
		cmp.Compare(a.Name, b.Name),
	)
}

func required(d *v1alpha1.RuntimeDefaults) bool { return d.Spec.Class == v1alpha1.ClassRequired }

// Choose returns those RuntimeDefaults that select a pod with these labels, the
// first in order first. One whose selectors cannot be read selects nothing; the API
// server refuses to store most of these.
func Choose(all []*v1alpha1.RuntimeDefaults, s Subject, pod labels.Set) []*v1alpha1.RuntimeDefaults {
	var chosen []*v1alpha1.RuntimeDefaults
	for _, d := range all {
		if selects(&d.Spec.Match, s, pod) {
			chosen = append(chosen, d)
		}
	}
	slices.SortFunc(chosen, compare)
	return chosen
}

func selects(m *v1alpha1.DefaultsMatch, s Subject, pod labels.Set) bool {
	if len(m.Kinds) > 0 && !slices.Contains(m.Kinds, s.Kind) {
		return false
	}
	if len(m.Queues) > 0 && !slices.Contains(m.Queues, s.Queue) {
		return false
	}
	if len(m.Runtimes) > 0 && (s.Runtime == nil || !slices.Contains(m.Runtimes, *s.Runtime)) {
		return false
	}
	return matches(m.NamespaceSelector, s.Namespace) && matches(m.PodSelector, pod)
}

// matches says that a selector holds; one that is not given does.
func matches(selector *metav1.LabelSelector, set labels.Set) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(set)
}

// reference names RuntimeDefaults at the generation that was used.
func reference(d *v1alpha1.RuntimeDefaults) string { return fmt.Sprintf("%s@%d", d.Name, d.Generation) }
