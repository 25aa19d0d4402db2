package workload

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/api/reason"
)

var trainJobsOwn = controlledBy("trainer.kubeflow.org/v1alpha1", "TrainJob", "tj-1")

// childOf is the JobSet of newTrainJob, without a queue label of its own.
func childOf(jobs ...jobset.ReplicatedJob) *jobset.JobSet {
	return newJobSet(func(js *jobset.JobSet) { trainJobsOwn(js); js.Labels = nil }, jobs...)
}

func TestTrainJobRead(t *testing.T) {
	torch := trainingRuntime(clusterRuntimeKind, "", "torch")
	child := childOf(replicated("node", 1, 4))
	condition := func(kind, status, reason string) func(trainJob) {
		return func(tj trainJob) {
			tj.Object["status"] = map[string]any{"conditions": []any{
				map[string]any{"type": kind, "status": status, "reason": reason, "message": "said so"},
			}}
		}
	}
	running := func(tj trainJob) { tj.setSuspended(false) }
	for name, tc := range map[string]struct {
		change   func(trainJob)
		stored   []client.Object
		podSets  []shape
		podOwner string
		finish   *Finish
		no       *reason.Reason
	}{
		"with its JobSet": {
			stored:  []client.Object{torch, child},
			podSets: []shape{{"node", 4, 4, 0}}, podOwner: "js-1",
		},
		"before the Trainer made the JobSet": {
			stored: []client.Object{torch},
			no:     &reason.Reason{Class: reason.WaitingForPodTemplates, Message: "waiting for the Trainer to create JobSet train"},
		},
		"on a runtime that does not exist": {
			no: &reason.Reason{Class: reason.RuntimeNotFound, Message: "ClusterTrainingRuntime torch does not exist"},
		},
		"on a runtime of its namespace that exists in another one": {
			change: func(tj trainJob) {
				_ = unstructured.SetNestedField(tj.Object, runtimeKind, "spec", "runtimeRef", "kind")
			},
			stored: []client.Object{trainingRuntime(runtimeKind, "elsewhere", "torch")},
			no:     &reason.Reason{Class: reason.RuntimeNotFound, Message: "TrainingRuntime torch does not exist in namespace team-nlp"},
		},
		"on a runtime of its namespace": {
			change: func(tj trainJob) {
				_ = unstructured.SetNestedField(tj.Object, runtimeKind, "spec", "runtimeRef", "kind")
			},
			stored:  []client.Object{trainingRuntime(runtimeKind, namespace, "torch"), child},
			podSets: []shape{{"node", 4, 4, 0}}, podOwner: "js-1",
		},
		"with the runtimeRef's defaults left out": {
			change:  func(tj trainJob) { tj.Object["spec"].(map[string]any)["runtimeRef"] = map[string]any{"name": "torch"} },
			stored:  []client.Object{torch, child},
			podSets: []shape{{"node", 4, 4, 0}}, podOwner: "js-1",
		},
		"on a kind of runtime that nobody knows": {
			change: func(tj trainJob) {
				_ = unstructured.SetNestedField(tj.Object, "Recipe", "spec", "runtimeRef", "kind")
			},
			no: &reason.Reason{Class: reason.Misconfigured, Message: "its runtimeRef names a Recipe.trainer.kubeflow.org, which is no kind of training runtime"},
		},
		"suspended, its runtime deleted after the JobSet was made": {
			stored:  []client.Object{child},
			podSets: []shape{{"node", 4, 4, 0}}, podOwner: "js-1",
			no: &reason.Reason{Class: reason.RuntimeNotFound, Message: "ClusterTrainingRuntime torch does not exist"},
		},
		"running, its runtime deleted meanwhile": {
			change: running, stored: []client.Object{child},
			podSets: []shape{{"node", 4, 4, 0}}, podOwner: "js-1",
		},
		"beside the JobSet of an earlier TrainJob of its name": {
			stored: []client.Object{torch, newJobSet(controlledBy("trainer.kubeflow.org/v1alpha1", "TrainJob", "tj-0"), replicated("node", 1, 4))},
			no:     &reason.Reason{Class: reason.WaitingForPodTemplates, Message: "waiting for JobSet train of an earlier TrainJob of the same name to go"},
		},
		"beside a JobSet of its name that somebody created": {
			stored: []client.Object{torch, newJobSet(nil, replicated("node", 1, 4))},
			no:     &reason.Reason{Class: reason.Misconfigured, Message: "JobSet train is not the TrainJob's own, so the Trainer cannot create it"},
		},
		"with a JobSet that the webhook did not see": {
			stored:  []client.Object{torch, childOf(replicated("node", 1, 4, scheduler("")))},
			podSets: []shape{{"node", 4, 4, 0}}, podOwner: "js-1",
			no: &reason.Reason{Class: reason.ForeignScheduler, Message: `pod template "node" names no scheduler, so default-scheduler would take its pods: ` +
				"the webhook did not see JobSet train when it was created; delete the suspended JobSet to have the Trainer make it anew"},
		},
		"with no pods": {
			stored: []client.Object{torch, childOf(replicated("node", 1, 0))}, podOwner: "js-1",
			no: &reason.Reason{Class: reason.Misconfigured, Message: `replicated job "node" asks for 0 pods: 1 replicas of 0 pods`},
		},
		"complete, its JobSet gone": {
			change: condition("Complete", "True", "JobsCompleted"), finish: &Finish{Succeeded: true, Message: "said so"},
		},
		"failed": {
			change: condition("Failed", "True", "JobsFailed"), stored: []client.Object{torch, child},
			podSets: []shape{{"node", 4, 4, 0}}, podOwner: "js-1", finish: &Finish{Message: "said so"},
		},
		"failed for a runtime that the Trainer may yet learn": {
			change: condition("Failed", "True", runtimeNotSupported), stored: []client.Object{torch},
			no: &reason.Reason{Class: reason.Misconfigured, Message: "the Trainer does not take its runtime: said so"},
		},
		"not failed": {
			change: condition("Failed", "False", ""), stored: []client.Object{torch, child},
			podSets: []shape{{"node", 4, 4, 0}}, podOwner: "js-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tj := newTrainJob(tc.change)
			job, managed, no, err := kindNamed(t, "TrainJob").Read(t.Context(), fakeClient(t, tc.stored...), tj)
			if err != nil || !managed {
				t.Fatalf("Read: managed %v, err %v", managed, err)
			}
			if diff := cmp.Diff(tc.no, no); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.podSets, shapes(job)); diff != "" {
				t.Errorf("pod sets (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.finish, job.Finish); diff != "" {
				t.Errorf("finish (-want +got):\n%s", diff)
			}
			if string(job.PodOwnerUID) != tc.podOwner || job.Owner.UID != "tj-1" || job.Owner.Kind != "TrainJob" ||
				job.Queue != "main" || job.Created.Unix() != 1_700_000_000 || job.Suspended != (trainJob{tj}).suspended() {
				t.Errorf("read %+v", job)
			}
		})
	}
}

func TestTrainJobThatIsNotOurs(t *testing.T) {
	for name, change := range map[string]func(trainJob){
		"no queue label":                func(tj trainJob) { tj.SetLabels(nil) },
		"managed by another controller": func(tj trainJob) { tj.Object["spec"].(map[string]any)["managedBy"] = "kueue.x-k8s.io/multikueue" },
	} {
		t.Run(name, func(t *testing.T) {
			job, managed, no, err := kindNamed(t, "TrainJob").Read(t.Context(), fakeClient(t), newTrainJob(change))
			if job != nil || managed || no != nil || err != nil {
				t.Errorf("Read: job %v, managed %v, no %v, err %v", job, managed, no, err)
			}
		})
	}
}

func TestTrainJobReadErrorsAreForAnotherTry(t *testing.T) {
	broken := errors.New("the API server is away")
	c := interceptor.NewClient(fakeClient(t).(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return broken
		},
	})
	job, managed, no, err := kindNamed(t, "TrainJob").Read(t.Context(), c, newTrainJob(nil))
	if !errors.Is(err, broken) || !managed || no != nil || job == nil {
		t.Errorf("Read: job %v, managed %v, no %v, err %v", job, managed, no, err)
	}
}

// rendered is the JobSet as the Trainer makes it: the runtime's, with the
// entries of the job's runtimePatches merged into it in their order.
func rendered(t *testing.T, tj *unstructured.Unstructured, runtime jobset.JobSetSpec) jobset.JobSetSpec {
	t.Helper()
	spec, err := json.Marshal(runtime)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range (trainJob{tj}).patches() {
		patch, found, _ := unstructured.NestedMap(entry.(map[string]any), "trainingRuntimeSpec", "template", "spec")
		if !found {
			continue
		}
		body, err := json.Marshal(patch)
		if err != nil {
			t.Fatal(err)
		}
		if spec, err = strategicpatch.StrategicMergePatch(spec, body, jobset.JobSetSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	var merged jobset.JobSetSpec
	if err := json.Unmarshal(spec, &merged); err != nil {
		t.Fatal(err)
	}
	merged.Suspend = new((trainJob{tj}).suspended())
	return merged
}

// reconcile does the Trainer's part: the stored JobSet follows the TrainJob.
func reconcile(t *testing.T, c client.Client, runtime jobset.JobSetSpec) {
	t.Helper()
	js := get(t, c, childOf())
	js.Spec = rendered(t, get(t, c, newTrainJob(nil)), runtime)
	if err := c.Update(t.Context(), js); err != nil {
		t.Fatal(err)
	}
}

func entryOf(manager string, tolerations ...any) map[string]any {
	return map[string]any{
		"manager": manager, "time": "2026-01-01T00:00:00Z",
		"trainingRuntimeSpec": map[string]any{"template": map[string]any{"spec": map[string]any{"replicatedJobs": []any{
			map[string]any{"name": "node", "template": map[string]any{"spec": map[string]any{"template": map[string]any{
				"spec": map[string]any{"tolerations": tolerations, "serviceAccountName": "trainer"},
			}}}},
		}}}},
	}
}

func tolerationEntry(key string) any {
	return map[string]any{"key": key, "operator": "Exists", "tolerationSeconds": int64(30)}
}

func TestTrainJobResume(t *testing.T) {
	kind := kindNamed(t, "TrainJob")
	runtime := childOf(replicated("node", 1, 2, tolerates("runtime")), replicated("launcher", 1, 1)).Spec
	user := entryOf("example.com/user", tolerationEntry("user"))
	tj := newTrainJob(func(tj trainJob) { tj.setPatches([]any{user}) })
	c := fakeClient(t, tj.DeepCopy(), childOf(), trainingRuntime(clusterRuntimeKind, "", "torch"))
	reconcile(t, c, runtime)
	before, _, no, err := kind.Read(t.Context(), c, get(t, c, tj))
	if no != nil || err != nil {
		t.Fatalf("no %v, err %v", no, err)
	}

	tj = get(t, c, tj)
	if err := kind.Resume(t.Context(), c, tj, h100); err != nil {
		t.Fatal(err)
	}
	running := get(t, c, newTrainJob(nil))
	if trainer, _, _ := unstructured.NestedString(running.Object, "spec", "trainer", "unheardOf"); trainer != "kept" {
		t.Error("a field that this program does not know was lost")
	}
	patches := (trainJob{running}).patches()
	if len(patches) != 2 || patchManager(patches[1]) != patchOwner {
		t.Fatalf("patches %v", patches)
	}
	if diff := cmp.Diff(any(user), patches[0]); diff != "" {
		t.Errorf("the user's patch changed (-want +got):\n%s", diff)
	}
	if err := kind.Resume(t.Context(), c, running, h100); err != nil {
		t.Errorf("resuming again before the Trainer saw it: %v", err)
	}

	reconcile(t, c, runtime)
	seconds := corev1.Toleration{Key: "user", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(30))}
	template := get(t, c, childOf()).Spec.ReplicatedJobs[0].Template.Spec.Template
	if diff := cmp.Diff(append([]corev1.Toleration{seconds}, tolerations("gpu", "spot")...), template.Spec.Tolerations); diff != "" {
		t.Errorf("tolerations of the pods (-want +got):\n%s", diff)
	}
	if template.Spec.NodeSelector["gpu"] != "h100" || template.Labels["kueue.x-k8s.io/podset"] != "node" || template.Spec.ServiceAccountName != "trainer" {
		t.Errorf("pod template %+v", template)
	}

	// A new process reads the author's pod sets, and resumes without a write.
	kind = kindNamed(t, "TrainJob")
	after, _, no, err := kind.Read(t.Context(), c, running)
	if no != nil || err != nil || !SamePodSets(NewWorkload(before, 0, nil), after) {
		t.Errorf("no %v, err %v, pod sets (-before +after):\n%s", no, err, cmp.Diff(before.PodSets, after.PodSets))
	}
	if err := kind.Resume(t.Context(), c, running, h100); err != nil {
		t.Errorf("resuming a running job again: %v", err)
	}
	if again := get(t, c, newTrainJob(nil)); again.GetResourceVersion() != running.GetResourceVersion() {
		t.Error("resuming a running job again wrote it")
	}
	b200 := []PodSetInfo{{Name: "node", NodeSelector: map[string]string{"gpu": "b200"}, Tolerations: tolerations("gpu")}}
	if err := kind.Resume(t.Context(), c, running, b200); !errors.Is(err, ErrNotSuspended) {
		t.Errorf("resuming a running job with other infos: %v", err)
	}

	// Suspended, changed by its user, resumed elsewhere.
	if err := kind.Suspend(t.Context(), c, running); err != nil {
		t.Fatal(err)
	}
	stopped := get(t, c, newTrainJob(nil))
	if !(trainJob{stopped}).suspended() || len((trainJob{stopped}).patches()) != 2 {
		t.Errorf("suspended: %v", stopped.Object["spec"])
	}
	reconcile(t, c, runtime)
	if again, _, _, err := kind.Read(t.Context(), c, stopped); err != nil || !SamePodSets(NewWorkload(before, 0, nil), again) {
		t.Errorf("err %v, pod sets after the suspension (-before +after):\n%s", err, cmp.Diff(before.PodSets, again.PodSets))
	}
	late := entryOf("example.com/late", tolerationEntry("late"))
	(trainJob{stopped}).setPatches(append((trainJob{stopped}).patches(), late))
	if err := c.Update(t.Context(), stopped); err != nil {
		t.Fatal(err)
	}
	if err := kind.Resume(t.Context(), c, stopped, b200); err != nil {
		t.Fatal(err)
	}
	again := get(t, c, newTrainJob(nil))
	patches = (trainJob{again}).patches()
	if len(patches) != 3 || patchManager(patches[2]) != patchOwner {
		t.Fatalf("patches %v", patches)
	}
	reconcile(t, c, runtime)
	template = get(t, c, childOf()).Spec.ReplicatedJobs[0].Template.Spec.Template
	if diff := cmp.Diff(map[string]string{"gpu": "b200"}, template.Spec.NodeSelector); diff != "" {
		t.Errorf("node selector after the second resume (-want +got):\n%s", diff)
	}
	var keys []string
	for _, toleration := range template.Spec.Tolerations {
		keys = append(keys, toleration.Key)
	}
	if diff := cmp.Diff([]string{"user", "late", "gpu"}, keys); diff != "" {
		t.Errorf("tolerations after the second resume (-want +got):\n%s", diff)
	}
}

// stampRule answers as the API server does where the Trainer's webhook stamps an
// entry of a job whose quantities are written as numbers: the webhook writes
// them as strings, so an immutable field has changed.
func stampRule(t *testing.T, c client.WithWatch) client.Client {
	withoutTime := func(entry any) map[string]any {
		fields := maps.Clone(entry.(map[string]any))
		delete(fields, "time")
		return fields
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			had := map[string]any{}
			for _, entry := range (trainJob{get(t, c, newTrainJob(nil))}).patches() {
				had[patchManager(entry)] = entry
			}
			for _, entry := range (trainJob{obj.(*unstructured.Unstructured)}).patches() {
				earlier, ok := had[patchManager(entry)]
				stamped := !ok && entry.(map[string]any)["time"] == nil || ok && !reflect.DeepEqual(withoutTime(earlier), withoutTime(entry))
				if stamped {
					return errors.New("spec.trainer: Invalid value: field is immutable")
				}
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
}

func TestTrainJobResumeLeavesTheTrainerNothingToStamp(t *testing.T) {
	kind := kindNamed(t, "TrainJob")
	runtime := childOf(replicated("node", 1, 2)).Spec
	user := entryOf("example.com/user", tolerationEntry("user"))
	c := stampRule(t, fakeClient(t, newTrainJob(func(tj trainJob) { tj.setPatches([]any{user}) }), childOf()).(client.WithWatch))
	for _, gpu := range []string{"h100", "b200", "b200", "h100"} {
		reconcile(t, c, runtime)
		infos := []PodSetInfo{{Name: "node", NodeSelector: map[string]string{"gpu": gpu}}}
		if err := kind.Resume(t.Context(), c, get(t, c, newTrainJob(nil)), infos); err != nil {
			t.Fatalf("resuming it on %s: %v", gpu, err)
		}
		reconcile(t, c, runtime)
		if got := get(t, c, childOf()).Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector["gpu"]; got != gpu {
			t.Errorf("its pods go to %s, want %s", got, gpu)
		}
		if n := len((trainJob{get(t, c, newTrainJob(nil))}).patches()); n != 2 {
			t.Errorf("it has %d entries, want the user's and Muster's", n)
		}
		if err := kind.Suspend(t.Context(), c, get(t, c, newTrainJob(nil))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTrainJobResumeWithNothingToInject(t *testing.T) {
	kind := kindNamed(t, "TrainJob")
	has := replicated("node", 1, 2, tolerates("gpu", "spot"), func(rj *jobset.ReplicatedJob) {
		rj.Template.Spec.Template.Spec.NodeSelector = map[string]string{"gpu": "h100"}
	})
	for name, infos := range map[string][]PodSetInfo{
		"no infos":    nil,
		"empty infos": {{Name: "node"}},
		"what the runtime has already": {{
			Name: "node", NodeSelector: map[string]string{"gpu": "h100"}, Tolerations: tolerations("spot"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, had := range []bool{false, true} {
				tj := newTrainJob(func(tj trainJob) {
					if had {
						tj.setPatches([]any{entryOf(patchOwner, tolerationEntry("old"))})
					}
				})
				c := fakeClient(t, tj.DeepCopy(), childOf(has))
				if err := kind.Resume(t.Context(), c, get(t, c, tj), infos); err != nil {
					t.Fatal(err)
				}
				got := trainJob{get(t, c, newTrainJob(nil))}
				if got.suspended() {
					t.Error("still suspended")
				}
				if _, found := got.Object["spec"].(map[string]any)["runtimePatches"]; found {
					t.Errorf("had an entry before: %v; entries now %v", had, got.patches())
				}
			}
		})
	}
}

func TestTrainJobResumeRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		js    client.Object
		stale bool
		check func(error) bool
	}{
		"without a JobSet to inject into": {trainingRuntime(clusterRuntimeKind, "", "torch"), false, func(err error) bool {
			var no *reason.Reason
			return errors.As(err, &no) && no.Class == reason.WaitingForPodTemplates
		}},
		"from an object that is out of date": {childOf(replicated("node", 1, 2)), true, apierrors.IsConflict},
		"infos for a pod set that is gone": {childOf(replicated("worker", 1, 2)), false, func(err error) bool {
			return err != nil && err.Error() == "resuming TrainJob team-nlp/train: 1 pod sets are to be injected, of which 0 are its replicated jobs: it has changed"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := fakeClient(t, newTrainJob(nil), tc.js)
			tj := get(t, c, newTrainJob(nil))
			if tc.stale {
				newer := tj.DeepCopy()
				newer.SetAnnotations(map[string]string{"touched": "yes"})
				if err := c.Update(t.Context(), newer); err != nil {
					t.Fatal(err)
				}
			}
			if err := kindNamed(t, "TrainJob").Resume(t.Context(), c, tj, h100); !tc.check(err) {
				t.Errorf("got %v", err)
			}
			if !(trainJob{get(t, c, newTrainJob(nil))}).suspended() {
				t.Error("it was resumed all the same")
			}
		})
	}
}
