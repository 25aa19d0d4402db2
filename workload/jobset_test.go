package workload

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/api/reason"
)

// shape is what a test says about a pod set.
type shape struct {
	Name              string
	Count, PerReplica int32
	Phase             int
}

func shapes(job *Job) []shape {
	var all []shape
	for _, set := range job.PodSets {
		all = append(all, shape{set.Name, set.Count, set.PodsPerReplica, set.Phase})
	}
	return all
}

func TestJobSetPodSets(t *testing.T) {
	inOrder := func(js *jobset.JobSet) {
		js.Spec.StartupPolicy = &jobset.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	}
	for name, tc := range map[string]struct {
		js   *jobset.JobSet
		want []shape
	}{
		"one replicated job of one Job is one pod set": {
			newJobSet(nil, replicated("node", 1, 4)),
			[]shape{{"node", 4, 4, 0}},
		},
		"replicas multiply the pods of one Job": {
			newJobSet(nil, replicated("node", 3, 4)),
			[]shape{{"node", 12, 4, 0}},
		},
		"no parallelism is one pod": {
			newJobSet(nil, replicated("node", 2, 1, func(rj *jobset.ReplicatedJob) {
				rj.Template.Spec.Parallelism, rj.Template.Spec.Completions = nil, nil
			})),
			[]shape{{"node", 2, 1, 0}},
		},
		"no completions is as many as run in parallel": {
			newJobSet(nil, replicated("node", 1, 5, func(rj *jobset.ReplicatedJob) { rj.Template.Spec.Completions = nil })),
			[]shape{{"node", 5, 5, 0}},
		},
		"fewer completions than parallelism bound the pods": {
			newJobSet(nil, replicated("node", 2, 8, func(rj *jobset.ReplicatedJob) { rj.Template.Spec.Completions = new(int32(3)) })),
			[]shape{{"node", 6, 3, 0}},
		},
		"more completions than parallelism do not run at the same time": {
			newJobSet(nil, replicated("node", 1, 2, func(rj *jobset.ReplicatedJob) { rj.Template.Spec.Completions = new(int32(9)) })),
			[]shape{{"node", 2, 2, 0}},
		},
		"an MPI launcher that waits for its nodes is a later phase": {
			newJobSet(nil, replicated("node", 1, 4), replicated("launcher", 1, 1, dependsOn("node", jobset.DependencyReady))),
			[]shape{{"node", 4, 4, 0}, {"launcher", 1, 1, 1}},
		},
		"nodes that wait for two initializers are one phase later": {
			newJobSet(nil,
				replicated("dataset-initializer", 1, 1),
				replicated("model-initializer", 1, 1),
				replicated("node", 1, 8,
					dependsOn("dataset-initializer", jobset.DependencyComplete),
					dependsOn("model-initializer", jobset.DependencyComplete))),
			[]shape{{"dataset-initializer", 1, 1, 0}, {"model-initializer", 1, 1, 0}, {"node", 8, 8, 1}},
		},
		"a chain of dependencies is a phase for each link": {
			newJobSet(nil, replicated("a", 1, 1), replicated("b", 1, 1),
				replicated("c", 1, 1, dependsOn("a", jobset.DependencyReady)),
				replicated("d", 1, 1, dependsOn("c", jobset.DependencyReady), dependsOn("b", jobset.DependencyReady))),
			[]shape{{"a", 1, 1, 0}, {"b", 1, 1, 0}, {"c", 1, 1, 1}, {"d", 1, 1, 2}},
		},
		"of one length of chain, those that depend on something else start by themselves": {
			newJobSet(nil, replicated("a", 1, 1), replicated("b", 1, 1),
				replicated("c", 1, 1, dependsOn("a", jobset.DependencyReady)),
				replicated("d", 1, 1, dependsOn("a", jobset.DependencyComplete)),
				replicated("e", 1, 1, dependsOn("a", jobset.DependencyReady), dependsOn("b", jobset.DependencyComplete)),
				replicated("f", 1, 1, dependsOn("b", jobset.DependencyComplete), dependsOn("a", jobset.DependencyReady)),
				replicated("g", 1, 1, dependsOn("c", jobset.DependencyReady))),
			[]shape{{"a", 1, 1, 0}, {"b", 1, 1, 0}, {"c", 1, 1, 1}, {"d", 1, 1, 2}, {"e", 1, 1, 3}, {"f", 1, 1, 3}, {"g", 1, 1, 4}},
		},
		"InOrder makes each replicated job a phase": {
			newJobSet(inOrder, replicated("driver", 1, 1), replicated("node", 2, 2)),
			[]shape{{"driver", 1, 1, 0}, {"node", 4, 2, 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			job, managed, no, err := kindNamed(t, "JobSet").Read(t.Context(), fakeClient(t), tc.js)
			if err != nil || !managed || no != nil {
				t.Fatalf("Read: managed %v, no %v, err %v", managed, no, err)
			}
			if diff := cmp.Diff(tc.want, shapes(job)); diff != "" {
				t.Errorf("pod sets (-want +got):\n%s", diff)
			}
			if job.PodOwnerUID != tc.js.UID || job.Queue != "main" || !job.Suspended || !job.Created.Equal(tc.js.CreationTimestamp.Time) {
				t.Errorf("read %+v", job)
			}
		})
	}
}

func TestReplicatedJobThatHasCompletedHasNoMorePods(t *testing.T) {
	for name, tc := range map[string]struct {
		succeeded int32
		want      *Ended
	}{
		"none of its Jobs": {0, nil},
		"some of its Jobs": {1, nil},
		"all of its Jobs":  {2, &Ended{Count: 8}},
		"more than it has": {3, &Ended{Count: 8}},
	} {
		t.Run(name, func(t *testing.T) {
			js := newJobSet(nil, replicated("init", 2, 4), replicated("node", 2, 4))
			js.Status.ReplicatedJobsStatus = []jobset.ReplicatedJobStatus{{Name: "init", Succeeded: tc.succeeded}}
			job, _, no, err := kindNamed(t, "JobSet").Read(t.Context(), nil, js)
			if err != nil || no != nil {
				t.Fatal(err, no)
			}
			if diff := cmp.Diff([]*Ended{tc.want, nil}, []*Ended{job.PodSets[0].Ended, job.PodSets[1].Ended}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestJobSetThatCannotRun(t *testing.T) {
	many := make([]jobset.ReplicatedJob, 19)
	for i := range many {
		many[i] = replicated(fmt.Sprintf("n%d", i), 1, 1)
	}
	for name, tc := range map[string]struct {
		js    *jobset.JobSet
		class reason.Class
		want  string
	}{
		"no replicated jobs": {newJobSet(nil), reason.Misconfigured,
			"the JobSet has no replicated jobs, so no pods"},
		"more pod sets than a Workload holds": {newJobSet(nil, many...), reason.Misconfigured,
			"the JobSet has 19 replicated jobs, and a Workload holds at most 18 pod sets"},
		"zero replicas": {newJobSet(nil, replicated("node", 0, 4)), reason.Misconfigured,
			`replicated job "node" asks for 0 pods: 0 replicas of 4 pods`},
		"negative replicas": {newJobSet(nil, replicated("node", -2, 4)), reason.Misconfigured,
			`replicated job "node" asks for -8 pods: -2 replicas of 4 pods`},
		"two negatives do not make a positive": {newJobSet(nil, replicated("node", -2, -4)), reason.Misconfigured,
			`replicated job "node" asks for 8 pods: -2 replicas of -4 pods`},
		"zero parallelism": {newJobSet(nil, replicated("node", 2, 0)), reason.Misconfigured,
			`replicated job "node" asks for 0 pods: 2 replicas of 0 pods`},
		"more pods than a count can hold": {newJobSet(nil, replicated("node", 65536, 65536)), reason.Misconfigured,
			`replicated job "node" asks for 4294967296 pods: 65536 replicas of 65536 pods`},
		"two of one name": {newJobSet(nil, replicated("node", 1, 1), replicated("node", 1, 1)), reason.Misconfigured,
			`the JobSet has more than one replicated job "node"`},
		"a name that no pod set may have": {newJobSet(nil, replicated("Node", 1, 1)), reason.Misconfigured,
			`replicated job "Node" has 4 characters of which a pod set's name may have 63: lower-case letters, digits and inner '-'`},
		"a dependency on a later one": {newJobSet(nil, replicated("a", 1, 1, dependsOn("b", jobset.DependencyReady)), replicated("b", 1, 1)), reason.Misconfigured,
			`replicated job "a" depends on "b", which is not listed before it`},
		"a dependency on itself": {newJobSet(nil, replicated("a", 1, 1, dependsOn("a", jobset.DependencyReady))), reason.Misconfigured,
			`replicated job "a" depends on "a", which is not listed before it`},
		"another scheduler": {newJobSet(nil, replicated("node", 1, 1), replicated("launcher", 1, 1, scheduler("volcano"))), reason.ForeignScheduler,
			`pod template "launcher" names the scheduler volcano, not one of Muster's (muster)`},
		"no scheduler": {newJobSet(nil, replicated("node", 1, 1, scheduler(""))), reason.ForeignScheduler,
			`pod template "node" names no scheduler, so default-scheduler would take its pods: the webhook did not see JobSet train when it was created; create the JobSet anew`},
		"a slice of no pods": {newJobSet(nil, replicated("node", 1, 4,
			podAnnotation("kueue.x-k8s.io/podset-slice-required-topology", "rack"), podAnnotation("kueue.x-k8s.io/podset-slice-size", "0"))), reason.Misconfigured,
			`replicated job "node" has the annotation kueue.x-k8s.io/podset-slice-size="0", which is not a positive number of pods`},
		"an injection note that cannot be read": {newJobSet(nil, replicated("node", 1, 4, podAnnotation(injectedAnnotation, "{"))), reason.Misconfigured,
			`pod template of replicated job "node": reading annotation muster.dev/injected: unexpected end of JSON input`},
	} {
		t.Run(name, func(t *testing.T) {
			job, managed, no, err := kindNamed(t, "JobSet").Read(t.Context(), fakeClient(t), tc.js)
			if err != nil || !managed || job == nil || job.Queue != "main" || job.Owner.UID != "js-1" || !job.Suspended {
				t.Fatalf("Read: job %+v, managed %v, err %v", job, managed, err)
			}
			if diff := cmp.Diff(&reason.Reason{Class: tc.class, Message: tc.want}, no); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJobSetThatIsNotOurs(t *testing.T) {
	for name, change := range map[string]func(*jobset.JobSet){
		"no queue label":                func(js *jobset.JobSet) { js.Labels = nil },
		"an empty queue label":          func(js *jobset.JobSet) { js.Labels[QueueLabel] = "" },
		"managed by another controller": func(js *jobset.JobSet) { js.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") },
		"the child of a TrainJob":       controlledBy("trainer.kubeflow.org/v1alpha1", "TrainJob", "tj-1"),
		"the child of a later TrainJob": controlledBy("trainer.kubeflow.org/v1", "TrainJob", "tj-1"),
	} {
		t.Run(name, func(t *testing.T) {
			job, managed, no, err := kindNamed(t, "JobSet").Read(t.Context(), fakeClient(t), newJobSet(change, replicated("node", 0, 1)))
			if job != nil || managed || no != nil || err != nil {
				t.Errorf("Read: job %v, managed %v, no %v, err %v", job, managed, no, err)
			}
		})
	}
	for name, change := range map[string]func(*jobset.JobSet){
		"managed by JobSet's own controller":               func(js *jobset.JobSet) { js.Spec.ManagedBy = new(jobset.JobSetControllerName) },
		"the child of a Katib Trial":                       controlledBy("kubeflow.org/v1beta1", "Trial", "x"),
		"the child of another API's kind of the same name": controlledBy("example.com/v1", "TrainJob", "x"),
	} {
		t.Run(name+" is ours", func(t *testing.T) {
			if _, managed, _, _ := kindNamed(t, "JobSet").Read(t.Context(), fakeClient(t), newJobSet(change, replicated("node", 1, 1))); !managed {
				t.Error("not managed")
			}
		})
	}
}

func TestJobSetThatIsOver(t *testing.T) {
	ended := func(kind jobset.JobSetConditionType, status metav1.ConditionStatus) func(*jobset.JobSet) {
		return func(js *jobset.JobSet) {
			js.Status.Conditions = []metav1.Condition{{Type: string(kind), Status: status, Message: "said so"}}
		}
	}
	for name, tc := range map[string]struct {
		change func(*jobset.JobSet)
		want   *Finish
		no     bool
	}{
		"completed":                  {ended(jobset.JobSetCompleted, metav1.ConditionTrue), &Finish{Succeeded: true, Message: "said so"}, false},
		"failed":                     {ended(jobset.JobSetFailed, metav1.ConditionTrue), &Finish{Message: "said so"}, false},
		"a condition that is False":  {ended(jobset.JobSetFailed, metav1.ConditionFalse), nil, true},
		"being deleted":              {func(js *jobset.JobSet) { js.DeletionTimestamp = new(metav1.Now()) }, nil, false},
		"a condition of another job": {ended(jobset.JobSetSuspended, metav1.ConditionTrue), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			js := newJobSet(tc.change, replicated("node", 1, 2, scheduler("volcano")))
			job, _, no, err := kindNamed(t, "JobSet").Read(t.Context(), fakeClient(t), js)
			if err != nil || (no != nil) != tc.no {
				t.Errorf("no %v, err %v", no, err)
			}
			if diff := cmp.Diff(tc.want, job.Finish); diff != "" {
				t.Errorf("finish (-want +got):\n%s", diff)
			}
		})
	}
}

var h100 = []PodSetInfo{{
	Name:         "node",
	NodeSelector: map[string]string{"gpu": "h100"},
	Tolerations:  tolerations("gpu", "spot"),
	Labels:       map[string]string{"kueue.x-k8s.io/podset": "node"},
	Annotations:  map[string]string{"kueue.x-k8s.io/workload": "w"},
}}

func TestJobSetResumeAndSuspend(t *testing.T) {
	kind := kindNamed(t, "JobSet")
	js := newJobSet(nil,
		replicated("node", 1, 2, tolerates("spot", "spot"), podAnnotation("mine", "1"), func(rj *jobset.ReplicatedJob) {
			rj.Template.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
		}),
		replicated("launcher", 1, 1))
	original := js.DeepCopy()
	c := fakeClient(t, js.DeepCopy())
	before, _, _, _ := kind.Read(t.Context(), c, js)

	js = get(t, c, js)
	if err := kind.Resume(t.Context(), c, js, h100); err != nil {
		t.Fatal(err)
	}
	running := get(t, c, newJobSet(nil))
	template := running.Spec.ReplicatedJobs[0].Template.Spec.Template
	if *running.Spec.Suspend {
		t.Error("still suspended")
	}
	if diff := cmp.Diff(map[string]string{"zone": "a", "gpu": "h100"}, template.Spec.NodeSelector); diff != "" {
		t.Errorf("node selector (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(tolerations("spot", "spot", "gpu"), template.Spec.Tolerations); diff != "" {
		t.Errorf("tolerations (-want +got):\n%s", diff)
	}
	if template.Labels["kueue.x-k8s.io/podset"] != "node" || template.Annotations["kueue.x-k8s.io/workload"] != "w" || template.Annotations["mine"] != "1" {
		t.Errorf("metadata %v %v", template.Labels, template.Annotations)
	}
	if diff := cmp.Diff(original.Spec.ReplicatedJobs[1], running.Spec.ReplicatedJobs[1]); diff != "" {
		t.Errorf("a replicated job without infos changed:\n%s", diff)
	}

	// A new process that reads the running job sees the author's pod sets.
	after, _, no, err := kindNamed(t, "JobSet").Read(t.Context(), c, running)
	if no != nil || err != nil || !SamePodSets(NewWorkload(before, 0, nil), after) {
		t.Errorf("no %v, err %v, pod sets (-before +after):\n%s", no, err, cmp.Diff(before.PodSets, after.PodSets))
	}
	if after.Suspended {
		t.Error("read as suspended")
	}

	if err := kind.Resume(t.Context(), c, running, h100); err != nil {
		t.Errorf("resuming a running job again: %v", err)
	}
	if again := get(t, c, newJobSet(nil)); again.ResourceVersion != running.ResourceVersion {
		t.Error("resuming a running job again wrote it")
	}
	b200 := []PodSetInfo{{Name: "node", NodeSelector: map[string]string{"gpu": "b200"}}}
	if err := kind.Resume(t.Context(), c, running, b200); !errors.Is(err, ErrNotSuspended) {
		t.Errorf("resuming a running job with other infos: %v", err)
	}

	if err := kind.Suspend(t.Context(), c, running); err != nil {
		t.Fatal(err)
	}
	stopped := get(t, c, newJobSet(nil))
	if diff := cmp.Diff(original.Spec, stopped.Spec); diff != "" {
		t.Errorf("suspended and restored (-want +got):\n%s", diff)
	}
	if err := kind.Suspend(t.Context(), c, stopped); err != nil {
		t.Fatal(err)
	}
	if again := get(t, c, newJobSet(nil)); again.ResourceVersion != stopped.ResourceVersion {
		t.Error("suspending a suspended job wrote it")
	}
}

func TestJobSetResumeReplacesAnEarlierInjection(t *testing.T) {
	kind := kindNamed(t, "JobSet")
	js := newJobSet(nil, replicated("node", 1, 2))
	c := fakeClient(t, js.DeepCopy())
	if err := kind.Resume(t.Context(), c, get(t, c, js), h100); err != nil {
		t.Fatal(err)
	}
	// Its user suspends it, so that the injection stays.
	js = get(t, c, js)
	js.Spec.Suspend = new(true)
	if err := c.Update(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	other := []PodSetInfo{{Name: "node", NodeSelector: map[string]string{"pool": "b"}}}
	if err := kind.Resume(t.Context(), c, js, other); err != nil {
		t.Fatal(err)
	}
	template := get(t, c, js).Spec.ReplicatedJobs[0].Template.Spec.Template
	if diff := cmp.Diff(map[string]string{"pool": "b"}, template.Spec.NodeSelector); diff != "" {
		t.Errorf("node selector (-want +got):\n%s", diff)
	}
	if len(template.Spec.Tolerations) > 0 || len(template.Labels) > 0 {
		t.Errorf("left over: %v %v", template.Spec.Tolerations, template.Labels)
	}
}

func TestJobSetResumeRefuses(t *testing.T) {
	selecting := replicated("node", 1, 2, func(rj *jobset.ReplicatedJob) {
		rj.Template.Spec.Template.Spec.NodeSelector = map[string]string{"gpu": "a100"}
	})
	for name, tc := range map[string]struct {
		js    *jobset.JobSet
		infos []PodSetInfo
		check func(error) bool
	}{
		"infos that contradict the templates": {newJobSet(nil, selecting), h100, func(err error) bool {
			var no *reason.Reason
			return errors.As(err, &no) && no.Message == `pod set "node" has the node selector gpu=a100, but its queue gives gpu=h100`
		}},
		"infos for a pod set that is not there": {newJobSet(nil, replicated("worker", 1, 2)), h100, func(err error) bool {
			return err != nil && err.Error() == "resuming JobSet team-nlp/train: 1 pod sets are to be injected, of which 0 are its replicated jobs: it has changed"
		}},
		"an object that is out of date": {newJobSet(func(js *jobset.JobSet) { js.ResourceVersion = "1" }, replicated("node", 1, 2)), h100, apierrors.IsConflict},
	} {
		t.Run(name, func(t *testing.T) {
			stored := tc.js.DeepCopy()
			stored.ResourceVersion = ""
			c := fakeClient(t, stored)
			js := get(t, c, newJobSet(nil))
			if tc.js.ResourceVersion == "1" {
				newer := js.DeepCopy()
				newer.Labels["touched"] = "yes"
				if err := c.Update(t.Context(), newer); err != nil {
					t.Fatal(err)
				}
			}
			if err := kindNamed(t, "JobSet").Resume(t.Context(), c, js, tc.infos); !tc.check(err) {
				t.Errorf("got %v", err)
			}
			if !*get(t, c, newJobSet(nil)).Spec.Suspend {
				t.Error("it was resumed all the same")
			}
		})
	}
}

func TestJobSetSuspendOfOneThatNeverHadAnInjection(t *testing.T) {
	js := newJobSet(func(js *jobset.JobSet) { js.Spec.Suspend = nil }, replicated("node", 1, 2, podAnnotation(injectedAnnotation, "spoiled")))
	c := fakeClient(t, js.DeepCopy())
	stale := get(t, c, js)
	newer := stale.DeepCopy()
	newer.Labels["touched"] = "yes"
	if err := c.Update(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	if err := kindNamed(t, "JobSet").Suspend(t.Context(), c, stale); err != nil {
		t.Fatalf("suspending from an object that is out of date: %v", err)
	}
	if got := get(t, c, js); !*got.Spec.Suspend || got.Labels["touched"] != "yes" {
		t.Errorf("got %+v", got)
	}
}

func TestKindsLeaveTheirObjectsAlone(t *testing.T) {
	js := newJobSet(nil, replicated("node", 1, 2, tolerates("x")))
	c := fakeClient(t, js.DeepCopy())
	js = get(t, c, js)
	before := js.DeepCopy()
	kind := kindNamed(t, "JobSet")
	job, _, _, _ := kind.Read(t.Context(), c, js)
	job.PodSets[0].Template.Spec.Containers[0].Image = "changed"
	if err := kind.Resume(t.Context(), c, js, h100); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, js); diff != "" {
		t.Errorf("the object given was changed:\n%s", diff)
	}
	if err := kind.Suspend(t.Context(), c, &corev1.Pod{}); err == nil {
		t.Error("a Pod was suspended as a JobSet")
	}
	var _ client.Object = kind.New().(*jobset.JobSet)
}
