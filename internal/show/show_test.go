package show

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

// clusterOf has objects, and counts the requests that are made to it.
func clusterOf(t *testing.T, objects ...client.Object) (*Cluster, *[]string) {
	t.Helper()
	var asked []string
	c := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			asked = append(asked, fmt.Sprintf("list %T", list))
			return c.List(ctx, list, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			asked = append(asked, fmt.Sprintf("get %T", obj))
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()
	return &Cluster{client: c, now: func() time.Time { return noon }}, &asked
}

// shown is what a command shows, between line ends.
func shown(t *testing.T, format string, show func(Output) error) string {
	t.Helper()
	var out bytes.Buffer
	if err := show(Output{Out: &out, Format: format}); err != nil {
		t.Fatal(err)
	}
	return "\n" + out.String()
}

func clusterQueue(name, cohort, flavor string, nominal, used int64, change ...func(*kueue.ClusterQueue)) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kueue.ClusterQueueSpec{
			CohortName: kueue.CohortReference(cohort),
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{"cpu", "nvidia.com/gpu"},
				Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(flavor), Resources: []kueue.ResourceQuota{
					{Name: "cpu", NominalQuota: resource.MustParse("100")},
					{Name: "nvidia.com/gpu", NominalQuota: *resource.NewQuantity(nominal, resource.DecimalSI)},
				}}},
			}},
		},
		Status: kueue.ClusterQueueStatus{
			Conditions: []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: metav1.ConditionTrue}},
			FlavorsReservation: []kueue.FlavorUsage{{Name: kueue.ResourceFlavorReference(flavor), Resources: []kueue.ResourceUsage{
				{Name: "nvidia.com/gpu", Total: *resource.NewQuantity(used, resource.DecimalSI)},
			}}},
		},
	}
	for _, f := range change {
		f(cq)
	}
	return cq
}

func localQueueFor(namespace, name, clusterQueue string) *kueue.LocalQueue {
	return &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)},
		Status:     kueue.LocalQueueStatus{Conditions: []metav1.Condition{{Type: kueue.LocalQueueActive, Status: metav1.ConditionTrue}}},
	}
}

// trainJob is the Workload of a TrainJob of pods with GPUs, which waits.
func trainJob(name string, pods int32, gpus int64, change ...func(*kueue.Workload)) *kueue.Workload {
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "nlp", Name: "trainjob-" + name + "-1a2b3", CreationTimestamp: ago(time.Hour),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: name, UID: types.UID(name), Controller: new(true)}},
		},
		Spec: kueue.WorkloadSpec{QueueName: "q", Priority: new(int32(0)), PodSets: []kueue.PodSet{{
			Name: "node", Count: pods,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)},
			}}}}},
		}}},
	}
	for _, f := range change {
		f(wl)
	}
	return wl
}

func says(kind string, status metav1.ConditionStatus, reason, message string, since time.Duration) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: ago(since)})
	}
}

// admittedOn has the Workload admitted in a ClusterQueue, its pods on nodes.
func admittedOn(clusterQueue string, since time.Duration, nodes ...string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		set := &wl.Spec.PodSets[0]
		gpus := workload.Requests(&set.Template)["nvidia.com/gpu"]
		gpus.Mul(int64(set.Count))
		wl.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(clusterQueue), PodSetAssignments: []kueue.PodSetAssignment{{
			Name: set.Name, Count: &set.Count, ResourceUsage: corev1.ResourceList{"nvidia.com/gpu": gpus}, TopologyAssignment: workload.EncodeNodes(nodes),
		}}}
		says(kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "admitted: 16 GPUs on 2 nodes from queue q, in one domain of rack", since)(wl)
	}
}

// trainPod is a pod of a TrainJob.
func trainPod(job, name, node string, isReady bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if isReady {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "nlp", Name: name, Labels: map[string]string{"jobset.sigs.k8s.io/jobset-name": job},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job + "-node-0", Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}},
	}
}

func compare(t *testing.T, want, got string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimLeft(want, "\n"), strings.TrimLeft(got, "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
