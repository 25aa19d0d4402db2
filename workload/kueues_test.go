package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// startedByKueue is a pod template with what Kueue adds when it starts a job.
func startedByKueue(t *corev1.PodTemplateSpec) {
	t.Labels = joined(t.Labels, map[string]string{"kueue.x-k8s.io/podset": "x"})
	t.Annotations = joined(t.Annotations, map[string]string{"kueue.x-k8s.io/workload": "w"})
	t.Spec.NodeSelector = joined(t.Spec.NodeSelector, map[string]string{"gpu": "h100"})
	t.Spec.Tolerations = union(t.Spec.Tolerations, tolerations("gpu"))
	t.Spec.SchedulingGates = append(t.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "kueue.x-k8s.io/topology"})
}

// inTemplate does so to a template of an object without Go types.
func inTemplate(t *testing.T, u *unstructured.Unstructured, path ...string) {
	t.Helper()
	fields, found, err := unstructured.NestedMap(u.Object, path...)
	if !found || err != nil {
		t.Fatalf("there is no template at %v (%v)", path, err)
	}
	template := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, template); err != nil {
		t.Fatal(err)
	}
	startedByKueue(template)
	if fields, err = runtime.DefaultUnstructuredConverter.ToUnstructured(template); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedMap(u.Object, fields, path...); err != nil {
		t.Fatal(err)
	}
}

// What Kueue has injected into a job that Muster took over running is taken out
// when the job is stopped: as Kueue would have done.
func TestRestoreTakesOutWhatKueueHasInjected(t *testing.T) {
	for name, tc := range map[string]struct {
		kind string
		obj  client.Object
		// start does to the object what Kueue does.
		start func(t *testing.T, obj client.Object)
	}{
		"a JobSet": {"JobSet", newJobSet(nil, replicated("node", 1, 2, tolerates("spot"), podAnnotation("mine", "1"))), func(_ *testing.T, obj client.Object) {
			startedByKueue(&obj.(*jobset.JobSet).Spec.ReplicatedJobs[0].Template.Spec.Template)
		}},
		"a batch Job": {"Job", newBatchJob(nil), func(_ *testing.T, obj client.Object) { startedByKueue(&obj.(*batchv1.Job).Spec.Template) }},
		"a PyTorchJob": {"PyTorchJob", workersOf("PyTorchJob"), func(t *testing.T, obj client.Object) {
			inTemplate(t, obj.(*unstructured.Unstructured), "spec", "pytorchReplicaSpecs", "Worker", "template")
		}},
		"a RayCluster": {"RayCluster", newRayCluster(), func(t *testing.T, obj client.Object) {
			inTemplate(t, obj.(*unstructured.Unstructured), "spec", "headGroupSpec", "template")
		}},
		"a RayJob": {"RayJob", newRayJob(), func(t *testing.T, obj client.Object) {
			inTemplate(t, obj.(*unstructured.Unstructured), "spec", "rayClusterSpec", "headGroupSpec", "template")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindNamed(t, tc.kind)
			before, _, no, err := kind.Read(t.Context(), fakeClient(t), tc.obj)
			if no != nil || err != nil {
				t.Fatal(no, err)
			}
			wl := NewWorkload(before, 0, nil)
			started := tc.obj.DeepCopyObject().(client.Object)
			tc.start(t, started)
			c := fakeClient(t, started)
			if err := kind.(Restorer).Restore(t.Context(), c, get(t, c, started), wl.Spec.PodSets); err != nil {
				t.Fatal(err)
			}
			after, _, no, err := kind.Read(t.Context(), c, get(t, c, started))
			if no != nil || err != nil {
				t.Fatal(no, err)
			}
			if diff := cmp.Diff(before.PodSets, after.PodSets); diff != "" {
				t.Errorf("pod sets (-before Kueue +after):\n%s", diff)
			}
			if !after.Suspended {
				t.Error("it was resumed")
			}
		})
	}
}

func TestRestoreLeavesAloneWhatKueueDidNotInject(t *testing.T) {
	kind := kindNamed(t, "JobSet")
	js := newJobSet(nil, replicated("node", 1, 2))
	before, _, _, _ := kind.Read(t.Context(), fakeClient(t), js)
	wl := NewWorkload(before, 0, nil)
	// Its author changes it while it is stopped.
	js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
	c := fakeClient(t, js)
	if err := kind.(Restorer).Restore(t.Context(), c, get(t, c, js), wl.Spec.PodSets); err != nil {
		t.Fatal(err)
	}
	if got := get(t, c, js).Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector["zone"]; got != "a" {
		t.Error("the change is gone")
	}
}

func TestRestoreEmptiesKueuesEntryInATrainJob(t *testing.T) {
	kueues := entryOf("kueue.x-k8s.io/manager", tolerationEntry("gpu"))
	tj := newTrainJob(func(tj trainJob) { tj.setPatches([]any{kueues, entryOf("example.com/mine")}) })
	c := stampRule(t, fakeClient(t, tj, childOf(replicated("node", 1, 2))).(client.WithWatch))
	if err := kindNamed(t, "TrainJob").(Restorer).Restore(t.Context(), c, get(t, c, tj), nil); err != nil {
		t.Fatal(err)
	}
	entries := trainJob{get(t, c, tj)}.patches()
	if len(entries) != 2 || patchManager(entries[0]) != "kueue.x-k8s.io/manager" {
		t.Fatalf("the entries are %v", entries)
	}
	p, err := readPatch(entries[0])
	if err != nil || len(p.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs) > 0 {
		t.Errorf("Kueue's entry is %v (%v)", entries[0], err)
	}
}

func TestPodsThatKueueHoldsBackAreLetGo(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = namespace, "p"
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/topology"}, {Name: "mine"}, {Name: "kueue.x-k8s.io/admission"}}
	c := fakeClient(t, pod)
	if !WaitsForKueue(pod) {
		t.Error("it does not wait for Kueue")
	}
	if err := Ungate(t.Context(), c, get(t, c, pod)); err != nil {
		t.Fatal(err)
	}
	got := get(t, c, pod)
	if diff := cmp.Diff([]corev1.PodSchedulingGate{{Name: "mine"}}, got.Spec.SchedulingGates); diff != "" || WaitsForKueue(got) {
		t.Errorf("gates (-want +got):\n%s", diff)
	}
	if err := Ungate(t.Context(), fakeClient(t), pod); err != nil {
		t.Errorf("of a pod that is gone: %v", err)
	}
}
