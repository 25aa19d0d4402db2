package simulator

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// action is what the simulator does to a pod next.
type action string

const (
	// wait: nothing yet.
	wait action = "wait"
	// admit: the node accepts the pod (ContainerCreating), or refuses it.
	admit action = "admit"
	// run: the containers begin to run.
	run action = "run"
	// finish: the containers have ended; the pod is Succeeded or Failed.
	finish action = "finish"
	// remove: the pod has ended and is deleted; it may go from the API.
	remove action = "remove"
)

const (
	// stopDelay is how long a container takes to end after TERM, or its grace
	// period where that is shorter.
	stopDelay = time.Second
	// exitTerminated is the exit code of a process that TERM ended.
	exitTerminated = 128 + 15
)

// decision is the next step of one pod. With wait, again is when to look
// again; zero means on the next change only.
type decision struct {
	do       action
	exitCode int32
	again    time.Time
}

// decide says what to do next with a pod that is bound to a simulated node.
func decide(pod *corev1.Pod, b behaviour, ranks []rank, expected int, now time.Time) decision {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	started := timeOf(pod, StartedAtAnnotation)
	switch {
	case ended && pod.DeletionTimestamp != nil && graceLeft(pod):
		return decision{do: remove}
	case ended:
		return decision{do: wait}
	case pod.DeletionTimestamp != nil:
		return decideStop(pod, b, started, now)
	case pod.Status.StartTime == nil:
		return decision{do: admit}
	case started.IsZero():
		return reached(run, timeOf(pod, AdmittedAtAnnotation).Add(b.startDelay), now)
	case !b.ends:
		return decision{do: wait}
	}
	done, advancing := progress(ranks, expected, now)
	complete := len(ranks) >= expected && (advancing || done > 0)
	switch {
	case complete && done >= b.runFor:
		return decision{do: finish, exitCode: b.exitCode}
	case advancing:
		return decision{do: wait, again: now.Add(b.runFor - done)}
	default:
		return decision{do: wait}
	}
}

// decideStop ends a pod that is being deleted. One that never ran has nothing
// to wait for.
func decideStop(pod *corev1.Pod, b behaviour, started, now time.Time) decision {
	if started.IsZero() {
		return decision{do: finish, exitCode: exitTerminated}
	}
	delay := stopDelay
	if pod.DeletionGracePeriodSeconds != nil {
		delay = min(delay, time.Duration(*pod.DeletionGracePeriodSeconds)*time.Second)
	}
	if b.stopDelay != nil {
		delay = *b.stopDelay
	}
	d := reached(finish, deletionRequested(pod).Add(delay), now)
	d.exitCode = exitTerminated
	return d
}

// graceLeft says whether the API still waits for the node before it lets the
// pod go. With a grace period of zero only finalizers keep it.
func graceLeft(pod *corev1.Pod) bool {
	return pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds > 0
}

// reached does an action at a time, or waits for it.
func reached(do action, at, now time.Time) decision {
	if now.Before(at) {
		return decision{do: wait, again: at}
	}
	return decision{do: do}
}
