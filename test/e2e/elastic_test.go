package e2e

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// trainingElastic gives a running PyTorchJob with an elastic policy other
// numbers of workers. Those that it keeps go on.
func trainingElastic(t *testing.T, tm trainingTeam) {
	tm.queueUp(t, "q", 12)
	j := trainingJob{"PyTorchJob", "elastic", "pytorch", "pytorchReplicaSpecs", []trainingReplicas{{"Worker", 1, 4}}, false}
	u := tm.object(j, "q")
	policy := map[string]any{"minReplicas": int64(1), "maxReplicas": int64(4), "rdzvBackend": "c10d"}
	if err := unstructured.SetNestedMap(u.Object, policy, "spec", "elasticPolicy"); err != nil {
		t.Fatal(err)
	}
	if err := tm.client.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	first := uids(tm.runs(t, j))
	for _, n := range []int{3, 2, 3} {
		body := fmt.Appendf(nil, `{"spec":{"pytorchReplicaSpecs":{"Worker":{"replicas":%d}}}}`, n)
		if err := tm.client.Patch(t.Context(), tm.object(j, ""), client.RawPatch("application/merge-patch+json", body)); err != nil {
			t.Fatal(err)
		}
		j.replicas[0].n = n
		if now := uids(tm.runs(t, j)); !now.IsSuperset(first) {
			t.Errorf("with %d workers the pods are %v, and the first was %v", n, now, first)
		}
		tm.usage(t, "q", int64(4*n), 1, 0)
	}
}
