package simulator

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// boundPod is a pod on a node; the functions below take it through its life.
func boundPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Annotations: map[string]string{}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
}

func admittedPod(seconds float64) *corev1.Pod {
	p := boundPod()
	p.Status.StartTime = &metav1.Time{Time: at(seconds)}
	p.Annotations[AdmittedAtAnnotation] = stamp(at(seconds))
	return p
}

func runningPod(seconds float64) *corev1.Pod {
	p := admittedPod(seconds)
	p.Annotations[StartedAtAnnotation] = stamp(at(seconds))
	p.Status.Phase = corev1.PodRunning
	return p
}

// deleted is the pod after its deletion was asked for, with the grace period
// that the API writes down.
func deleted(p *corev1.Pod, seconds float64, grace int64) *corev1.Pod {
	p.DeletionTimestamp = &metav1.Time{Time: at(seconds + float64(grace))}
	p.DeletionGracePeriodSeconds = ptr.To(grace)
	return p
}

func ended(p *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	p.Status.Phase = phase
	return p
}

func TestDecide(t *testing.T) {
	forTen := behaviour{ends: true, runFor: 10 * time.Second}
	alone := []rank{{started: at(0)}}
	cases := []struct {
		name      string
		pod       *corev1.Pod
		behaviour behaviour
		ranks     []rank
		now       float64
		want      decision
	}{
		{name: "a new pod is admitted", pod: boundPod(), want: decision{do: admit}},
		{name: "an admitted pod runs at once", pod: admittedPod(0), now: 0, want: decision{do: run}},
		{name: "a start delay holds it back", pod: admittedPod(0), behaviour: behaviour{startDelay: 5 * time.Second}, now: 1,
			want: decision{do: wait, again: at(5)}},
		{name: "and lets it go in time", pod: admittedPod(0), behaviour: behaviour{startDelay: 5 * time.Second}, now: 5,
			want: decision{do: run}},
		{name: "a pod without run-for runs for ever", pod: runningPod(0), ranks: alone, now: 1e6, want: decision{do: wait}},
		{name: "a pod ends when its gang has run long enough", pod: runningPod(0), behaviour: forTen, ranks: alone, now: 10,
			want: decision{do: finish}},
		{name: "and not before", pod: runningPod(0), behaviour: forTen, ranks: alone, now: 9.5,
			want: decision{do: wait, again: at(10)}},
		{name: "a rank of an incomplete gang never ends", pod: runningPod(0), behaviour: forTen, ranks: []rank{{started: at(0)}, {}}, now: 1e6,
			want: decision{do: wait}},
		{name: "the survivors of a lost rank hang", pod: runningPod(0), behaviour: forTen,
			ranks: []rank{{started: at(0)}, {started: at(0), lost: at(3)}}, now: 1e6, want: decision{do: wait}},
		{name: "a rank whose gang was done when another failed ends too", pod: runningPod(0), behaviour: forTen,
			ranks: []rank{{started: at(0)}, {started: at(0), lost: at(10)}}, now: 11, want: decision{do: finish}},
		{name: "the exit code is the annotation's", pod: runningPod(0), ranks: alone, now: 10,
			behaviour: behaviour{ends: true, runFor: 10 * time.Second, exitCode: 7}, want: decision{do: finish, exitCode: 7}},
		{name: "an exit code alone ends the pod once its gang is complete", pod: runningPod(0), ranks: alone, now: 0,
			behaviour: behaviour{ends: true, exitCode: 1}, want: decision{do: finish, exitCode: 1}},
		{name: "but not a rank of an incomplete gang", pod: runningPod(0), ranks: []rank{{started: at(0)}, {}}, now: 5,
			behaviour: behaviour{ends: true, exitCode: 1}, want: decision{do: wait}},
		{name: "a deleted pod takes a second to end", pod: deleted(runningPod(0), 20, 30), now: 20.25,
			want: decision{do: wait, exitCode: 143, again: at(21)}},
		{name: "and ends by TERM", pod: deleted(runningPod(0), 20, 30), now: 21, want: decision{do: finish, exitCode: 143}},
		{name: "a shorter grace period is kept", pod: deleted(runningPod(0), 20, 0), now: 20, want: decision{do: finish, exitCode: 143}},
		{name: "one that is said to take long outlives its grace period", pod: deleted(runningPod(0), 20, 30), behaviour: behaviour{stopDelay: new(time.Minute)}, now: 79.5,
			want: decision{do: wait, exitCode: 143, again: at(80)}},
		{name: "one that is said to take no time ends at once", pod: deleted(runningPod(0), 20, 30), behaviour: behaviour{stopDelay: new(time.Duration(0))}, now: 20,
			want: decision{do: finish, exitCode: 143}},
		{name: "a pod that never ran ends at once", pod: deleted(admittedPod(0), 20, 30), now: 20, want: decision{do: finish, exitCode: 143}},
		{name: "an ended pod is removed once it is deleted", pod: deleted(ended(runningPod(0), corev1.PodFailed), 20, 30), now: 22,
			want: decision{do: remove}},
		{name: "and only once", pod: deleted(ended(runningPod(0), corev1.PodFailed), 20, 0), now: 22, want: decision{do: wait}},
		{name: "an ended pod stays until then", pod: ended(runningPod(0), corev1.PodSucceeded), now: 22, want: decision{do: wait}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := decide(c.pod, c.behaviour, c.ranks, max(1, len(c.ranks)), at(c.now))
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(decision{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlanOfAGangWhoseJobsAreNotAllThereWaits(t *testing.T) {
	pod := runningPod(0)
	pod.Labels = map[string]string{batchv1.JobCompletionIndexAnnotation: "0", jobIndexLabel: "0"}
	pod.Annotations[RunForAnnotation] = "1s"
	first := newJob("a", 1, 1, ofJobSet("0", "2"))
	steps := plan("jobset/u/node", []*corev1.Pod{pod}, []*batchv1.Job{first}, at(100))
	if steps[0].do != wait {
		t.Errorf("with one of two Jobs the step is %s, want wait", steps[0].do)
	}
	first.Labels[replicasLabel] = "1"
	steps = plan("jobset/u/node", []*corev1.Pod{pod}, []*batchv1.Job{first}, at(100))
	if steps[0].do != finish {
		t.Errorf("with all Jobs the step is %s, want finish", steps[0].do)
	}
}

func TestPlanTreatsThePodsOfAWorkQueueAsIndependent(t *testing.T) {
	done, waiting := runningPod(0), admittedPod(50)
	waiting.Annotations[StartDelayAnnotation] = "1h"
	for _, pod := range []*corev1.Pod{done, waiting} {
		pod.Annotations[RunForAnnotation] = "10s"
	}
	steps := plan("job/q", []*corev1.Pod{done, waiting}, []*batchv1.Job{newJob("q", 2, 6, nil)}, at(60))
	if got := []action{steps[0].do, steps[1].do}; got[0] != finish || got[1] != wait {
		t.Errorf("steps = %v, want finish and wait", got)
	}
}

func TestBehaviourOf(t *testing.T) {
	cases := []struct {
		name        string
		annotations map[string]string
		want        behaviour
		wantErr     string
	}{
		{name: "nothing asked for"},
		{name: "everything", annotations: map[string]string{RunForAnnotation: "30s", ExitCodeAnnotation: "2", StartDelayAnnotation: "1m", StopDelayAnnotation: "2m"},
			want: behaviour{startDelay: time.Minute, stopDelay: new(2 * time.Minute), ends: true, runFor: 30 * time.Second, exitCode: 2}},
		{name: "not a duration", annotations: map[string]string{RunForAnnotation: "30"},
			wantErr: `annotation sim.muster.dev/run-for is "30", want a duration such as 30s`},
		{name: "a negative duration", annotations: map[string]string{StartDelayAnnotation: "-1s"},
			wantErr: `annotation sim.muster.dev/start-delay is "-1s", want a duration such as 30s`},
		{name: "an exit code out of range", annotations: map[string]string{ExitCodeAnnotation: "256"},
			wantErr: `annotation sim.muster.dev/exit-code is "256", want 0 to 255`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := behaviourOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}})
			if text := errorText(err); text != c.wantErr {
				t.Fatalf("error = %q, want %q", text, c.wantErr)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(behaviour{})); diff != "" {
				t.Errorf("behaviour (-want +got):\n%s", diff)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
