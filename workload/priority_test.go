package workload

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

func priorityClass(name string, value int32, isDefault bool) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: isDefault}
}

func TestPriority(t *testing.T) {
	research := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "research"}, Value: 100}
	classes := []client.Object{research, priorityClass("batch", 5, false), priorityClass("usual", 20, true), priorityClass("usual-too", 10, true)}
	for name, tc := range map[string]struct {
		job    Job
		stored []client.Object
		value  int32
		ref    *kueue.PriorityClassRef
		no     *reason.Reason
	}{
		"the job's WorkloadPriorityClass before its pods' class": {
			Job{PriorityClass: "research", PodPriorityClass: "batch"}, classes, 100, kueue.NewWorkloadPriorityClassRef("research"), nil},
		"the class of its pods": {
			Job{PodPriorityClass: "batch"}, classes, 5, kueue.NewPodPriorityClassRef("batch"), nil},
		"the lowest of the default classes": {
			Job{}, classes, 10, kueue.NewPodPriorityClassRef("usual-too"), nil},
		"no class at all": {
			Job{}, []client.Object{research, priorityClass("batch", 5, false)}, 0, nil, nil},
		"a WorkloadPriorityClass that does not exist": {
			Job{PriorityClass: "batch"}, classes, 0, nil, &reason.Reason{Class: reason.Misconfigured, Message: "WorkloadPriorityClass batch does not exist"}},
		"a PriorityClass that does not exist": {
			Job{PodPriorityClass: "research"}, classes, 0, nil, &reason.Reason{Class: reason.Misconfigured, Message: "PriorityClass research does not exist"}},
	} {
		t.Run(name, func(t *testing.T) {
			value, ref, no, err := Priority(t.Context(), fakeClient(t, tc.stored...), &tc.job)
			if err != nil || value != tc.value {
				t.Errorf("got %d, err %v", value, err)
			}
			if diff := cmp.Diff(tc.ref, ref); diff != "" {
				t.Errorf("class (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.no, no); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPriorityReadErrorsAreForAnotherTry(t *testing.T) {
	broken := errors.New("the API server is away")
	c := interceptor.NewClient(fakeClient(t).(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return broken
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return broken },
	})
	for _, job := range []Job{{PriorityClass: "a"}, {PodPriorityClass: "a"}, {}} {
		if _, _, no, err := Priority(t.Context(), c, &job); !errors.Is(err, broken) || no != nil {
			t.Errorf("job %+v: no %v, err %v", job, no, err)
		}
	}
}
