package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/invariants"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
	"github.com/muster-gpu/muster/workload"
)

// stage is an API server without Muster, on which a test does by hand what
// Muster would do, or must not.
type stage struct {
	*testcluster.Cluster
	namespace string
}

// job creates a queued JobSet of pods pods, its pods and its pending Workload.
func (s *stage) job(t *testing.T, name, queue string, pods int32, each int64) (*kueue.Workload, []*corev1.Pod) {
	t.Helper()
	js := testcluster.Job(s.namespace, name, queue, pods, each)
	s.Create(t, js)
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: "jobset-" + name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(js, jobset.SchemeGroupVersion.WithKind("JobSet"))},
		},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(queue),
			PodSets:   []kueue.PodSet{{Name: "node", Count: pods, Template: js.Spec.ReplicatedJobs[0].Template.Spec.Template}},
		},
	}
	s.Create(t, wl)
	var out []*corev1.Pod
	for i := range pods {
		pod := s.pod(name+"-"+string('a'+i), each)
		pod.Labels = map[string]string{jobset.JobSetUIDKey: string(js.UID), jobset.ReplicatedJobNameKey: "node", jobset.JobIndexKey: "0"}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(js, jobset.SchemeGroupVersion.WithKind("JobSet"))}
		s.Create(t, pod)
		out = append(out, pod)
	}
	return wl, out
}

func (s *stage) pod(name string, each int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: corev1.PodSpec{SchedulerName: "muster", Containers: []corev1.Container{{
			Name: "node", Image: "example.com/train", Resources: corev1.ResourceRequirements{Limits: gpus(each)},
		}}},
	}
}

// admit writes a Workload as admitted, its pods on the nodes given.
func (s *stage) admit(t *testing.T, wl *kueue.Workload, nodes ...string) {
	t.Helper()
	queue := s.namespace + "-" + string(wl.Spec.QueueName)
	each := wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Limits[testcluster.GPU]
	wl.Status.Admission = &kueue.Admission{
		ClusterQueue: kueue.ClusterQueueReference(queue),
		PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "node", Count: new(int32(len(nodes))), ResourceUsage: gpus(each.Value() * int64(len(nodes))),
			Flavors:            map[corev1.ResourceName]kueue.ResourceFlavorReference{testcluster.GPU: kueue.ResourceFlavorReference(queue)},
			TopologyAssignment: workload.EncodeNodes(nodes),
		}},
	}
	s.say(t, wl, kueue.WorkloadQuotaReserved, "QuotaReserved")
	s.say(t, wl, kueue.WorkloadAdmitted, "Admitted")
}

// say writes a condition of a Workload as true.
func (s *stage) say(t *testing.T, wl *kueue.Workload, condition, why string) {
	t.Helper()
	apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: why, Message: "by hand"})
	if err := s.Client.Status().Update(t.Context(), wl); err != nil {
		t.Fatalf("writing %s of Workload %s: %v", condition, wl.Name, err)
	}
}

// bind binds a pod as a scheduler does.
func (s *stage) bind(t *testing.T, pod *corev1.Pod, node string) {
	t.Helper()
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if err := s.Client.SubResource("binding").Create(t.Context(), pod, binding); err != nil {
		t.Fatalf("binding pod %s: %v", pod.Name, err)
	}
}

func (s *stage) succeed(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		testobject.ChangeStatus(t, s.Client, pod, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
	}
}

// TestInvariants plants, in a real API, what must never happen, and sees each
// reported with its history.
func TestInvariants(t *testing.T) {
	cluster := testcluster.Start(t)
	watcher, err := invariants.Start(t.Context(), cluster.Config, invariants.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	for i, tc := range []struct {
		name string
		do   func(t *testing.T, s *stage)
		// report is what a reader must find, in this order; nothing may be
		// reported where it is empty.
		report []string
	}{
		{name: "two jobs that run one after the other break nothing", do: func(t *testing.T, s *stage) {
			s.Node(t, "clean-0", 8)
			s.Node(t, "clean-1", 8)
			s.Queue(t, s.namespace, "q", 16)
			for _, name := range []string{"first", "second"} {
				wl, pods := s.job(t, name, "q", 2, 8)
				s.admit(t, wl, "clean-0", "clean-1")
				s.bind(t, pods[0], "clean-0")
				s.bind(t, pods[1], "clean-1")
				s.succeed(t, pods...)
				s.say(t, wl, kueue.WorkloadFinished, "Succeeded")
			}
		}},
		{name: "a pod is bound whose Workload is not admitted", do: func(t *testing.T, s *stage) {
			s.Node(t, "early-0", 8)
			s.Queue(t, s.namespace, "q", 8)
			_, pods := s.job(t, "eager", "q", 1, 8)
			s.bind(t, pods[0], "early-0")
		}, report: []string{
			"only while its Workload is admitted", "eager-a was bound to node early-0", "jobset-eager is not admitted",
			"history:", "JobSet", "is there, suspended", "eager-a is there", "eager-a is bound to early-0, 8 nvidia.com/gpu",
		}},
		{name: "two Workloads are admitted on quota for one", do: func(t *testing.T, s *stage) {
			s.Node(t, "quota-0", 8)
			s.Node(t, "quota-1", 8)
			s.Queue(t, s.namespace, "q", 8)
			one, _ := s.job(t, "one", "q", 1, 8)
			two, _ := s.job(t, "two", "q", 1, 8)
			s.admit(t, one, "quota-0")
			s.admit(t, two, "quota-1")
		}, report: []string{
			"never exceed the quota", "16 of 8 nvidia.com/gpu", "jobset-one 8", "jobset-two 8",
			"history:", "has quota for 8", "jobset-one is admitted", "jobset-two is admitted",
		}},
		{name: "pods are bound onto a node until it is overfull", do: func(t *testing.T, s *stage) {
			s.Node(t, "full-0", 8)
			for _, name := range []string{"half", "most"} {
				pod := s.pod(name, 5)
				s.Create(t, pod)
				s.bind(t, pod, "full-0")
			}
		}, report: []string{
			"never exceed a node", "most was bound, and Node full-0 has 10 of 8 nvidia.com/gpu taken", "half 5", "most 5",
			"history:", "Node full-0 has", "half is bound to full-0", "most is bound to full-0",
		}},
		{name: "a Workload is finished while its pod is on a node", do: func(t *testing.T, s *stage) {
			s.Node(t, "left-0", 8)
			s.Queue(t, s.namespace, "q", 8)
			wl, pods := s.job(t, "hasty", "q", 1, 8)
			s.admit(t, wl, "left-0")
			s.bind(t, pods[0], "left-0")
			s.say(t, wl, kueue.WorkloadFinished, "Succeeded")
		}, report: []string{"holds nothing", "hasty-a on left-0", "history:", "is admitted", "hasty-a is bound", "is finished"}},
		{name: "a Workload is evicted for no reason of Kueue's", do: func(t *testing.T, s *stage) {
			s.Node(t, "out-0", 8)
			s.Queue(t, s.namespace, "q", 8)
			wl, _ := s.job(t, "victim", "q", 1, 8)
			s.admit(t, wl, "out-0")
			s.say(t, wl, kueue.WorkloadEvicted, "Whim")
		}, report: []string{"every eviction has a reason", `"Whim"`, "history:", "is admitted", "is evicted (Whim)"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &stage{Cluster: cluster, namespace: fmt.Sprintf("case-%d", i)}
			cluster.Namespace(t, s.namespace)
			tc.do(t, s)
			err := watcher.Check(t.Context())
			if len(tc.report) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var v *invariants.Violation
			if !errors.As(err, &v) || strings.Count(err.Error(), "broken: ") != 1 {
				t.Fatalf("found was %v, want one violation", err)
			}
			t.Log(err)
			rest := err.Error()
			for _, part := range tc.report {
				_, after, ok := strings.Cut(rest, part)
				if !ok {
					t.Fatalf("%q is not, or not in this order, in the report", part)
				}
				rest = after
			}
		})
		if err := watcher.Check(t.Context()); err != nil {
			t.Errorf("putting away what the case left behind: %v", err)
		}
	}
}
