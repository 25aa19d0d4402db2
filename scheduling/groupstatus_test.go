package scheduling

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-gpu/muster/workload"
)

func TestPodCountsOtherwiseInItsPodGroupWhenItMoves(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"another condition is none of it":  {func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}} }, false},
		"one that begins to run does":      {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, true},
		"one that is on a node does":       {func(p *corev1.Pod) { p.Spec.NodeName = "node-0" }, true},
		"one that is being deleted does":   {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, true},
		"one that leaves its group does":   {func(p *corev1.Pod) { delete(p.Labels, workload.PodGroupLabel) }, true},
		"one that has another label stays": {func(p *corev1.Pod) { p.Labels["app"] = "x" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{workload.PodGroupLabel: "g"}}}
			pod := old.DeepCopy()
			tc.change(pod)
			if got := countsOtherwise(old, pod); got != tc.want {
				t.Errorf("it is %v, want %v", got, tc.want)
			}
		})
	}
}

// TestStatusOfAPodGroupIsWrittenOnceForWhatItsPodsDo: the controller of the API may say
// something else of the same pods, and is not written against for ever.
func TestStatusOfAPodGroupIsWrittenOnceForWhatItsPodsDo(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	pod := relabel(ofGroup("", "a"), "")
	pod.Labels = map[string]string{workload.PodGroupLabel: "g"}
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(2)}}}
	group.SetGroupVersionKind(workload.PodGroupGVK)
	group.SetNamespace(pod.Namespace)
	group.SetName("g")
	writes := 0
	j := s.jobsOn(t, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			writes++
			return c.Patch(ctx, obj, patch)
		},
	}, pod, group)
	j.served, j.groups = sets.New(corev1.DefaultSchedulerName), newQueue[types.NamespacedName]()
	key := client.ObjectKeyFromObject(group)
	look := func(want string, wantWrites int) {
		t.Helper()
		if err := j.writeGroupStatus(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if err := j.client.Get(t.Context(), key, group); err != nil {
			t.Fatal(err)
		}
		if phase, _, _ := unstructured.NestedString(group.Object, "status", "phase"); phase != want || writes != wantWrites {
			t.Errorf("it is %s after %d writes, want %s after %d", phase, writes, want, wantWrites)
		}
	}
	look("", 0)
	s.clock.Step(groupPendingAfter - time.Second)
	look("", 0)
	s.clock.Step(time.Second)
	look("Pending", 1)
	if err := unstructured.SetNestedField(group.Object, "Running", "status", "phase"); err != nil {
		t.Fatal(err)
	}
	if err := j.client.Update(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	look("Running", 1)
	pod.Spec.NodeName = "node-0"
	if err := j.client.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	look("Scheduling", 2)
	if err := j.client.Delete(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	if err := j.writeGroupStatus(t.Context(), key); err != nil || len(j.groupsSaid) != 0 {
		t.Errorf("%v is kept of a group that is gone (%v)", j.groupsSaid, err)
	}
}

// TestStatusOfAPodGroupThatStartsSoonIsWrittenOnce and does not say before that it waits.
func TestStatusOfAPodGroupThatStartsSoonIsWrittenOnce(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	pod := relabel(ofGroup("", "a"), "")
	pod.Labels = map[string]string{workload.PodGroupLabel: "g"}
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(2)}}}
	group.SetGroupVersionKind(workload.PodGroupGVK)
	group.SetNamespace(pod.Namespace)
	group.SetName("g")
	var phases []string
	j := s.jobsOn(t, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			phase, _, _ := unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "status", "phase")
			phases = append(phases, phase)
			return c.Patch(ctx, obj, patch)
		},
	}, pod, group)
	j.served, j.groups = sets.New(corev1.DefaultSchedulerName), newQueue[types.NamespacedName]()
	key := client.ObjectKeyFromObject(group)
	for range 2 {
		if err := j.writeGroupStatus(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		pod.Spec.NodeName = "node-0"
		if err := j.client.Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		s.clock.Step(time.Second)
	}
	if want := []string{"Scheduling"}; !slices.Equal(phases, want) {
		t.Errorf("it was said to be %v, want %v", phases, want)
	}
}

// TestStatusOfAPodGroupIsNotWrittenOnWhatIsOlderThanItself: the cache hears of a write
// later than it is answered.
func TestStatusOfAPodGroupIsNotWrittenOnWhatIsOlderThanItself(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	pod := relabel(ofGroup("", "a"), "")
	pod.Labels, pod.Spec.NodeName = map[string]string{workload.PodGroupLabel: "g"}, "node-0"
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(2)}}}
	group.SetGroupVersionKind(workload.PodGroupGVK)
	group.SetNamespace(pod.Namespace)
	group.SetName("g")
	writes := 0
	j := s.jobsOn(t, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			writes++
			return c.Patch(ctx, obj, patch)
		},
	}, pod, group)
	j.served = sets.New(corev1.DefaultSchedulerName)
	key := client.ObjectKeyFromObject(group)
	cache := &unstructuredCache{Reader: j.client}
	j.reader = cache
	look := func(what string, want int) {
		t.Helper()
		if err := j.writeGroupStatus(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if writes != want {
			t.Errorf("%s: %d writes, want %d", what, writes, want)
		}
	}
	cache.keep(t, key)
	look("a pod is on its node", 1)
	pod.Status.Phase = corev1.PodRunning
	if err := j.client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	look("it runs, and the cache has the object from before the write", 1)
	cache.keep(t, key)
	look("the cache has heard of the write", 2)
}

// unstructuredCache has one object as it was when it was kept.
type unstructuredCache struct {
	client.Reader
	kept *unstructured.Unstructured
}

func (c *unstructuredCache) keep(t *testing.T, key client.ObjectKey) {
	t.Helper()
	c.kept = &unstructured.Unstructured{}
	c.kept.SetGroupVersionKind(workload.PodGroupGVK)
	if err := c.Reader.Get(t.Context(), key, c.kept); err != nil {
		t.Fatal(err)
	}
}

// Get implements client.Reader.
func (c *unstructuredCache) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	c.kept.DeepCopyInto(obj.(*unstructured.Unstructured))
	return nil
}

// TestAPodGroupWhoseStatusIsWrittenIsNotReadAgain, but for its status.
func TestAPodGroupWhoseStatusIsWrittenIsNotReadAgain(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	pod := relabel(ofGroup("", "a"), "")
	pod.Labels = map[string]string{workload.PodGroupLabel: "g", workload.QueueLabel: "main"}
	native := relabel(ofGroup("", "b"), "")
	native.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")}
	j := s.jobsOn(t, interceptor.Funcs{})
	j.groups = newQueue[types.NamespacedName]()
	defer j.groups.ShutDown()
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(2)}}}
	group.SetNamespace(pod.Namespace)
	group.SetName("g")
	ofNative := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "g"}}
	for _, tc := range []struct {
		name     string
		pod      *corev1.Pod
		of       int
		old, new func() client.Object
		want     bool
	}{
		{"its status is written", pod, 0, func() client.Object { return group.DeepCopy() }, func() client.Object {
			g := group.DeepCopy()
			_ = unstructured.SetNestedField(g.Object, "Running", "status", "phase")
			return g
		}, false},
		{"it asks for more pods", pod, 0, func() client.Object { return group.DeepCopy() }, func() client.Object {
			g := group.DeepCopy()
			_ = unstructured.SetNestedField(g.Object, int64(3), "spec", "minMember")
			return g
		}, true},
		{"it names another queue", pod, 0, func() client.Object { return group.DeepCopy() }, func() client.Object {
			g := group.DeepCopy()
			g.SetLabels(map[string]string{workload.QueueLabel: "other"})
			return g
		}, true},
		{"it is made anew", pod, 0, func() client.Object { return group.DeepCopy() }, func() client.Object {
			g := group.DeepCopy()
			g.SetUID("another")
			return g
		}, true},
		{"the status of Kubernetes' own is written", native, 1, func() client.Object { return ofNative.DeepCopy() }, func() client.Object {
			g := ofNative.DeepCopy()
			g.Status.Conditions = []metav1.Condition{{Type: "Scheduled"}}
			return g
		}, false},
		{"Kubernetes' own becomes a gang", native, 1, func() client.Object { return ofNative.DeepCopy() }, func() client.Object {
			g := ofNative.DeepCopy()
			g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}
			return g
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.Seen(tc.pod)
			owner, _ := workload.PodJob(tc.pod)
			delete(s.wishes.synced, keyOf(owner))
			j.groupSources()[tc.of].handler.OnUpdate(tc.old(), tc.new())
			if got := s.wishes.synced[keyOf(owner)] > 0; got != tc.want {
				t.Errorf("it is read again: %v, want %v", got, tc.want)
			}
		})
	}
}
