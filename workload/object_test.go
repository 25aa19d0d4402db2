package workload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func ownerNamed(name string) Owner {
	return Owner{
		GroupVersionKind: trainerVersion.WithKind("TrainJob"),
		NamespacedName:   types.NamespacedName{Namespace: namespace, Name: name},
		UID:              "tj-1",
	}
}

// The hashes were computed with sha1sum over "TrainJob\ntrainer.kubeflow.org\n<name>\ntj-1".
func TestWorkloadName(t *testing.T) {
	long := strings.Repeat("x", 253)
	for name, tc := range map[string]struct{ owner, want string }{
		"kind in lower case, name and hash":   {"train", "trainjob-train-de8f3"},
		"a long name is cut and the hash not": {long, "trainjob-" + long[:247-len("trainjob-")] + "-e089d"},
	} {
		t.Run(name, func(t *testing.T) {
			got := WorkloadName(ownerNamed(tc.owner))
			if got != tc.want || len(got) > 253 {
				t.Errorf("got %s (%d characters), want %s", got, len(got), tc.want)
			}
		})
	}
	again := ownerNamed("train")
	again.UID = "tj-2"
	if WorkloadName(again) == WorkloadName(ownerNamed("train")) {
		t.Error("a job created again under its name has the same Workload")
	}
}

func readJob(t *testing.T, jobs ...jobset.ReplicatedJob) *Job {
	t.Helper()
	job, _, no, err := kindNamed(t, "JobSet").Read(t.Context(), fakeClient(t), newJobSet(nil, jobs...))
	if no != nil || err != nil {
		t.Fatalf("no %v, err %v", no, err)
	}
	return job
}

func TestNewWorkload(t *testing.T) {
	job := readJob(t, replicated("node", 2, 4,
		podAnnotation(kueue.PodSetRequiredTopologyAnnotation, "rack"),
		podAnnotation(kueue.PodSetSliceRequiredTopologyAnnotation, "host"),
		podAnnotation(kueue.PodSetSliceSizeAnnotation, "2"),
		func(rj *jobset.ReplicatedJob) { rj.Template.Spec.Template.Name = "dropped" }))
	wl := NewWorkload(job, 7, kueue.NewWorkloadPriorityClassRef("high"))
	want := &kueue.Workload{
		TypeMeta: metav1.TypeMeta{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "Workload"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: WorkloadName(job.Owner),
			Labels: map[string]string{"kueue.x-k8s.io/job-uid": "js-1"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: "train", UID: "js-1",
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: kueue.WorkloadSpec{
			Active: new(true), QueueName: "main", Priority: new(int32(7)),
			PriorityClassRef: &kueue.PriorityClassRef{Group: "kueue.x-k8s.io", Kind: "WorkloadPriorityClass", Name: "high"},
			PodSets: []kueue.PodSet{{
				Name: "node", Count: 8,
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Annotations: job.PodSets[0].Template.Annotations},
					Spec:       job.PodSets[0].Template.Spec,
				},
				TopologyRequest: &kueue.PodSetTopologyRequest{
					Required:                    new("rack"),
					PodIndexLabel:               new("batch.kubernetes.io/job-completion-index"),
					SubGroupIndexLabel:          new("jobset.sigs.k8s.io/job-index"),
					SubGroupCount:               new(int32(2)),
					PodSetSliceRequiredTopology: new("host"),
					PodSetSliceSize:             new(int32(2)),
				},
			}},
		},
	}
	if diff := cmp.Diff(want, wl); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wl.Spec.PodSets[0].Template.Spec.Containers[0].Image = "changed"
	if job.PodSets[0].Template.Spec.Containers[0].Image != "" {
		t.Error("the Workload shares memory with the job")
	}
}

func TestSamePodSets(t *testing.T) {
	job := readJob(t, replicated("node", 2, 4, tolerates("gpu"), podAnnotation("a", "1")))
	for name, tc := range map[string]struct {
		change func(*kueue.Workload)
		want   bool
	}{
		"unchanged":               {func(*kueue.Workload) {}, true},
		"another count":           {func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count++ }, false},
		"another name":            {func(wl *kueue.Workload) { wl.Spec.PodSets[0].Name = "worker" }, false},
		"another image":           {func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec.Containers[0].Image = "x" }, false},
		"one toleration less":     {func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec.Tolerations = nil }, false},
		"another annotation":      {func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Annotations["a"] = "2" }, false},
		"a label more":            {func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Labels = map[string]string{"x": "y"} }, false},
		"a pod set more":          {func(wl *kueue.Workload) { wl.Spec.PodSets = append(wl.Spec.PodSets, kueue.PodSet{Name: "x"}) }, false},
		"empty instead of absent": {func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Labels = map[string]string{} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			// Through the API, as the Workload that is compared always went.
			c := fakeClient(t, NewWorkload(job, 0, nil))
			wl := &kueue.Workload{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: WorkloadName(job.Owner)}, wl); err != nil {
				t.Fatal(err)
			}
			tc.change(wl)
			if got := SamePodSets(wl, job); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
