package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/sandbox"
)

// hasty is a scheduler that gives up soon, and tries again late enough for
// others to come first.
const hasty = `
apiVersion: config.muster.dev/v1alpha1
kind: SchedulerConfiguration
profiles: [muster, default-scheduler]
admission:
  startTimeout: 8s
  readyTimeout: 10m
  requeue: {backoffBase: 20s, limitCount: null}
`

// TestDeadlines tells, on one sandbox with a hasty scheduler, what becomes of
// jobs that do not start or do not end in time.
func TestDeadlines(t *testing.T) {
	config := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(config, []byte(hasty), 0o600); err != nil {
		t.Fatal(err)
	}
	c := up(t, "deadlines", func(o *sandbox.Options) { o.Config = config })
	tellAll(t, c, "deadline", anyJobs, []story[team]{
		{"a ResourceQuota that refuses one of four pods is named, and the job runs once it is raised", resourceQuota},
		{"a job is ready when all its pods are, and is deactivated when its time is up", timeUp},
		{"a JobSet that runs again waits no more for what it has completed", runsAgain},
	})
}

func resourceQuota(t *testing.T, tm team) {
	tm.queueUp(t, "q", 16)
	limit := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: "team-quota"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/pods": resource.MustParse("3")}},
	}
	if err := tm.client.Create(t.Context(), limit); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ResourceQuota to be enforced", func(ctx context.Context) error {
		if err := tm.client.Get(ctx, client.ObjectKeyFromObject(limit), limit); err != nil || len(limit.Status.Hard) == 0 {
			return fmt.Errorf("its status is %+v (%v)", limit.Status, err)
		}
		return nil
	})
	tm.create(t, job{name: "four", queue: "q", nodes: 4, gpus: 4})
	tm.usage(t, "q", 16, 1, 0)
	tm.create(t, job{name: "one", queue: "q", nodes: 1, gpus: 8})
	tm.usage(t, "q", 16, 1, 1)

	// Nobody but the ResourceQuota is to blame, and the user reads it.
	for _, part := range []string{"none of 4 pods came onto their nodes in 8s", "is forbidden: exceeded quota: team-quota", "limited: count/pods=3"} {
		tm.told(t, "four", "Suspended", part)
	}
	wl, err := tm.workload(t.Context(), "four")
	if err != nil || wl == nil {
		t.Fatalf("no Workload (%v)", err)
	}
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); c == nil || c.Reason != kueue.WorkloadEvictedByPodsReadyTimeout || !strings.Contains(c.Message, "team-quota") {
		t.Errorf("the condition Evicted is %+v", c)
	}
	tm.runs(t, "one", 1)
	tm.usage(t, "q", 8, 1, 1)

	raised := limit.DeepCopy()
	raised.Spec.Hard["count/pods"] = resource.MustParse("10")
	if err := tm.client.Patch(t.Context(), raised, client.MergeFrom(limit)); err != nil {
		t.Fatal(err)
	}
	tm.end(t, "one")
	tm.finishes(t, "one")
	tm.runs(t, "four", 4)
	tm.usage(t, "q", 16, 1, 0)
}

func timeUp(t *testing.T, tm team) {
	tm.queueUp(t, "q", 16)
	bounded := tm.object(job{name: "bounded", queue: "q", nodes: 2, gpus: 8})
	bounded.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/max-exec-time-seconds": "15"})
	if err := tm.client.Create(t.Context(), bounded); err != nil {
		t.Fatal(err)
	}
	tm.podsReady(t, "bounded")
	tm.waits(t, "bounded", "Deactivated", "because it has used up its maximum execution time of 15s")
	tm.told(t, "bounded", "Suspended", "it has used up its maximum execution time of 15s")
	tm.usage(t, "q", 0, 0, 0)
}

func runsAgain(t *testing.T, tm team) {
	tm.queueUp(t, "q", 16)
	node := replicated("node", 1, 2, 8)
	node.DependsOn = []jobset.DependsOn{{Name: "init", Status: jobset.DependencyComplete}}
	tm.createJobSet(t, tm.jobSet("train", replicated("init", 1, 1, 0), node))
	tm.runs(t, "train", 1, "init")
	tm.end(t, "train", "init")
	tm.runs(t, "train", 2, "node")
	tm.podsReady(t, "train")

	tm.activate(t, "train", false)
	tm.usage(t, "q", 0, 0, 0)
	tm.activate(t, "train", true)
	tm.runs(t, "train", 2, "node")
	// A pod that is waited for in vain would also keep it from starting in time.
	tm.podsReady(t, "train")
}

// podsReady waits until the Workload of a job says that all its pods are ready.
func (tm team) podsReady(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" to be ready", func(ctx context.Context) error {
		wl, err := tm.workload(ctx, name)
		if err != nil || wl == nil || !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadPodsReady) {
			return fmt.Errorf("it is not: %s (%v)", tm.describe(ctx, name), err)
		}
		return nil
	})
}
