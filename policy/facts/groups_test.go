package facts

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheGroupsOfPodsHaveOwners(t *testing.T) {
	whose := func(kind, name string, owners ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{Kind: kind}, ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", OwnerReferences: owners},
		}
	}
	job := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "1", Controller: new(true)}
	jobOwner := Owner{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "1", Exists: true}
	around := &cluster{
		owners: map[string]*metav1.PartialObjectMetadata{"Job/j": {ObjectMeta: metav1.ObjectMeta{UID: "1"}}},
		groups: map[string]*metav1.PartialObjectMetadata{
			"kueue.x-k8s.io/bare": whose("Pod", "p"), "kueue.x-k8s.io/owned": whose("Pod", "p", job), "scheduling.x-k8s.io/owned": whose("PodGroup", "owned", job),
		},
	}
	tests := []struct {
		name, object, unknown string
		want                  []Group
	}{
		{name: "no group", object: "{apiVersion: v1, kind: Pod, spec: " + gpuPod + "}"},
		{
			name: "Kueue's label, and pods without a controller", object: "{apiVersion: v1, kind: Pod, metadata: {labels: {kueue.x-k8s.io/pod-group-name: bare}}, spec: " + gpuPod + "}",
			want: []Group{{PodSet: "pod", API: "kueue.x-k8s.io", Name: "bare", Of: "Pod/p", UID: "u", Owners: []Owner{}}},
		},
		{
			name: "a Job whose pods name a group", object: "{apiVersion: batch/v1, kind: Job, spec: {template: {metadata: {labels: {kueue.x-k8s.io/pod-group-name: owned}}, spec: " + gpuPod + "}}}",
			want: []Group{{PodSet: "main", API: "kueue.x-k8s.io", Name: "owned", Of: "Pod/p", UID: "u", Owners: []Owner{jobOwner}}},
		},
		{
			name: "a PodGroup that a Job has", object: "{apiVersion: v1, kind: Pod, metadata: {labels: {scheduling.x-k8s.io/pod-group: owned}}, spec: " + gpuPod + "}",
			want: []Group{{PodSet: "pod", API: "scheduling.x-k8s.io", Name: "owned", Of: "PodGroup/owned", UID: "u", Owners: []Owner{jobOwner}}},
		},
		{
			name: "Kubernetes' own, which nobody has", object: "{apiVersion: v1, kind: Pod, spec: {schedulingGroup: {podGroupName: x}, containers: [{name: c}]}}",
			want: []Group{{PodSet: "pod", API: "scheduling.k8s.io", Name: "x", Owners: []Owner{}}},
		},
		{
			name: "Volcano's, which the queue's pods have", object: "{apiVersion: v1, kind: Pod, metadata: {labels: {kueue.x-k8s.io/queue-name: q}, annotations: {scheduling.volcano.sh/group-name: v, scheduling.volcano.sh/group-min-member: '2'}}, spec: " + gpuPod + "}",
			want: []Group{{PodSet: "pod", API: "scheduling.volcano.sh", Name: "v", Owners: []Owner{}}},
		},
		{
			name: "one that cannot be read", object: "{apiVersion: v1, kind: Pod, metadata: {labels: {kueue.x-k8s.io/pod-group-name: secret}}, spec: " + gpuPod + "}",
			want: []Group{{PodSet: "pod", API: "kueue.x-k8s.io", Name: "secret", Owners: []Owner{}}}, unknown: "whose group secret is: no",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := NewReader(around, nil).Read(context.Background(), parse(t, tt.object))
			if diff := cmp.Diff(tt.want, w.Groups); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
			if w.Unknown != tt.unknown && !strings.HasSuffix(w.Unknown, "; "+tt.unknown) {
				t.Errorf("unknown is %q", w.Unknown)
			}
		})
	}
}
