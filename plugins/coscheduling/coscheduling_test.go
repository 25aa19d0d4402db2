package coscheduling

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-gpu/muster/placement"
)

// ledger is what the Ledger says of every pod, and what it was told.
type ledger struct {
	enter   string
	node    string
	managed bool
	wait    bool
	release []types.UID

	givenBack []types.UID
	replanned bool
}

func (l *ledger) MayEnter(*v1.Pod) (bool, string)     { return l.enter == "", l.enter }
func (l *ledger) NodeFor(*v1.Pod) (string, bool)      { return l.node, l.managed }
func (l *ledger) Reserve(*v1.Pod) (bool, []types.UID) { return l.wait, l.release }
func (l *ledger) GiveBack(pod *v1.Pod, replan bool) bool {
	l.givenBack = append(l.givenBack, pod.UID)
	l.replanned = l.replanned || replan
	return l.managed
}

// waiting is the part of the scheduler that keeps pods at Permit.
type waiting struct {
	fwk.Handle
	pods      map[types.UID]*waitingPod
	informers informers.SharedInformerFactory
}

func (w *waiting) SharedInformerFactory() informers.SharedInformerFactory { return w.informers }

func (w *waiting) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	if p := w.pods[uid]; p != nil {
		return p
	}
	return nil
}

type waitingPod struct {
	fwk.WaitingPod
	allowedBy string
}

func (p *waitingPod) Allow(plugin string) { p.allowedBy = plugin }

func newPlugin(t *testing.T, l *ledger, h fwk.Handle) *Plugin {
	t.Helper()
	p, err := Factory(l, 7*time.Second)(t.Context(), nil, h)
	if err != nil {
		t.Fatal(err)
	}
	return p.(*Plugin)
}

var gangPod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "worker-0", UID: "worker-0"}}

func nodeInfo(name string) fwk.NodeInfo {
	info := framework.NewNodeInfo()
	info.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return info
}

func TestPreEnqueue(t *testing.T) {
	tests := map[string]struct {
		ledger ledger
		want   *fwk.Status
	}{
		"a pod that may enter is let in": {},
		"a pod that waits is gated with the Ledger's words": {
			ledger: ledger{enter: "waiting for its job to be admitted"},
			want:   fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waiting for its job to be admitted"),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := newPlugin(t, &tc.ledger, nil).PreEnqueue(t.Context(), gangPod)
			if diff := cmp.Diff(tc.want, got, statuses); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGatedPodsAreWokenByNoClusterEvent(t *testing.T) {
	got, err := newPlugin(t, &ledger{}, nil).EventsToRegister(t.Context())
	if err != nil || len(got) > 0 {
		t.Errorf("events are %v (%v), want none: the Ledger activates exact pods", got, err)
	}
}

func TestPreFilter(t *testing.T) {
	tests := map[string]struct {
		ledger   ledger
		planning bool
		want     *fwk.Status
		nodes    sets.Set[string]
	}{
		"a pod of no gang goes where the scheduler likes": {want: fwk.NewStatus(fwk.Skip)},
		"a gang's pod is steered to its node": {
			ledger: ledger{managed: true, node: "node-3"},
			nodes:  sets.New("node-3"),
		},
		"a gang's pod without a slot is refused everywhere": {
			ledger: ledger{managed: true},
			want:   fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNoSlot),
		},
		"a hypothetical pod of a plan is not steered": {
			ledger:   ledger{managed: true, node: "node-3"},
			planning: true,
			want:     fwk.NewStatus(fwk.Skip),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			state := framework.NewCycleState()
			if tc.planning {
				placement.MarkPlanning(state)
			}
			result, status := newPlugin(t, &tc.ledger, nil).PreFilter(t.Context(), state, gangPod, nil)
			if diff := cmp.Diff(tc.want, status, statuses); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			var nodes sets.Set[string]
			if result != nil {
				nodes = result.NodeNames
			}
			if diff := cmp.Diff(tc.nodes, nodes); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFilterKeepsANominatedPodOnItsPlannedNode(t *testing.T) {
	tests := map[string]struct {
		ledger ledger
		on     string
		clone  bool
		want   *fwk.Status
	}{
		"the planned node passes":          {ledger: ledger{managed: true, node: "node-0"}, on: "node-0"},
		"another, nominated node is not":   {ledger: ledger{managed: true, node: "node-0"}, on: "node-1", want: fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNotPlanned)},
		"nor is it on a copied state":      {ledger: ledger{managed: true, node: "node-0"}, on: "node-1", clone: true, want: fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNotPlanned)},
		"a pod of no gang passes anywhere": {on: "node-1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t, &tc.ledger, nil)
			var state fwk.CycleState = framework.NewCycleState()
			p.PreFilter(t.Context(), state, gangPod, nil)
			if tc.clone {
				state = state.Clone()
			}
			if diff := cmp.Diff(tc.want, p.Filter(t.Context(), state, gangPod, nodeInfo(tc.on)), statuses); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPermitWaitsForTheStartGroupAndTheLastLetsItGo(t *testing.T) {
	h := &waiting{pods: map[types.UID]*waitingPod{"a": {}, "b": {}, "other": {}}}
	first := newPlugin(t, &ledger{managed: true, wait: true}, h)
	status, timeout := first.Permit(t.Context(), framework.NewCycleState(), gangPod, "node-0")
	if status.Code() != fwk.Wait || timeout != 7*time.Second {
		t.Errorf("the first pod gets %v for %s, want Wait for the barrier's 7s", status, timeout)
	}
	// "lost" has been sent back meanwhile and waits no more.
	last := newPlugin(t, &ledger{managed: true, release: []types.UID{"a", "lost", "b"}}, h)
	status, timeout = last.Permit(t.Context(), framework.NewCycleState(), gangPod, "node-0")
	if !status.IsSuccess() || timeout != 0 {
		t.Errorf("the last pod gets %v for %s, want success", status, timeout)
	}
	for uid, want := range map[types.UID]string{"a": Name, "b": Name, "other": ""} {
		if got := h.pods[uid].allowedBy; got != want {
			t.Errorf("pod %s was allowed by %q, want %q", uid, got, want)
		}
	}
}

func TestPermitLetsAPodGoOnWhoseClaimOthersShare(t *testing.T) {
	h := &waiting{informers: informers.NewSharedInformerFactory(fake.NewClientset(), 0)}
	claims := h.informers.Core().V1().PersistentVolumeClaims().Informer().GetIndexer()
	pod := gangPod.DeepCopy()
	pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	for _, test := range []struct {
		name, volume string
		want         fwk.Code
	}{
		{"it has no volume yet", "", fwk.Success},
		{"it has a volume", "v0", fwk.Wait},
	} {
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: pod.Namespace}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: test.volume}}
		if err := claims.Add(claim); err != nil {
			t.Fatal(err)
		}
		status, _ := newPlugin(t, &ledger{managed: true, wait: true}, h).Permit(t.Context(), framework.NewCycleState(), pod, "node-0")
		if status.Code() != test.want {
			t.Errorf("%s: got %v, want %v", test.name, status, test.want)
		}
	}
}

func TestUnreserveHasTheSlotHeldAgainOnItsNode(t *testing.T) {
	l := &ledger{managed: true}
	newPlugin(t, l, nil).Unreserve(t.Context(), framework.NewCycleState(), gangPod, "node-0")
	if diff := cmp.Diff([]types.UID{"worker-0"}, l.givenBack); diff != "" || l.replanned {
		t.Errorf("given back (-want +got), replanned %v:\n%s", l.replanned, diff)
	}
}

func TestSignPodLetsOnlyPodsOfNoGangBeBatched(t *testing.T) {
	tests := map[string]struct {
		ledger ledger
		want   fwk.Code
	}{
		"a pod of no gang":                  {ledger{}, fwk.Success},
		"a gang's pod with a node":          {ledger{managed: true, node: "node-0"}, fwk.Unschedulable},
		"a gang's pod that has no slot now": {ledger{managed: true}, fwk.Unschedulable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, status := newPlugin(t, &tc.ledger, nil).SignPod(context.Background(), gangPod); status.Code() != tc.want {
				t.Errorf("status is %v, want %v", status, tc.want)
			}
		})
	}
}

// statuses compares what a user and the scheduler see of a status.
var statuses = cmp.Comparer(func(a, b *fwk.Status) bool {
	return a.Code() == b.Code() && a.Message() == b.Message()
})
