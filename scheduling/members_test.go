package scheduling

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-gpu/muster/workload"
)

func TestMembersOfAGroupWithoutALabelAreTheLiveOnesAndThoseThatHaveSucceeded(t *testing.T) {
	pod := func(namespace, name, group string, phase corev1.PodPhase) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + name)}}
		p.Status.Phase = phase
		if group != "" {
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
		}
		return p
	}
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
	for _, p := range []*corev1.Pod{
		pod("team", "waits", "g", corev1.PodPending), pod("team", "ends", "g", corev1.PodRunning),
		pod("team", "another", "h", corev1.PodRunning), pod("team", "none", "", corev1.PodRunning), pod("other", "waits", "g", corev1.PodRunning),
	} {
		if err := indexer.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	phase := func(o client.Object) []string { return []string{string(o.(*corev1.Pod).Status.Phase)} }
	c := fake.NewClientBuilder().WithIndex(&corev1.Pod{}, "status.phase", phase).WithObjects(
		pod("team", "ends", "g", corev1.PodSucceeded), pod("team", "over", "g", corev1.PodSucceeded),
		pod("team", "failed", "g", corev1.PodFailed), pod("team", "another-over", "h", corev1.PodSucceeded), pod("other", "over", "g", corev1.PodSucceeded),
	).Build()
	r := memberReader{Reader: c, pods: corelisters.NewPodLister(indexer)}
	names := func(opts ...client.ListOption) []string {
		t.Helper()
		var list corev1.PodList
		if err := r.List(t.Context(), &list, append(opts, client.InNamespace("team"))...); err != nil {
			t.Fatal(err)
		}
		var out []string
		for i := range list.Items {
			out = append(out, fmt.Sprint(list.Items[i].Name, " ", list.Items[i].Status.Phase))
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff([]string{"ends Succeeded", "over Succeeded", "waits Pending"}, names(client.MatchingFields{workload.MemberField: "scheduling.k8s.io/team/g"})); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"failed Failed"}, names(client.MatchingFields{"status.phase": "Failed"})); diff != "" {
		t.Errorf("what others ask for is answered by the API (-want +got):\n%s", diff)
	}
}

func TestWaitingPodsOfABasicGroupStartAloneUnlessTheyAreOthersToPlace(t *testing.T) {
	for _, test := range []struct {
		name, scheduler, node string
		queued, want          bool
	}{
		{name: "one that waits does", scheduler: corev1.DefaultSchedulerName, want: true},
		{name: "one that is on a node stays", scheduler: corev1.DefaultSchedulerName, node: "node-0"},
		{name: "one of another scheduler stays", scheduler: "volcano"},
		{name: "one of another scheduler that names a queue is told so alone", scheduler: "volcano", queued: true, want: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := testScene(t, 16, 8, 8)
			pod := relabel(ofGroup("", "a"), "")
			pod.Spec.SchedulerName, pod.Spec.NodeName = test.scheduler, test.node
			pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")}
			pod.Labels = map[string]string{}
			if test.queued {
				pod.Labels[workload.QueueLabel] = "main"
			}
			j := s.jobsOn(t, interceptor.Funcs{}, pod)
			j.served = sets.New(corev1.DefaultSchedulerName)
			s.Seen(pod)
			s.Ledger.bound(pod)
			owner, _ := workload.PodJob(pod)
			g := &workload.PodGroup{Pods: []*corev1.Pod{pod}, Basic: true}
			g.UID = owner.UID
			if err := j.part(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			got := &corev1.Pod{}
			if err := j.client.Get(t.Context(), client.ObjectKeyFromObject(pod), got); err != nil {
				t.Fatal(err)
			}
			if alone := got.Annotations[workload.AloneAnnotation] == "true"; alone != test.want {
				t.Errorf("it is to start alone: %v", alone)
			}
			if test.node != "" && len(s.uncharged([]*corev1.Pod{pod})) == 0 {
				t.Error("its GPUs are not counted as those of nobody")
			}
		})
	}
}

func TestGangThatWasAdmittedStaysOneWhenItsGroupIsMadeAnewAsBasic(t *testing.T) {
	for _, charged := range []bool{true, false} {
		s := testScene(t, 16, 8, 8)
		native := func(name string) *corev1.Pod {
			p := relabel(ofGroup("", name), "")
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")}
			return p
		}
		a, b := native("a"), native("b")
		job := groupOf(a, b)
		if charged {
			s.admitted(job, []string{"node-0", "node-1"})
		}
		group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: "g"}}
		group.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
		j := s.jobsOn(t, interceptor.Funcs{}, a, b, group)
		j.served, j.pods = sets.New(corev1.DefaultSchedulerName), listerOf(t, a, b)
		if err := j.reconcile(t.Context(), keyOf(job.Owner)); err != nil {
			t.Fatal(err)
		}
		got := &corev1.Pod{}
		if err := j.client.Get(t.Context(), client.ObjectKeyFromObject(a), got); err != nil {
			t.Fatal(err)
		}
		if alone := got.Annotations[workload.AloneAnnotation] == "true"; alone == charged {
			t.Errorf("charged: %v, its pods start alone: %v", charged, alone)
		}
	}
}

// listerOf lists the pods, as the scheduler's informer has them.
func listerOf(t *testing.T, pods ...*corev1.Pod) corelisters.PodLister {
	t.Helper()
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
	for _, p := range pods {
		if err := indexer.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	return corelisters.NewPodLister(indexer)
}
