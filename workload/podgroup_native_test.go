package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload/identity"
)

// ofNative has a pod name Kubernetes' PodGroup g.
func ofNative(p *corev1.Pod) {
	p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")}
}

// nativeGroup is Kubernetes' PodGroup g, of which so many pods start together; 0:
// they do not.
func nativeGroup(minCount int32, labels map[string]string, change ...func(*schedulingv1beta1.PodGroupSpec)) *schedulingv1beta1.PodGroup {
	g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "g", Labels: labels}}
	g.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
	if minCount > 0 {
		g.Spec.SchedulingPolicy = schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}}
	}
	for _, c := range change {
		c(&g.Spec)
	}
	return g
}

// readNative is Kubernetes' PodGroup g as a client has it.
func readNative(t *testing.T, objects ...client.Object) (*PodGroup, *Job, bool, *reason.Reason) {
	t.Helper()
	c := fakeClient(t, objects...)
	k := podGroupKind{options(UnqueuedRun), NativePodGroupGVK, ""}
	g, err := k.Assemble(t.Context(), c, types.NamespacedName{Namespace: "team", Name: "g"})
	if err != nil {
		t.Fatal(err)
	}
	job, managed, no, err := k.Read(t.Context(), c, g)
	if err != nil {
		t.Fatal(err)
	}
	return g.(*PodGroup), job, managed, no
}

func TestNativePodGroupIsAGangOfItsMinCount(t *testing.T) {
	queue := map[string]string{QueueLabel: "q"}
	rs := madeBy("apps/v1", "ReplicaSet", "rs")
	for name, tc := range map[string]struct {
		objects []client.Object
		want    reading
	}{
		"fewer pods wait for the others": {
			[]client.Object{nativeGroup(2, queue), alonePod("a", "1", ofNative)}, reading{true, true, "q", "", "", reason.WaitingForPods}},
		"as many start": {
			[]client.Object{nativeGroup(2, queue), alonePod("a", "1", ofNative), alonePod("b", "1", ofNative)}, reading{true, true, "q", "2x1 ", "", ""}},
		"more that are there start with them": {
			[]client.Object{nativeGroup(1, queue), alonePod("a", "1", ofNative), alonePod("b", "1", ofNative)}, reading{true, true, "q", "2x1 ", "", ""}},
		"pods of other groups are none of it": {
			[]client.Object{nativeGroup(2, queue), alonePod("a", "1", ofNative), alonePod("b", "1", labelled(PodGroupLabel, "g"))},
			reading{true, true, "q", "", "", reason.WaitingForPods}},
		"a pod may name the queue": {
			[]client.Object{nativeGroup(1, nil), alonePod("a", "1", ofNative, labelled(QueueLabel, "q"))}, reading{true, true, "q", "1x1 ", "", ""}},
		"without a queue it is left alone": {
			[]client.Object{nativeGroup(1, nil), alonePod("a", "1", ofNative)}, reading{}},
		"its controller says how many pods it has": {
			[]client.Object{nativeGroup(1, queue), alonePod("a", "1", ofNative, rs), replicaSet("rs", new(int32(2)))}, reading{true, true, "q", "", "", reason.WaitingForPods}},
		"its object is waited for": {
			[]client.Object{alonePod("a", "1", ofNative)}, reading{true, true, "", "", "", reason.PodGroupNotFound}},
	} {
		t.Run(name, func(t *testing.T) {
			_, job, managed, no := readNative(t, tc.objects...)
			if diff := cmp.Diff(tc.want, readingOf(job, managed, no)); diff != "" {
				t.Errorf("(-want +got):\n%s\nreason: %v", diff, no)
			}
		})
	}
}

func TestNativePodGroupAsksForADomain(t *testing.T) {
	const rack = "example.com/rack"
	inRack := func(s *schedulingv1beta1.PodGroupSpec) {
		s.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: rack}}}
	}
	queue := map[string]string{QueueLabel: "q"}
	own := annotatedWith(kueue.PodSetPreferredTopologyAnnotation, "example.com/block")
	type request struct{ Required, Preferred, Group string }
	str := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	for name, tc := range map[string]struct {
		pods []client.Object
		want []request
	}{
		"pods of one kind":  {[]client.Object{alonePod("a", "1", ofNative), alonePod("b", "1", ofNative)}, []request{{Required: rack}}},
		"pods of two kinds": {[]client.Object{alonePod("a", "1", ofNative), alonePod("b", "2", ofNative)}, []request{{Required: rack, Group: "g"}, {Required: rack, Group: "g"}}},
		"pods of two kinds, two of each": {
			[]client.Object{alonePod("a", "1", ofNative), alonePod("b", "1", ofNative), alonePod("c", "2", ofNative), alonePod("d", "2", ofNative)},
			[]request{{Required: rack, Group: "g"}, {Required: rack, Group: "g"}},
		},
		"pods of three kinds": {
			[]client.Object{alonePod("a", "1", ofNative), alonePod("b", "2", ofNative), alonePod("c", "3", ofNative)},
			[]request{{Required: rack, Group: "g"}, {Required: rack, Group: "g"}, {Required: rack, Group: "g"}},
		},
		"pods that ask for one": {[]client.Object{alonePod("a", "1", ofNative, own)}, []request{{Preferred: "example.com/block"}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, job, _, no := readNative(t, append(tc.pods, nativeGroup(1, queue, inRack))...)
			if no != nil {
				t.Fatal(no)
			}
			if no := CheckTopology(job); no != nil {
				t.Errorf("it is refused: %s", no)
			}
			var got []request
			for _, s := range job.PodSets {
				got = append(got, request{str(s.Topology.Required), str(s.Topology.Preferred), str(s.Topology.PodSetGroupName)})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodOfABasicPodGroupStartsAloneInItsQueue(t *testing.T) {
	a, b := alonePod("a", "1", ofNative), alonePod("b", "1", ofNative, labelled(QueueLabel, "own"))
	a.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	group := nativeGroup(0, map[string]string{QueueLabel: "q", PriorityClassLabel: "high"})
	c := fakeClient(t, group, a, b)
	g, err := podGroupKind{options(UnqueuedRun), NativePodGroupGVK, ""}.Assemble(t.Context(), c, types.NamespacedName{Namespace: "team", Name: "g"})
	if err != nil {
		t.Fatal(err)
	}
	if !g.(*PodGroup).Basic {
		t.Fatal("the group is not basic")
	}
	for pod, queue := range map[*corev1.Pod]string{a: "q", b: "own"} {
		if err := g.(*PodGroup).Part(t.Context(), c, pod); err != nil {
			t.Fatal(err)
		}
		have := &corev1.Pod{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), have); err != nil {
			t.Fatal(err)
		}
		owner, ok := PodJob(have)
		if !ok || owner.GroupVersionKind != identity.PodGVK || have.Labels[QueueLabel] != queue || have.Labels[PriorityClassLabel] != "high" {
			t.Errorf("pod %s is of job %v (%v), with the labels %v", pod.Name, owner, ok, have.Labels)
		}
		if owner, _ := PodJob(pod); owner.UID != g.GetUID() {
			t.Errorf("pod %s was changed itself", pod.Name)
		}
	}
}

func TestWorkloadOfANativePodGroupNamesIt(t *testing.T) {
	_, job, _, no := readNative(t, nativeGroup(1, map[string]string{QueueLabel: "q"}), alonePod("a", "1", ofNative))
	if no != nil {
		t.Fatal(no)
	}
	owner, ok := OwnerOf(NewWorkload(job, 0, nil))
	if diff := cmp.Diff(job.Owner, owner); !ok || diff != "" {
		t.Errorf("its owner is another (%v) (-want +got):\n%s", ok, diff)
	}
}

// TestNativePodGroupHasItsOwnPriority: to Kubernetes the priority of a group's pods is
// that of the group.
func TestNativePodGroupHasItsOwnPriority(t *testing.T) {
	classed := func(p *corev1.Pod) { p.Spec.PriorityClassName = "of-pods" }
	named := func(s *schedulingv1beta1.PodGroupSpec) { s.PriorityClassName = "of-group" }
	queue := map[string]string{QueueLabel: "q"}
	for name, tc := range map[string]struct {
		group *schedulingv1beta1.PodGroup
		pods  func(*corev1.Pod)
		want  string
	}{
		"its class counts before that of its pods":  {nativeGroup(1, queue, named), classed, "of-group"},
		"its class counts where its pods have none": {nativeGroup(1, queue, named), func(*corev1.Pod) {}, "of-group"},
		"without one that of its pods counts":       {nativeGroup(1, queue), classed, "of-pods"},
	} {
		t.Run(name, func(t *testing.T) {
			_, job, _, no := readNative(t, tc.group, alonePod("a", "1", ofNative, tc.pods))
			if no != nil {
				t.Fatal(no)
			}
			if job.PodPriorityClass != tc.want {
				t.Errorf("its priority class is %q, want %q", job.PodPriorityClass, tc.want)
			}
		})
	}
}
