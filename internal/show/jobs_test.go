package show

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const why = "needs 16 GPUs in queue q, 8 of 24 free"

// someJobs are one of each state.
func someJobs() []client.Object {
	return []client.Object{
		localQueueFor("nlp", "q", "research"),
		trainJob("apple", 4, 4, admittedOn("research", 40*time.Minute, "n1", "n1", "n2", "n2")),
		trainPod("apple", "apple-0", "n1", true), trainPod("apple", "apple-1", "n1", true), trainPod("apple", "apple-2", "n2", false),
		// It is as old, and its name comes first.
		trainJob("banana", 4, 4, says(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "WaitingForQuota", why, time.Hour)),
		trainJob("cherry", 1, 8, func(wl *kueue.Workload) { wl.Spec.Priority = new(int32(10)) }),
		trainJob("damson", 1, 8, admittedOn("research", 3*time.Hour, "n3"), says("muster.dev/Idle", metav1.ConditionTrue, "Idle", "all 8 GPUs are idle", time.Hour)),
		trainJob("elder", 1, 8, says(kueue.WorkloadFinished, metav1.ConditionTrue, "Failed", "it broke", time.Minute)),
		trainJob("fig", 1, 8, func(wl *kueue.Workload) { wl.Spec.Active = new(false) }),
	}
}

func TestJobsAreShownWithWhatTheyWaitFor(t *testing.T) {
	c, asked := clusterOf(t, someJobs()...)
	compare(t, `
NAME     KIND       QUEUE   PRIORITY   GPUS   PODS   STATE         POSITION   FOR   WHY
apple    TrainJob   q       0          16     2/4    Running                  40m
damson   TrainJob   q       0          8      0/1    Running                  3h    GPUsIdle
cherry   TrainJob   q       10         8      -/1    Pending       1          60m
banana   TrainJob   q       0          16     -/4    Pending       2          60m   WaitingForQuota
fig      TrainJob   q       0          8      -/1    Deactivated              60m   Deactivated
`, shown(t, "", func(o Output) error { return c.ShowJobs(t.Context(), o, JobOptions{Namespace: "nlp"}) }))
	if n := len(*asked); n != 2 {
		t.Errorf("%d requests: %v", n, *asked)
	}
	compare(t, `
trainjob.trainer.kubeflow.org/elder
`, shown(t, "name", func(o Output) error { return c.ShowJobs(t.Context(), o, JobOptions{State: "finished"}) }))
	wide := shown(t, "wide", func(o Output) error {
		return c.ShowJobs(t.Context(), o, JobOptions{State: "pending", Queue: "research"})
	})
	if !strings.Contains(wide, why) || !strings.HasPrefix(wide, "\nNAMESPACE") {
		t.Error(wide)
	}
}

func TestPodsAreNotReadWhereNoJobRuns(t *testing.T) {
	c, asked := clusterOf(t, trainJob("banana", 4, 4))
	if _, err := c.Jobs(t.Context(), JobOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(*asked) != 1 {
		t.Error(*asked)
	}
}

func TestOnlyATerminalIsColoured(t *testing.T) {
	c, _ := clusterOf(t, someJobs()...)
	for _, color := range []bool{true, false} {
		var out bytes.Buffer
		if err := c.ShowJobs(t.Context(), Output{Out: &out, Color: color}, JobOptions{}); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(out.String(), "\n")
		if got := strings.Contains(lines[0], "\x1b"); got {
			t.Error("the header is coloured")
		}
		if got := strings.HasPrefix(lines[1], tones[good]) && strings.HasSuffix(lines[1], toneEnds); got != color {
			t.Errorf("color %t: %q", color, lines[1])
		}
	}
}

func TestStatesAreNames(t *testing.T) {
	c, _ := clusterOf(t)
	if _, err := c.Jobs(t.Context(), JobOptions{State: "waiting"}); err == nil || !strings.Contains(err.Error(), "pending, running, finished") {
		t.Error(err)
	}
}
