package scheduling

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

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
	r := memberReader{c, corelisters.NewPodLister(indexer)}
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
