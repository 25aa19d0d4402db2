package scheduling

import (
	"testing"
	"time"

	"k8s.io/component-base/metrics/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/metrics"
)

func TestGPUSecondsAreCountedWhileNoPodIsThere(t *testing.T) {
	metrics.Register()
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
