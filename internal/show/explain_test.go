package show

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/inquiry"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

func TestAJobThatWaitsIsExplained(t *testing.T) {
	limited := trainJob("grape", 1, 8, admittedOn("research", 10*time.Minute, "n4"), func(wl *kueue.Workload) {
		wl.Namespace, wl.Spec.MaximumExecutionTimeSeconds = "vision", new(int32(1200))
	})
	leaving := trainJob("hazel", 1, 4, admittedOn("research", 5*time.Minute, "n5"), says(kueue.WorkloadEvicted, metav1.ConditionTrue, "Preempted", "for another", time.Minute))
	elsewhere := trainJob("iris", 1, 4, admittedOn("another", 5*time.Minute, "n6"))
	c, asked := clusterOf(t, append(someJobs(), limited, leaving, elsewhere)...)
	compare(t, `
TrainJob nlp/banana waits, for 60m
  Queue      q, ClusterQueue research
  Size       16 GPUs, 4 pods, priority 0
  Position   2 of 2 in LocalQueue q
  Why        WaitingForQuota: needs 16 GPUs in queue q, 8 of 24 free
In the queue's quota, those first that are expected to free it first:
  TrainJob nlp/hazel  4 GPUs, priority 0, runs for 5m, is being stopped
  TrainJob vision/grape  8 GPUs, priority 0, runs for 10m, ends by 2026-06-01T12:10:00Z
  TrainJob nlp/damson  8 GPUs, priority 0, runs for 3h, nothing says when it ends
  TrainJob nlp/apple  16 GPUs, priority 0, runs for 40m, nothing says when it ends
`, shown(t, "", func(o Output) error { return c.ShowExplanation(t.Context(), o, "nlp", "banana", nil) }))
	if len(*asked) != 3 {
		t.Error(*asked)
	}
}

func TestAJobThatRunsIsExplained(t *testing.T) {
	held := func(pod string, v v1alpha1.GPUVerdict) v1alpha1.GPUDevice {
		return device(heldBy(pod, "", v, time.Hour))
	}
	c, _ := clusterOf(t, append(someJobs(),
		gpuNode("n1", time.Minute, held("apple-0", v1alpha1.GPUActive), held("another", v1alpha1.GPUActive)),
		gpuNode("n2", time.Minute, held("apple-2", v1alpha1.GPUIdle)),
	)...)
	want := `
TrainJob nlp/apple runs, for 40m
  Queue      q, ClusterQueue research
  Size       16 GPUs, 4 pods, priority 0
  Owners     Job apple-node-0 -> Pod apple-0
  Pods       2 of 4 ready
  Placed     16 GPUs on 2 nodes from queue q, in one domain of rack
  n1: 2 pods; GPU 0 active 60m
  n2: 2 pods; GPU 0 idle 60m
`
	for _, name := range []string{"apple", "trainjob/apple", "TrainJobs.trainer.kubeflow.org/apple", "pod/apple-2", "apple-2", "workload/trainjob-apple-1a2b3"} {
		compare(t, want, shown(t, "", func(o Output) error { return c.ShowExplanation(t.Context(), o, "nlp", name, nil) }))
	}
	err := c.ShowExplanation(t.Context(), Output{}, "nlp", "job/apple", nil)
	if err == nil || !strings.Contains(err.Error(), "trainjob.trainer.kubeflow.org/apple") {
		t.Error(err)
	}
}

func TestOtherNamespacesMayBeForbidden(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: kueue.SchemeGroupVersion.Group, Resource: "workloads"}, "", nil)
	c := &Cluster{now: func() time.Time { return noon }, client: fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(someJobs()...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			var o client.ListOptions
			if o.ApplyOptions(opts); o.Namespace == "" {
				return forbidden
			}
			return c.List(ctx, list, opts...)
		},
	}).Build()}
	got := shown(t, "", func(o Output) error { return c.ShowExplanation(t.Context(), o, "nlp", "banana", nil) })
	if !strings.Contains(got, "of this namespace; those of others may not be read") || strings.Count(got, "nlp/apple") != 1 {
		t.Error(got)
	}
	if _, err := c.Jobs(t.Context(), JobOptions{}); err == nil || !strings.Contains(err.Error(), "ClusterRole muster-viewer") || !strings.Contains(err.Error(), "workloads.kueue.x-k8s.io") {
		t.Error(err)
	}
}

func TestTheSchedulersSilenceHidesNotWhatTheWorkloadSays(t *testing.T) {
	for name, e := range map[string]*Explanation{
		"it has no reason": {Job: Job{Reason: "Deactivated", Message: "parked"}, Scheduler: &inquiry.Standing{State: "pending"}},
		"it is not there":  {Job: Job{Reason: "Deactivated", Message: "parked"}, NotAsked: "a standby"},
	} {
		var out strings.Builder
		w := &page{out: &out}
		if e.writePending(w, noon); !strings.Contains(out.String(), "Deactivated: parked") || !strings.Contains(out.String(), e.NotAsked) {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}
