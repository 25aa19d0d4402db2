package scheduling

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-base/metrics/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/metrics"
)

func TestGPUSecondsAreCountedWhileNoPodIsThere(t *testing.T) {
	s := testScene(t, 64, 64)
	j := s.jobsOn(t, interceptor.Funcs{})
	counted := func() float64 {
		t.Helper()
		v, err := testutil.GetCounterMetricValue(metrics.HeldGPUSeconds.WithLabelValues("cq"))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := counted()
	counts := func(when string, want float64) {
		t.Helper()
		j.countHeld(2 * time.Second)
		if got := counted() - before; got != want {
			t.Errorf("%s: %v GPU-seconds, want %v", when, got, want)
		}
		before = counted()
	}
	counts("nobody is there", 0)
	of := s.pending(job("a", set("init", 0, 1, 0), set("node", 1, 2, 4)))
	counts("the job waits", 0)
	s.plan(of, []string{"node-0"}, []string{"node-0", "node-0"})
	counts("the job is planned", 16)
	wl := s.workloadOfJob(of, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(of))
	s.written(of.Owner.UID, 0, wl, wrote, nil)
	s.bindAll(pods(of, "init", "init")...)
	counts("its first phase runs", 16)
	bound := s.bindAll(pods(of, "node", "node")...)
	counts("all its pods are on nodes", 0)
	s.gone(bound[0])
	counts("one pod is lost", 8)
	s.settle(true)
	counts("it had succeeded", 0)
}

func TestClaimedGPUsAreHeldToo(t *testing.T) {
	s := testScene(t, 64, 64)
	of := job("a", set("node", 0, 2, 1))
	of.PodSets[0].Claimed.PerPod = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("3")}
	s.plan(s.pending(of), []string{"node-0", "node-0"})
	if got := s.heldGPUs()["cq"]; got != 8 {
		t.Errorf("%d GPUs are held, want 8", got)
	}
}

func TestWhoFindsNoNodesIsToldWhatIsHeldForPodsThatAreMissing(t *testing.T) {
	s := testScene(t, 64, 64)
	runs := s.admitted(job("runs", set("node", 0, 2, 4)), []string{"node-0", "node-0"})
	bound := s.bindAll(pods(runs, "node", "node")...)
	waits := s.pending(job("waits", set("node", 0, 1, 8)))
	s.entry(waits).spot.bucket.why = reason.New(reason.NoPlacement, "no node passes")
	says := func() string {
		t.Helper()
		s.expire(time.Hour)
		lines, _ := s.picture(s.clock.Now())
		if len(lines) != 1 {
			t.Fatalf("told are %+v", lines)
		}
		return lines[0].why.Message
	}
	if got := says(); got != "no node passes" {
		t.Errorf("while all pods are there it says %q", got)
	}
	s.gone(bound[0])
	if got := says(); got != "no node passes" {
		t.Errorf("at once it says %q", got)
	}
	s.clock.Step(heldLong)
	if got, want := says(), "no node passes; 4 GPUs are held for pods of JobSet team-a/runs that are not there"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	other := s.admitted(job("starts", set("node", 0, 3, 1)), []string{"node-0", "node-0", "node-0"})
	says()
	s.clock.Step(heldLong)
	if got, want := says(), "no node passes; 7 GPUs are held for pods of JobSet team-a/runs and 1 more that are not there"; got != want {
		t.Errorf("of two it says %q, want %q", got, want)
	}
	s.bindAll(pod(other, "node", 0, "a"), pod(other, "node", 1, "b"), pod(other, "node", 2, "c"))
	s.bindAll(pod(runs, "node", 0, "again"))
	if got := says(); got != "no node passes" {
		t.Errorf("when they have come it says %q", got)
	}
}
