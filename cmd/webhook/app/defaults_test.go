package app

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"

	gpus "github.com/muster-gpu/muster/api/gpu"
)

func TestOnlyWhatMayGetDefaultsIsSent(t *testing.T) {
	const ending, jobSet, pod = ".defaults.muster.dev", "jobsets", "pods"
	asks := func(resources string) string {
		return `{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"},"requests":{"cpu":"1"}}},{"name":"d","env":[{"name":"A"}],"resources":` + resources + `}]}`
	}
	gpu := asks(`{"limits":{"nvidia.com/gpu":"1"}}`)
	of := func(label, kind, controller string) string {
		return `"labels":{"` + label + `":"x"},"ownerReferences":[{"apiVersion":"batch/v1","kind":"` + kind + `","name":"x","uid":"u","controller":` + controller + `}]`
	}
	const member = "jobset.sigs.k8s.io/jobset-name"
	stamped := func(suspend, note string) string {
		return `{"metadata":{},"spec":{"suspend":` + suspend + `,"replicatedJobs":[{"template":{"spec":{"template":{"spec":{}}}}},
			{"template":{"spec":{"template":{"metadata":{"annotations":{` + note + `}},"spec":{}}}}}]}}`
	}
	jobsOf := func(pod string) string {
		return `{"metadata":{},"spec":{"replicatedJobs":[{"template":{"spec":{"template":{"spec":{"containers":[{"name":"c"}]}}}}},{"template":{"spec":{"template":{"spec":` + pod + `}}}}]}}`
	}
	const note = `"muster.dev/runtime-defaults":"{}"`
	tests := map[string]struct {
		resource schema.GroupVersionResource
		object   string
		// old is the object before an update.
		old  string
		want []string
	}{
		"a JobSet without jobs":                {resource: jobSets, object: `{"metadata":{},"spec":{}}`},
		"a JobSet without devices":             {resource: jobSets, object: jobsOf(asks(`{}`))},
		"a JobSet with GPUs":                   {resource: jobSets, object: jobsOf(gpu), want: []string{jobSet}},
		"a JobSet with a claim":                {resource: jobSets, object: jobsOf(asks(`{"claims":[{"name":"x"}]}`)), want: []string{jobSet}},
		"a JobSet that starts MPI's ranks":     {resource: jobSets, object: jobsOf(`{"containers":[{"name":"c","env":[{"name":"OMPI_MCA_orte_default_hostfile"}]}]}`), want: []string{jobSet}},
		"a TrainJob":                           {resource: trainJobs, object: queuedTrainJob},
		"a Job":                                {resource: jobs, object: `{"metadata":{},"spec":{"template":{"spec":` + gpu + `}}}`},
		"a pod without devices":                {resource: pods, object: `{"metadata":{},"spec":` + asks(`{}`) + `}`},
		"a pod without resources":              {resource: pods, object: `{"metadata":{},"spec":{"containers":[{"name":"c"}]}}`},
		"a pod with GPUs as its limit":         {resource: pods, object: `{"metadata":{},"spec":` + gpu + `}`, want: []string{pod}},
		"as its request":                       {resource: pods, object: `{"metadata":{},"spec":` + asks(`{"requests":{"amd.com/gpu":1}}`) + `}`, want: []string{pod}},
		"a pod with a claim":                   {resource: pods, object: `{"metadata":{},"spec":` + asks(`{"claims":[{"name":"x"}]}`) + `}`, want: []string{pod}},
		"a pod with no claims":                 {resource: pods, object: `{"metadata":{},"spec":` + asks(`{"claims":[]}`) + `}`},
		"a pod with devices as a resource":     {resource: pods, object: `{"metadata":{},"spec":` + asks(`{"limits":{"deviceclass.resource.kubernetes.io/gpu.nvidia.com":1}}`) + `}`, want: []string{pod}},
		"a pod whose init container asks":      {resource: pods, object: `{"metadata":{},"spec":{"containers":[{"name":"c"}],"initContainers":` + strings.TrimSuffix(strings.TrimPrefix(gpu, `{"containers":`), "}") + `}}`, want: []string{pod}},
		"a pod that starts MPI's ranks":        {resource: pods, object: `{"metadata":{},"spec":{"containers":[{"name":"c","env":[{"name":"A"},{"name":"OMPI_MCA_orte_default_hostfile"}]}]}}`, want: []string{pod}},
		"a pod that was made for a node":       {resource: pods, object: `{"metadata":{},"spec":{"nodeName":"n",` + gpu[1:] + `}`},
		"a pod of a Job":                       {resource: pods, object: `{"metadata":{` + of("app", "Job", "true") + `},"spec":` + gpu + `}`, want: []string{pod}},
		"a pod of a JobSet":                    {resource: pods, object: `{"metadata":{` + of(member, "Job", "true") + `},"spec":` + gpu + `}`},
		"a pod that only says so":              {resource: pods, object: `{"metadata":{"labels":{"` + member + `":"x"}},"spec":` + gpu + `}`, want: []string{pod}},
		"an update of a suspended JobSet":      {resource: jobSets, object: stamped("true", ""), old: stamped("true", note), want: []string{jobSet}},
		"a resumption":                         {resource: jobSets, object: stamped("false", note), old: stamped("true", note), want: []string{jobSet}},
		"a suspension":                         {resource: jobSets, object: stamped("true", note), old: stamped("false", note), want: []string{jobSet}},
		"an update of a JobSet that runs":      {resource: jobSets, object: stamped("false", note), old: stamped("false", note)},
		"an update of one that got no default": {resource: jobSets, object: stamped("true", ""), old: stamped("true", "")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			operation := apiadmission.Create
			if tc.old != "" {
				operation = apiadmission.Update
			}
			got := calledFor(t, ending, tc.resource, operation, tc.object, tc.old)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("sent to (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("the names of GPUs are those that Muster knows", func(t *testing.T) {
		names := []string{"cpu", "nvidia.com/gpumem", "nvidia.com/migx", "example.com/nvidia.com/mig-1g"}
		for _, name := range gpus.Names() {
			names = append(names, strings.Replace(name, "*", "1g.10gb", 1))
		}
		for _, name := range names {
			var want []string
			if gpus.Is(corev1.ResourceName(name)) {
				want = []string{pod, jobSet}
			}
			of := asks(`{"limits":{"` + name + `":1}}`)
			got := append(sentTo(t, ending, pods, `{"metadata":{},"spec":`+of+`}`), sentTo(t, ending, jobSets, jobsOf(of))...)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("a pod and a JobSet that ask for %s are sent to (-want +got):\n%s", name, diff)
			}
		}
	})
}
