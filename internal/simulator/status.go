package simulator

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podPatch is a merge patch of a pod's status and the simulator's annotations,
// in one write. It carries the version on which it was decided: if the pod has
// changed since, or is another one of the same name, the write is refused.
type podPatch struct {
	Metadata patchMetadata    `json:"metadata"`
	Status   corev1.PodStatus `json:"status"`
}

type patchMetadata struct {
	UID             types.UID         `json:"uid"`
	ResourceVersion string            `json:"resourceVersion"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

func (p podPatch) encode() ([]byte, error) {
	content, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encoding the status of a pod: %w", err)
	}
	return content, nil
}

func newPatch(pod *corev1.Pod, annotations map[string]string) podPatch {
	return podPatch{
		Metadata: patchMetadata{UID: pod.UID, ResourceVersion: pod.ResourceVersion, Annotations: annotations},
		Status:   *pod.Status.DeepCopy(),
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// admitted is the pod's status once its node has accepted it.
func admitted(pod *corev1.Pod, gpus []int, now time.Time) podPatch {
	annotations := map[string]string{AdmittedAtAnnotation: stamp(now)}
	if len(gpus) > 0 {
		annotations[GPUsAnnotation] = formatIndices(gpus)
	}
	p := newPatch(pod, annotations)
	p.Status.Phase = corev1.PodPending
	p.Status.StartTime = &metav1.Time{Time: now}
	setCondition(&p.Status, corev1.PodReadyToStartContainers, corev1.ConditionFalse, "", now)
	setCondition(&p.Status, corev1.PodInitialized, corev1.ConditionTrue, "", now)
	setCondition(&p.Status, corev1.ContainersReady, corev1.ConditionFalse, "ContainersNotReady", now)
	setCondition(&p.Status, corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady", now)
	setContainers(pod, &p.Status, func() corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	})
	return p
}

// The reasons of a pod that its node refuses. The first is the kubelet's.
const (
	reasonAdmission  = "UnexpectedAdmissionError"
	reasonSimulation = "InvalidSimulation"
)

// refused is the status of a pod that its node does not take, as the kubelet
// writes it.
func refused(pod *corev1.Pod, reason string, cause error, now time.Time) podPatch {
	p := newPatch(pod, map[string]string{FinishedAtAnnotation: stamp(now)})
	p.Status.Phase = corev1.PodFailed
	p.Status.StartTime = &metav1.Time{Time: now}
	p.Status.Reason = reason
	p.Status.Message = "Pod was rejected: " + cause.Error()
	return p
}

// running is the pod's status once its containers run.
func running(pod *corev1.Pod, hostIP, podIP string, now time.Time) podPatch {
	p := newPatch(pod, map[string]string{StartedAtAnnotation: stamp(now)})
	p.Status.Phase = corev1.PodRunning
	p.Status.HostIP, p.Status.HostIPs = hostIP, []corev1.HostIP{{IP: hostIP}}
	p.Status.PodIP, p.Status.PodIPs = podIP, []corev1.PodIP{{IP: podIP}}
	for _, condition := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.ContainersReady, corev1.PodReady} {
		setCondition(&p.Status, condition, corev1.ConditionTrue, "", now)
	}
	setContainers(pod, &p.Status, func() corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: now}}}
	})
	return p
}

// finished is the pod's status once its containers have ended with exitCode.
func finished(pod *corev1.Pod, exitCode int32, now time.Time) podPatch {
	p := newPatch(pod, map[string]string{FinishedAtAnnotation: stamp(now)})
	phase, reason := corev1.PodSucceeded, "Completed"
	conditionReason := "PodCompleted"
	if exitCode != 0 {
		phase, reason, conditionReason = corev1.PodFailed, "Error", "PodFailed"
	}
	p.Status.Phase = phase
	if p.Status.StartTime == nil {
		p.Status.StartTime = &metav1.Time{Time: now}
	}
	setCondition(&p.Status, corev1.PodReadyToStartContainers, corev1.ConditionFalse, "", now)
	setCondition(&p.Status, corev1.ContainersReady, corev1.ConditionFalse, conditionReason, now)
	setCondition(&p.Status, corev1.PodReady, corev1.ConditionFalse, conditionReason, now)
	started := timeOf(pod, StartedAtAnnotation)
	if started.IsZero() {
		started = now
	}
	setContainers(pod, &p.Status, func() corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: exitCode, Reason: reason, StartedAt: metav1.Time{Time: started}, FinishedAt: metav1.Time{Time: now},
		}}
	})
	return p
}

// setContainers writes one status for each container. Init containers ended
// well before the others began to run, and keep that status; sidecars share
// the others' fate.
func setContainers(pod *corev1.Pod, status *corev1.PodStatus, state func() corev1.ContainerState) {
	status.ContainerStatuses = nil
	for i := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(pod, &pod.Spec.Containers[i], state()))
	}
	status.InitContainerStatuses = nil
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		if i < len(pod.Status.InitContainerStatuses) && pod.Status.InitContainerStatuses[i].State.Terminated != nil {
			status.InitContainerStatuses = append(status.InitContainerStatuses, pod.Status.InitContainerStatuses[i])
			continue
		}
		current := state()
		sidecar := container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
		if current.Running != nil && !sidecar {
			current = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: "Completed", StartedAt: current.Running.StartedAt, FinishedAt: current.Running.StartedAt,
			}}
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, containerStatus(pod, container, current))
	}
}

func containerStatus(pod *corev1.Pod, container *corev1.Container, state corev1.ContainerState) corev1.ContainerStatus {
	isRunning := state.Running != nil
	s := corev1.ContainerStatus{
		Name: container.Name, Image: container.Image, State: state, Ready: isRunning, Started: &isRunning,
	}
	if state.Waiting == nil {
		s.ImageID = container.Image
		s.ContainerID = fmt.Sprintf("simulated://%s/%s", pod.UID, container.Name)
	}
	return s
}

// setCondition keeps the conditions of others, such as PodScheduled, and the
// transition time of one that does not change.
func setCondition(status *corev1.PodStatus, kind corev1.PodConditionType, value corev1.ConditionStatus, reason string, now time.Time) {
	condition := corev1.PodCondition{Type: kind, Status: value, Reason: reason, LastTransitionTime: metav1.Time{Time: now}}
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		status.Conditions = append(status.Conditions, condition)
		return
	}
	if status.Conditions[i].Status == value {
		condition.LastTransitionTime = status.Conditions[i].LastTransitionTime
	}
	status.Conditions[i] = condition
}
