package simulator

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/agent/reader/scripted"
)

// Annotations on a pod template that say how its pods behave.
const (
	// RunForAnnotation is how much progress the gang must make until the pod
	// ends, as a Go duration ("30s"). Without it the pod runs for ever.
	RunForAnnotation = "sim.muster.dev/run-for"
	// ExitCodeAnnotation is the exit code with which the pod ends ("0"). A pod
	// that has it and no run-for ends as soon as its gang is complete.
	ExitCodeAnnotation = "sim.muster.dev/exit-code"
	// StartDelayAnnotation is the time from being bound to running ("0s").
	StartDelayAnnotation = "sim.muster.dev/start-delay"
	// StopDelayAnnotation is the time from the request to delete a running pod
	// to its end, also beyond its grace period, as where a node is slow ("1s",
	// or the grace period where that is shorter).
	StopDelayAnnotation = "sim.muster.dev/stop-delay"
	// GPUActivityAnnotation is what the pod does with its GPUs while it runs: busy
	// (the default), idle, idle-after=60s, stalled, ghost, hang or lost; see package
	// agent/reader/scripted. It may be changed while the pod runs.
	GPUActivityAnnotation = "sim.muster.dev/gpu-activity"
)

// Annotations that the simulator writes on pods. The times are RFC 3339 with
// nanoseconds: a status field has whole seconds only.
const (
	// GPUsAnnotation lists the GPU indices that the pod holds ("0,1,2,3").
	GPUsAnnotation = "sim.muster.dev/gpus"
	// AdmittedAtAnnotation, StartedAtAnnotation and FinishedAtAnnotation are
	// when the pod was accepted, began to run, and ended.
	AdmittedAtAnnotation = "sim.muster.dev/admitted-at"
	StartedAtAnnotation  = "sim.muster.dev/started-at"
	FinishedAtAnnotation = "sim.muster.dev/finished-at"
)

// behaviour is what a pod's annotations ask for.
type behaviour struct {
	startDelay time.Duration
	// stopDelay is nil where nothing is said of it.
	stopDelay *time.Duration
	// ends says whether the pod ever ends by itself, after runFor.
	ends     bool
	runFor   time.Duration
	exitCode int32
}

// behaviourOf reads a pod's annotations. An error names the annotation.
func behaviourOf(pod *corev1.Pod) (behaviour, error) {
	var b behaviour
	var err error
	if value, ok := pod.Annotations[StartDelayAnnotation]; ok {
		if b.startDelay, err = parseDuration(StartDelayAnnotation, value); err != nil {
			return behaviour{}, err
		}
	}
	if value, ok := pod.Annotations[StopDelayAnnotation]; ok {
		delay, err := parseDuration(StopDelayAnnotation, value)
		if err != nil {
			return behaviour{}, err
		}
		b.stopDelay = &delay
	}
	if value, ok := pod.Annotations[GPUActivityAnnotation]; ok {
		if _, err := scripted.ParseActivity(value); err != nil {
			return behaviour{}, fmt.Errorf("annotation %s: %w", GPUActivityAnnotation, err)
		}
	}
	if value, ok := pod.Annotations[RunForAnnotation]; ok {
		b.ends = true
		if b.runFor, err = parseDuration(RunForAnnotation, value); err != nil {
			return behaviour{}, err
		}
	}
	if value, ok := pod.Annotations[ExitCodeAnnotation]; ok {
		b.ends = true
		code, err := strconv.ParseUint(value, 10, 8)
		if err != nil {
			return behaviour{}, fmt.Errorf("annotation %s is %q, want 0 to 255", ExitCodeAnnotation, value)
		}
		b.exitCode = int32(code)
	}
	return b, nil
}

func parseDuration(annotation, value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("annotation %s is %q, want a duration such as 30s", annotation, value)
	}
	return d, nil
}

// timeOf reads a time that the simulator wrote; zero when it is not there.
func timeOf(pod *corev1.Pod, annotation string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, pod.Annotations[annotation])
	if err != nil {
		return time.Time{}
	}
	return t
}

// formatIndices and parseIndices are the form of GPUsAnnotation.
func formatIndices(indices []int) string {
	parts := make([]string, len(indices))
	for i, index := range indices {
		parts[i] = strconv.Itoa(index)
	}
	return strings.Join(parts, ",")
}

func parseIndices(value string) ([]int, error) {
	if value == "" {
		return nil, nil
	}
	var indices []int
	for part := range strings.SplitSeq(value, ",") {
		index, err := strconv.Atoi(part)
		if err != nil || index < 0 {
			return nil, fmt.Errorf("annotation %s is %q, want GPU indices such as 0,1", GPUsAnnotation, value)
		}
		indices = append(indices, index)
	}
	return indices, nil
}

// GPUs are the indices of the GPUs that a pod holds on its node.
func GPUs(pod *corev1.Pod) ([]int, error) { return parseIndices(pod.Annotations[GPUsAnnotation]) }
