package scheduling

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-gpu/muster/api/reason"
)

// Only pods for which nodes would help are called unschedulable.
func TestPodsThatWaitSayWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		class        reason.Class
		needsNoNodes bool
		change       func(*corev1.Pod)
		want         string
	}{
		"no nodes":                 {class: reason.NoPlacement, want: corev1.PodReasonUnschedulable},
		"more than all nodes have": {class: reason.ExceedsCluster, want: corev1.PodReasonUnschedulable},
		"no quota":                 {class: reason.WaitingForQuota, want: string(reason.WaitingForQuota)},
		"no nodes for its job, which lacks quota": {class: reason.NoPlacement, needsNoNodes: true, want: string(reason.NoPlacement)},
		"it was unschedulable, and lacks quota now": {class: reason.WaitingForQuota, want: string(reason.WaitingForQuota), change: func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
		}},
		"a gate keeps it": {class: reason.NoPlacement, change: func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "theirs"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := plainPod("p", "", 1)
			if tc.change != nil {
				tc.change(p)
			}
			writes := 0
			c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(p).WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					writes++
					return c.SubResource(sub).Patch(ctx, o, patch, opts...)
				},
			}).Build()
			r := &reporter{Jobs: &Jobs{client: c, clock: testclock.NewFakeClock(epoch0)}}
			var said []string
			for range 2 {
				have := &corev1.Pod{}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), have); err != nil {
					t.Fatal(err)
				}
				if err := r.mark(t.Context(), []*corev1.Pod{have}, reason.Reason{Class: tc.class, Message: "why"}, tc.needsNoNodes); err != nil {
					t.Fatal(err)
				}
			}
			have := &corev1.Pod{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), have); err != nil {
				t.Fatal(err)
			}
			if _, c := podutil.GetPodCondition(&have.Status, corev1.PodScheduled); c != nil {
				said = append(said, string(c.Status), c.Reason, c.Message)
			}
			var want []string
			if tc.want != "" {
				want = []string{"False", tc.want, "why"}
			}
			if diff := cmp.Diff(want, said); diff != "" {
				t.Errorf("it says (-want +got):\n%s", diff)
			}
			if (writes == 1) != (tc.want != "") || writes > 1 {
				t.Errorf("it is told %d times", writes)
			}
		})
	}
}

// What an autoscaler does not see of a gang it brings no nodes for.
func TestAllPodsOfAGangSayAtOnceWhyTheyWait(t *testing.T) {
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		// cannot is the pod that cannot be told.
		cannot string
		want   []string
	}{
		"all":                           {"", []string{"a", "b", "c"}},
		"and those after one that errs": {"a", []string{"b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			gang := []*corev1.Pod{plainPod("a", "", 8), plainPod("b", "", 8), plainPod("c", "", 8)}
			c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(gang[0], gang[1], gang[2]).WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					if o.GetName() == tc.cannot {
						return refused
					}
					return c.SubResource(sub).Patch(ctx, o, patch, opts...)
				},
			}).Build()
			r := &reporter{Jobs: &Jobs{client: c, clock: testclock.NewFakeClock(epoch0)}}
			err := r.mark(t.Context(), gang, reason.Reason{Class: reason.NoPlacement, Message: "why"}, false)
			if errors.Is(err, refused) != (tc.cannot != "") || (err != nil && !strings.Contains(err.Error(), namespace+"/"+tc.cannot)) {
				t.Errorf("the error is %v", err)
			}
			var told []string
			var all corev1.PodList
			if err := c.List(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			for _, p := range all.Items {
				if _, c := podutil.GetPodCondition(&p.Status, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable && c.Message == "why" {
					told = append(told, p.Name)
				}
			}
			slices.Sort(told)
			if diff := cmp.Diff(tc.want, told); diff != "" {
				t.Errorf("told are (-want +got):\n%s", diff)
			}
		})
	}
}
