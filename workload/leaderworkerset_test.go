package workload

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/workload/identity"
)

// newLeaderWorkerSet has two replicas of a leader and two workers.
func newLeaderWorkerSet(change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
		"metadata": map[string]any{"namespace": namespace, "name": "llm", "uid": "lws-1", "labels": map[string]any{QueueLabel: "main"}},
		"spec": map[string]any{
			"replicas": int64(2), "startupPolicy": "LeaderCreated",
			"leaderWorkerTemplate": map[string]any{"size": int64(3), "workerTemplate": rayPods("8"), "leaderTemplate": rayPods("1")},
		},
	}}
	for _, f := range change {
		f(u)
	}
	return u
}

// replicaPod is a pod of a replica; number 0 leads.
func replicaPod(replica, number int, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "llm-" + strconv.Itoa(replica) + "-" + strconv.Itoa(number), UID: types.UID("p" + strconv.Itoa(replica) + strconv.Itoa(number)),
		Labels:          map[string]string{identity.LWSNameLabel: "llm", identity.LWSIndexLabel: strconv.Itoa(replica), identity.LWSWorkerLabel: strconv.Itoa(number)},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "llm", UID: "sts", Controller: new(true)}},
	}, Spec: corev1.PodSpec{SchedulerName: "muster", Containers: []corev1.Container{{Name: "c"}}}}
	for _, f := range change {
		f(p)
	}
	return p
}

func readReplica(t *testing.T, name string, objects ...client.Object) (*Job, string) {
	t.Helper()
	k := kindNamed(t, "LeaderWorkerSet")
	c := fakeClient(t, objects...)
	obj, err := k.(Assembler).Assemble(t.Context(), c, types.NamespacedName{Namespace: namespace, Name: name})
	if apierrors.IsNotFound(err) {
		return nil, "gone"
	}
	if err != nil {
		t.Fatal(err)
	}
	job, managed, no, err := k.Read(t.Context(), c, obj)
	switch {
	case err != nil:
		t.Fatal(err)
	case !managed:
		return nil, "not managed"
	case no != nil:
		return job, no.Message
	}
	return job, ""
}

func TestReplicaIsAGangOfItsLeaderAndItsWorkers(t *testing.T) {
	type want struct {
		Counts  map[string]int32
		Workers int
		GPUs    int64
	}
	for _, tc := range []struct {
		name   string
		change func(*unstructured.Unstructured)
		want   want
	}{
		{"all start together", func(*unstructured.Unstructured) {}, want{map[string]int32{"leader": 1, "worker": 2}, 0, 1}},
		{"workers wait for a leader that is ready", with("LeaderReady", "spec", "startupPolicy"), want{map[string]int32{"leader": 1, "worker": 2}, 1, 1}},
		{"workers wait for the node of a leader that has a domain to itself", func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{lwsExclusive: "rack"})
		}, want{map[string]int32{"leader": 1, "worker": 2}, 1, 1}},
		{"the leader is as the workers without a template of its own", func(u *unstructured.Unstructured) {
			unstructured.RemoveNestedField(u.Object, "spec", "leaderWorkerTemplate", "leaderTemplate")
		}, want{map[string]int32{"leader": 1, "worker": 2}, 0, 8}},
		{"one pod is a leader alone", with(int64(1), "spec", "leaderWorkerTemplate", "size"), want{map[string]int32{"leader": 1}, 0, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			job, no := readReplica(t, "llm-1", newLeaderWorkerSet(tc.change), replicaPod(1, 0))
			if no != "" {
				t.Fatal(no)
			}
			got := want{Counts: counts(job), GPUs: GPUs(job.PodSets[0].PerPod())}
			if w := job.PodSet("worker"); w != nil {
				got.Workers = w.Phase
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if !job.Gated || !job.Suspended || job.Queue != "main" || job.Owner.Name != "llm-1" || len(job.Pods) != 1 {
				t.Errorf("the job is %+v", job)
			}
		})
	}
}

func TestReplicaIsThereAsLongAsItIsWantedOrHasPods(t *testing.T) {
	for _, tc := range []struct {
		name, replica string
		objects       []client.Object
		want          string
	}{
		{"wanted and without pods", "llm-1", []client.Object{newLeaderWorkerSet()}, ""},
		{"beyond the number of replicas", "llm-2", []client.Object{newLeaderWorkerSet()}, "gone"},
		{"beyond the number, and with a pod", "llm-2", []client.Object{newLeaderWorkerSet(), replicaPod(2, 0)}, ""},
		{"a surge of an update", "llm-2", []client.Object{newLeaderWorkerSet(with(int64(3), "status", "replicas"))}, ""},
		{"of a set that is gone", "llm-0", nil, "gone"},
		{"of a set that is gone, and with a pod in a queue", "llm-0", []client.Object{replicaPod(0, 0, func(p *corev1.Pod) { p.Labels[QueueLabel] = "main" })}, ""},
		{"without a queue", "llm-0", []client.Object{newLeaderWorkerSet(func(u *unstructured.Unstructured) { u.SetLabels(nil) })}, "not managed"},
		{"in the queue of its pods, which comes first", "llm-0", []client.Object{newLeaderWorkerSet(func(u *unstructured.Unstructured) { u.SetLabels(nil) }), replicaPod(0, 0, func(p *corev1.Pod) { p.Labels[QueueLabel] = "main" })}, ""},
		{"of no pods", "llm-0", []client.Object{newLeaderWorkerSet(with(int64(0), "spec", "leaderWorkerTemplate", "size"))}, "replicas of 0 pods"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, no := readReplica(t, tc.replica, tc.objects...); !strings.Contains(no, tc.want) || (tc.want == "" && no != "") {
				t.Errorf("it is %q, want %q", no, tc.want)
			}
		})
	}
}

func TestReplicaPodsHaveSlots(t *testing.T) {
	owner, leader, ok := SlotOf(replicaPod(1, 0))
	if !ok || leader != (Slot{PodSet: "leader"}) {
		t.Errorf("the leader has slot %+v", leader)
	}
	if again, worker, _ := SlotOf(replicaPod(1, 2)); again != owner || worker != (Slot{PodSet: "worker", Completion: 1}) {
		t.Errorf("worker 2 has slot %+v of %s, the leader's job is %s", worker, again, owner)
	}
	if _, _, ok := SlotOf(replicaPod(1, 0, func(p *corev1.Pod) { p.OwnerReferences = nil })); ok {
		t.Error("a pod that nobody made has a slot by its labels")
	}
	set := types.NamespacedName{Namespace: namespace, Name: "llm"}
	if o, ok := ReplicaOfSet(owner, set); !ok || o.Name != "llm-1" {
		t.Errorf("the replica is %+v, %v", o, ok)
	}
	if _, ok := ReplicaOfSet(owner, types.NamespacedName{Namespace: namespace, Name: "ll"}); ok {
		t.Error("a replica of another set")
	}
}

func TestWorkloadOfAReplicaIsOwnedByItsSetAndFindsItsWayBack(t *testing.T) {
	job, no := readReplica(t, "llm-1", newLeaderWorkerSet(), replicaPod(1, 0))
	if no != "" {
		t.Fatal(no)
	}
	wl := NewWorkload(job, 0, nil)
	if len(wl.OwnerReferences) != 1 || wl.OwnerReferences[0].UID != "lws-1" || metav1.GetControllerOf(wl) != nil {
		t.Errorf("its owners are %+v", wl.OwnerReferences)
	}
	if owner, ok := OwnerOf(wl); !ok || owner != job.Owner {
		t.Errorf("its owner is %+v, want %+v", owner, job.Owner)
	}
	if AddOwners(wl, job) {
		t.Error("an owner was added")
	}
	// As Kueue has made it, without what only Muster writes.
	delete(wl.Annotations, groupNameAnnotation)
	if owner, ok := OwnerOf(wl); !ok || owner != job.Owner {
		t.Errorf("the owner of Kueue's is %+v, want %+v", owner, job.Owner)
	}
}

// The name, label and annotations are what Kueue 0.19 gives a LeaderWorkerSet llm
// with that UID.
func TestWorkloadOfAReplicaIsKnownAsUnderKueue(t *testing.T) {
	set := newLeaderWorkerSet()
	job, _ := readReplica(t, "llm-1", set, replicaPod(1, 0))
	wl := NewWorkload(job, 0, nil)
	if want := "leaderworkerset-llm-1-276a6"; wl.Name != want || job.WorkloadName() != want {
		t.Errorf("it is named %s and %s, want %s", wl.Name, job.WorkloadName(), want)
	}
	if got := WorkloadNameOf(job.Owner, &Replica{Set: set}); got != wl.Name {
		t.Errorf("before it is read it is named %s", got)
	}
	want := map[string]string{
		"kueue.x-k8s.io/is-group-workload": "true", "kueue.x-k8s.io/job-owner-gvk": "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet",
		"kueue.x-k8s.io/job-owner-name": "llm", "kueue.x-k8s.io/component-workload-index": "1",
	}
	delete(wl.Annotations, groupNameAnnotation)
	if diff := cmp.Diff(want, wl.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{JobUIDLabel: "lws-1"}, wl.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestReplicaPodsAreGivenTheirSetsTolerations(t *testing.T) {
	pod := replicaPod(0, 2)
	c := fakeClient(t, newLeaderWorkerSet(), pod, replicaPod(0, 0))
	k := kindNamed(t, "LeaderWorkerSet")
	obj, err := k.(Assembler).Assemble(t.Context(), c, types.NamespacedName{Namespace: namespace, Name: "llm-0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Resume(t.Context(), c, obj, []PodSetInfo{{Name: "leader"}, {Name: "worker", Tolerations: tolerations("gpu")}}); err != nil {
		t.Fatal(err)
	}
	if got := get(t, c, pod).Spec.Tolerations; len(got) != 1 {
		t.Errorf("the worker tolerates %v", got)
	}
}
