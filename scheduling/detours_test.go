package scheduling

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/quota"
)

// offers are the flavors of each pod set, in the order in which quota gives them.
type offers [][]string

func (c offers) ask(without [][]string) (*quota.Assignment, *reason.Reason) {
	a := &quota.Assignment{}
	for i, flavors := range c {
		left := slices.DeleteFunc(slices.Clone(flavors), func(f string) bool { return slices.Contains(without[i], f) })
		if len(left) == 0 {
			return nil, reason.New(reason.NoMatchingFlavor, "none is left")
		}
		a.Flavors = append(a.Flavors, map[corev1.ResourceName]string{gpuResource: left[0]})
	}
	return a, nil
}

// walk are the choices that are found, with each of them refused.
func (c offers) walk(order ...int) []string {
	d := &detours{ask: c.ask, order: order, without: make([][]string, len(c))}
	var out []string
	for a, _ := c.ask(d.without); a != nil; a, _ = d.next(a) {
		var names []string
		for _, f := range a.Flavors {
			names = append(names, f[gpuResource])
		}
		out = append(out, strings.Join(names, "+"))
	}
	return out
}

func TestDetoursGoThroughTheFlavorsInTheirOrder(t *testing.T) {
	tests := map[string]struct {
		choices offers
		order   []int
		want    []string
	}{
		"one pod set":             {offers{{"a", "b", "c"}}, []int{0}, []string{"a", "b", "c"}},
		"one flavor":              {offers{{"a"}}, []int{0}, []string{"a"}},
		"the larger pod set goes": {offers{{"a", "b"}, {"a", "b"}}, []int{1, 0}, []string{"a+a", "a+b", "b+a", "b+b"}},
		"and the first of equals": {offers{{"a", "b"}, {"a", "b"}}, []int{0, 1}, []string{"a+a", "b+a", "a+b", "b+b"}},
		"no more than a few":      {offers{{"1", "2", "3", "4", "5", "6", "7", "8", "9"}}, []int{0}, []string{"1", "2", "3", "4", "5", "6", "7", "8"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.choices.walk(tc.order...)); diff != "" {
				t.Errorf("choices (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDetoursMissNoChoiceAndRepeatNone draws so few flavors that all choices may be
// tried.
func TestDetoursMissNoChoiceAndRepeatNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c offers
		all := 1
		var order []int
		for i := range rapid.IntRange(1, 3).Draw(t, "pod sets") {
			n := rapid.IntRange(1, max(1, min(3, mostOptions/all))).Draw(t, "flavors")
			all *= n
			var flavors []string
			for f := range n {
				flavors = append(flavors, fmt.Sprint(f))
			}
			c, order = append(c, rapid.Permutation(flavors).Draw(t, "in order")), append(order, i)
		}
		got := c.walk(rapid.Permutation(order).Draw(t, "the pod sets' order")...)
		if distinct := slices.Compact(slices.Sorted(slices.Values(got))); len(got) != all || len(distinct) != all {
			t.Fatalf("%q are tried, of %d", got, all)
		}
	})
}
