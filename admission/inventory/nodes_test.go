package inventory

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/policy"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// node reports devices at a time. Each device is its holders, as "namespace/pod verdict",
// with commas between them.
func node(name string, heard time.Time, devices ...string) *v1alpha1.GPUNode {
	n := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.LastHeartbeat = metav1.NewTime(heard)
	n.Status.Summary.Devices = int32(len(devices))
	for _, holders := range devices {
		var device v1alpha1.GPUDevice
		for _, holder := range strings.Split(holders, ",") {
			pod, verdict, held := strings.Cut(holder, " ")
			if !held {
				continue
			}
			namespace, pod, _ := strings.Cut(pod, "/")
			device.Holders = append(device.Holders, v1alpha1.GPUHolder{Namespace: namespace, Pod: pod, Verdict: v1alpha1.GPUVerdict(verdict)})
		}
		n.Status.Devices = append(n.Status.Devices, device)
	}
	return n
}

func TestAnInventorySaysWhoLeavesGPUsIdle(t *testing.T) {
	tests := []struct {
		name  string
		nodes []*v1alpha1.GPUNode
		// observed is by how much the inventory is older than noon.
		observed time.Duration
		idle     map[string]int64
		want     map[string]policy.GPUNode
	}{
		{
			name: "what is idle, works, is stalled, is not known, and is free",
			nodes: []*v1alpha1.GPUNode{
				node("n", noon, "nlp/a idle", "nlp/a idle", "nlp/b active", "nlp/b stalled", "nlp/b unknown", ""),
			},
			idle: map[string]int64{"nlp": 2},
			want: map[string]policy.GPUNode{"n": {GPUs: 6, Idle: []policy.Holder{{Namespace: "nlp", Pod: "a", GPUs: 2}}}},
		},
		{
			name:  "a namespace has idle GPUs on several nodes",
			nodes: []*v1alpha1.GPUNode{node("m", noon, "nlp/b idle"), node("n", noon, "nlp/a idle", "vision/c idle")},
			idle:  map[string]int64{"nlp": 2, "vision": 1},
			want: map[string]policy.GPUNode{
				"m": {GPUs: 1, Idle: []policy.Holder{{Namespace: "nlp", Pod: "b", GPUs: 1}}},
				"n": {GPUs: 2, Idle: []policy.Holder{{Namespace: "nlp", Pod: "a", GPUs: 1}, {Namespace: "vision", Pod: "c", GPUs: 1}}},
			},
		},
		{
			name:  "a GPU that is shared is idle when none of its holders uses it, and counts once for a namespace",
			nodes: []*v1alpha1.GPUNode{node("n", noon, "nlp/a idle,nlp/b idle", "nlp/a idle,vision/c active")},
			idle:  map[string]int64{"nlp": 1},
			want:  map[string]policy.GPUNode{"n": {GPUs: 2, Idle: []policy.Holder{{Namespace: "nlp", Pod: "a", GPUs: 1}, {Namespace: "nlp", Pod: "b", GPUs: 1}}}},
		},
		{
			name:     "of a node that has not been heard of for three minutes only the GPUs are known",
			nodes:    []*v1alpha1.GPUNode{node("old", noon.Add(-3*time.Minute), "nlp/a idle"), node("new", noon.Add(-2*time.Minute), "nlp/b idle"), node("never", time.Time{}, "nlp/c idle")},
			observed: 2 * time.Minute,
			idle:     map[string]int64{"nlp": 1},
			want: map[string]policy.GPUNode{
				"old": {GPUs: 1}, "never": {GPUs: 1}, "new": {GPUs: 1, Idle: []policy.Holder{{Namespace: "nlp", Pod: "b", GPUs: 1}}},
			},
		},
		{
			name:  "a node whose clock is fast makes the inventory no younger than it is",
			nodes: []*v1alpha1.GPUNode{node("n", noon.Add(time.Hour), "nlp/a idle")},
			idle:  map[string]int64{"nlp": 1},
			want:  map[string]policy.GPUNode{"n": {GPUs: 1, Idle: []policy.Holder{{Namespace: "nlp", Pod: "a", GPUs: 1}}}},
		},
		{
			name:  "a namespace that does not exist any more has none",
			nodes: []*v1alpha1.GPUNode{node("n", noon, "gone/a idle")},
			want:  map[string]policy.GPUNode{"n": {GPUs: 1, Idle: []policy.Holder{{Namespace: "gone", Pod: "a", GPUs: 1}}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Build(Objects{Namespaces: map[string]labels.Set{"nlp": nil, "vision": nil}, Nodes: tt.nodes}, noon)
			if diff := cmp.Diff(tt.want, got.GPUNodes); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
			for _, namespace := range []string{"nlp", "vision"} {
				if got.Namespaces[namespace].IdleGPUs != tt.idle[namespace] {
					t.Errorf("%s has %d idle GPUs, want %d", namespace, got.Namespaces[namespace].IdleGPUs, tt.idle[namespace])
				}
			}
			if len(got.Namespaces) != 2 {
				t.Errorf("the namespaces are %v", got.Namespaces)
			}
			if want := noon.Add(-tt.observed); !got.ObservedAt.Equal(want) {
				t.Errorf("observed at %v, want %v", got.ObservedAt, want)
			}
		})
	}
}

func TestANodeThatOnlySaysThatAllIsAsItWasIsNoChange(t *testing.T) {
	before := node("n", noon, "nlp/a idle", "nlp/b active")
	tests := []struct {
		name string
		now  *v1alpha1.GPUNode
		same bool
	}{
		{"a minute later", node("n", noon.Add(time.Minute), "nlp/a idle", "nlp/b active"), true},
		{"another works", node("n", noon, "nlp/a idle", "nlp/c active"), true},
		{"a pod has become idle", node("n", noon, "nlp/a idle", "nlp/b idle"), false},
		{"another pod of the namespace is the idle one", node("n", noon, "nlp/c idle", "nlp/b active"), false},
		{"a pod works again", node("n", noon, "nlp/a active", "nlp/b active"), false},
		{"it has a GPU less", node("n", noon, "nlp/a idle"), false},
	}
	for _, tt := range tests {
		if got := sameFacts(before, tt.now); got != tt.same {
			t.Errorf("%s: the same facts: %t", tt.name, got)
		}
	}
	if sameFacts(node("n", noon, "nlp/a idle,nlp/b idle", ""), node("n", noon, "nlp/a idle", "nlp/b idle")) {
		t.Error("two pods that share an idle GPU are as two with one each")
	}
}
