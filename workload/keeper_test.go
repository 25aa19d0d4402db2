package workload

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestKeeperOfAPod(t *testing.T) {
	for name, tc := range map[string]struct {
		apiVersion, kind, owner, hash string
		want                          Keeper
	}{
		"the Deployment of its ReplicaSet": {"apps/v1", "ReplicaSet", "web-5d4f", "5d4f", Keeper{"Deployment", types.NamespacedName{Namespace: namespace, Name: "web"}}},
		"a ReplicaSet of its own":          {"apps/v1", "ReplicaSet", "web", "", Keeper{"ReplicaSet", types.NamespacedName{Namespace: namespace, Name: "web"}}},
		"a ReplicaSet with another hash":   {"apps/v1", "ReplicaSet", "web-5d4f", "else", Keeper{"ReplicaSet", types.NamespacedName{Namespace: namespace, Name: "web-5d4f"}}},
		"a StatefulSet":                    {"apps/v1", "StatefulSet", "notebook", "", Keeper{"StatefulSet", types.NamespacedName{Namespace: namespace, Name: "notebook"}}},
		"none of a workflow":               {"argoproj.io/v1alpha1", "Workflow", "steps", "", Keeper{}},
		"none of a Job":                    {"batch/v1", "Job", "train", "", Keeper{}},
		"none of a foreign StatefulSet":    {"apps.kruise.io/v1", "StatefulSet", "web", "", Keeper{}},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: tc.apiVersion, Kind: tc.kind, Name: tc.owner, UID: "o", Controller: new(true)},
		}}}
		if tc.hash != "" {
			p.Labels = map[string]string{"pod-template-hash": tc.hash}
		}
		if got := KeeperOf(p); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	if got := KeeperOf(&corev1.Pod{}); got != (Keeper{}) {
		t.Errorf("a pod of nobody has the keeper %+v", got)
	}
}
