package rendering

import (
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

func TestPodsThatJobSetsLabelWouldHaveRefusedAreSaidToBe(t *testing.T) {
	low := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "low"}, Value: -10}
	high := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 10}
	for name, tc := range map[string]struct {
		class string
		set   workload.PodSet
		no    bool
	}{
		"a negative priority of a JobSet's pods":          {"low", workload.PodSet{Stamp: workload.Stamp{JobPrefix: "train-node-"}}, true},
		"a positive one":                                  {"high", workload.PodSet{Stamp: workload.Stamp{JobPrefix: "train-node-"}}, false},
		"no class":                                        {"", workload.PodSet{Stamp: workload.Stamp{JobPrefix: "train-node-"}}, false},
		"pods that no JobSet makes":                       {"low", workload.PodSet{}, false},
		"a JobSet whose nodes are labelled for it before": {"low", workload.PodSet{Stamp: workload.Stamp{JobPrefix: "train-node-"}, Exclusive: workload.Exclusive{TopologyKey: "rack", ByNodeSelector: true}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, low, high)
			set := tc.set
			set.Name, set.Template = "node", *template()
			set.Template.Spec.PriorityClassName = tc.class
			job := &workload.Job{PodSets: []workload.PodSet{set}}
			job.Owner.Namespace = namespace
			no, err := NewRenderer(s, s, s.clock, false).Render(t.Context(), job)
			if err != nil || (no != nil) != tc.no || (no != nil && no.Class != reason.Misconfigured) {
				t.Errorf("the reason is %v (%v), want one: %v", no, err, tc.no)
			}
		})
	}
}
