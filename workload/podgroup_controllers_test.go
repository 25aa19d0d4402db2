package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-gpu/muster/api/reason"
)

// podGroupObject is PodGroup g.
func podGroupObject(minMember int64, labels map[string]string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": minMember}}}
	u.SetGroupVersionKind(PodGroupGVK)
	u.SetNamespace("team")
	u.SetName("g")
	u.SetLabels(labels)
	return u
}

// groupPods are n pods of PodGroup g, named by a prefix.
func groupPods(prefix string, n int, change ...func(*corev1.Pod)) []client.Object {
	var out []client.Object
	for i := range n {
		out = append(out, alonePod(fmt.Sprintf("%s%d", prefix, i), "1", append(change, labelled(PodGroupLabel, "g"))...))
	}
	return out
}

// madeBy names a pod's controller.
func madeBy(apiVersion, kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: new(true)}}
	}
}

func replicaSet(name string, replicas *int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
		Spec:       appsv1.ReplicaSetSpec{Replicas: replicas},
	}
}

func statefulSet(name string, replicas int32, policy appsv1.PodManagementPolicyType) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
		Spec:       appsv1.StatefulSetSpec{Replicas: &replicas, PodManagementPolicy: policy},
	}
}

// operatorJob is a job of the v1 Training Operator, with a number of replicas
// for each role; -1 is one that is not said.
func operatorJob(kind, field, name string, roles map[string]int64) *unstructured.Unstructured {
	specs := map[string]any{}
	for role, n := range roles {
		specs[role] = map[string]any{"restartPolicy": "OnFailure"}
		if n >= 0 {
			specs[role] = map[string]any{"replicas": n}
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		field: specs, "runPolicy": map[string]any{"cleanPodPolicy": "None"},
	}}}
	u.SetGroupVersionKind(trainingVersion.WithKind(kind))
	u.SetNamespace("team")
	u.SetName(name)
	u.SetUID(types.UID("uid-" + name))
	return u
}

func TestPodGroupSizeIsWhatTheControllersOfItsPodsSay(t *testing.T) {
	all := func(lists ...[]client.Object) []client.Object {
		var out []client.Object
		for _, l := range lists {
			out = append(out, l...)
		}
		return out
	}
	one := func(o client.Object) []client.Object { return []client.Object{o} }
	rs, ss, pt := madeBy("apps/v1", "ReplicaSet", "rs"), madeBy("apps/v1", "StatefulSet", "ss"), madeBy("kubeflow.org/v1", "PyTorchJob", "pt")
	ready := func(n string) reading { return reading{true, true, "q", n + " ", "", ""} }
	waits := reading{true, true, "q", "", "", reason.WaitingForPods}
	gone := replicaSet("rs", new(int32(4)))
	gone.UID = "uid-of-another"
	for name, tc := range map[string]struct {
		minMember int64
		objects   []client.Object
		want      reading
		says      string
	}{
		"a ReplicaSet of more pods than minMember is waited for": {
			2, all(groupPods("p", 3, rs), one(replicaSet("rs", new(int32(4))))), waits, "3 of 4 pods of group g exist"},
		"and starts when all of them are there": {
			2, all(groupPods("p", 4, rs), one(replicaSet("rs", new(int32(4))))), ready("4x1"), ""},
		"one of fewer pods than minMember does not wait for pods that never come": {
			5, all(groupPods("p", 2, rs), one(replicaSet("rs", new(int32(2))))), ready("2x1"), ""},
		"pods beyond the number are being taken away": {
			2, all(groupPods("p", 4, rs), one(replicaSet("rs", new(int32(2))))), ready("2x1"), ""},
		"a ReplicaSet that says no number has one pod": {
			3, all(groupPods("p", 1, rs), one(replicaSet("rs", nil))), ready("1x1"), ""},
		"of a ReplicaSet that wants no more pods none start": {
			1, all(groupPods("p", 1, rs), one(replicaSet("rs", new(int32(0))))), waits, "0 of 1 pods"},
		"a StatefulSet counts, too": {
			2, all(groupPods("p", 2, ss), one(statefulSet("ss", 4, appsv1.ParallelPodManagement))), waits, "2 of 4 pods of group g exist"},
		"one that makes its pods in turn is told apart": {
			1, all(groupPods("p", 1, ss), one(statefulSet("ss", 4, appsv1.OrderedReadyPodManagement))), waits,
			"1 of 4 pods of group g exist; StatefulSet ss makes a pod only when the one before is ready, and a gang starts whole: create it with podManagementPolicy: Parallel"},
		"a training job has the pods of all its roles": {
			1, all(groupPods("p", 4, pt), one(operatorJob("PyTorchJob", "pytorchReplicaSpecs", "pt", map[string]int64{"Master": -1, "Worker": 4}))), waits, "4 of 5 pods"},
		"and starts with them": {
			7, all(groupPods("p", 5, pt), one(operatorJob("PyTorchJob", "pytorchReplicaSpecs", "pt", map[string]int64{"Master": 1, "Worker": 4}))), ready("5x1"), ""},
		"as has one of another kind": {
			1, all(groupPods("p", 3, madeBy("kubeflow.org/v1", "MPIJob", "mpi")),
				one(operatorJob("MPIJob", "mpiReplicaSpecs", "mpi", map[string]int64{"Launcher": 1, "Worker": 3}))), waits, "3 of 4 pods"},
		"of several controllers the sum counts": {
			2, all(groupPods("a", 2, rs), groupPods("b", 1, ss), one(replicaSet("rs", new(int32(2)))), one(statefulSet("ss", 2, appsv1.ParallelPodManagement))), waits, "3 of 4 pods"},
		"pods beyond the number of one do not stand for those of another": {
			2, all(groupPods("a", 3, rs), groupPods("b", 1, ss), one(replicaSet("rs", new(int32(2)))), one(statefulSet("ss", 2, appsv1.ParallelPodManagement))), waits, "3 of 4 pods"},
		"pods without a controller count one each": {
			2, all(groupPods("a", 2, rs), groupPods("b", 1), one(replicaSet("rs", new(int32(3))))), waits, "3 of 4 pods"},
		"and with them minMember is the least": {
			6, all(groupPods("a", 3, rs), groupPods("b", 1), one(replicaSet("rs", new(int32(3))))), waits, "4 of 6 pods"},
		"pods whose controller is gone wait for minMember": {
			3, groupPods("p", 2, rs), waits, "2 of 3 pods"},
		"and start with it": {
			3, groupPods("p", 3, rs), ready("3x1"), ""},
		"a controller of the same name is not theirs": {
			3, all(groupPods("p", 3, rs), one(gone)), ready("3x1"), ""},
		"nor do controllers that nobody knows say a number": {
			2, groupPods("p", 2, madeBy("example.com/v1", "Thing", "thing")), ready("2x1"), ""},
		"pods that failed ask for nothing": {
			1, all(groupPods("p", 1, rs, failed), groupPods("q", 1), one(replicaSet("rs", new(int32(4))))), ready("1x1"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			job, managed, no := readGroup(t, fakeClient(t, append(tc.objects, podGroupObject(tc.minMember, map[string]string{QueueLabel: "q"}))...))
			if diff := cmp.Diff(tc.want, readingOf(job, managed, no)); diff != "" {
				t.Errorf("(-want +got):\n%s\nreason: %v", diff, no)
			}
			if no != nil && !strings.Contains(no.Message, tc.says) {
				t.Errorf("it says %q, want %q in it", no.Message, tc.says)
			}
		})
	}
}

// readGroup is PodGroup g as r has it.
func readGroup(t *testing.T, r client.Reader) (*Job, bool, *reason.Reason) {
	t.Helper()
	k := podGroupKind{options(UnqueuedRun), PodGroupGVK, PodGroupLabel}
	g, err := k.Assemble(t.Context(), r, types.NamespacedName{Namespace: "team", Name: "g"})
	if err != nil {
		t.Fatal(err)
	}
	job, managed, no, err := k.Read(t.Context(), r, g)
	if err != nil {
		t.Fatal(err)
	}
	return job, managed, no
}

func TestControllerThatCannotBeReadLeavesTheGroupToMinMember(t *testing.T) {
	jobs := schema.GroupResource{Group: trainingVersion.Group, Resource: "pytorchjobs"}
	away := errors.New("the API server is away")
	for name, tc := range map[string]struct {
		answer error
		fails  bool
	}{
		"its kind is not served":      {answer: &apimeta.NoKindMatchError{GroupKind: trainingVersion.WithKind("PyTorchJob").GroupKind()}},
		"it may not be read":          {answer: apierrors.NewForbidden(jobs, "pt", nil)},
		"it is gone":                  {answer: apierrors.NewNotFound(jobs, "pt")},
		"the API server does not say": {answer: away, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(groupPods("p", 2, madeBy("kubeflow.org/v1", "PyTorchJob", "pt")), podGroupObject(2, map[string]string{QueueLabel: "q"}))
			c := interceptor.NewClient(fakeClient(t, objects...).(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if obj.GetObjectKind().GroupVersionKind().Kind == "PyTorchJob" {
						return tc.answer
					}
					return c.Get(ctx, key, obj, opts...)
				},
			})
			if tc.fails {
				k := podGroupKind{options(UnqueuedRun), PodGroupGVK, PodGroupLabel}
				if _, err := k.Assemble(t.Context(), c, types.NamespacedName{Namespace: "team", Name: "g"}); !errors.Is(err, away) {
					t.Errorf("the error is %v, want %v", err, away)
				}
				return
			}
			job, managed, no := readGroup(t, c)
			if diff := cmp.Diff(reading{true, true, "q", "2x1 ", "", ""}, readingOf(job, managed, no)); diff != "" {
				t.Errorf("(-want +got):\n%s\nreason: %v", diff, no)
			}
		})
	}
}
