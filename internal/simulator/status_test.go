package simulator

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// after is the pod as the API shows it once a patch is written.
func after(pod *corev1.Pod, p podPatch) *corev1.Pod {
	next := pod.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	for key, value := range p.Metadata.Annotations {
		next.Annotations[key] = value
	}
	next.Status = p.Status
	return next
}

// summary is what kubectl shows of a status, in one line each.
func summary(status corev1.PodStatus) []string {
	lines := []string{string(status.Phase)}
	for _, condition := range status.Conditions {
		if condition.Status == corev1.ConditionTrue {
			lines = append(lines, string(condition.Type))
		}
	}
	for _, containers := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for _, c := range containers {
			state, err := json.Marshal(map[string]any{
				"waiting": c.State.Waiting != nil, "running": c.State.Running != nil, "ended": c.State.Terminated != nil,
			})
			if err != nil {
				panic(err)
			}
			line := c.Name + " " + string(state)
			if c.State.Terminated != nil {
				line = c.Name + " " + c.State.Terminated.Reason
			} else if c.State.Running != nil {
				line = c.Name + " running"
			} else if c.State.Waiting != nil {
				line = c.Name + " " + c.State.Waiting.Reason
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func TestStatusThroughALife(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", ResourceVersion: "7"},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
			Containers:     []corev1.Container{{Name: "main"}},
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
	}
	accepted := after(pod, admitted(pod, []int{0, 1}, at(0)))
	alive := after(accepted, running(accepted, "10.0.0.1", "10.0.0.2", at(1)))
	failed := after(alive, finished(alive, 3, at(2)))
	done := after(alive, finished(alive, 0, at(2)))
	cases := []struct {
		name string
		pod  *corev1.Pod
		want []string
	}{
		{name: "admitted", pod: accepted, want: []string{"Pending", "PodScheduled", "Initialized", "init ContainerCreating", "sidecar ContainerCreating", "main ContainerCreating"}},
		{name: "running", pod: alive, want: []string{"Running", "PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready", "init Completed", "sidecar running", "main running"}},
		{name: "failed", pod: failed, want: []string{"Failed", "PodScheduled", "Initialized", "init Completed", "sidecar Error", "main Error"}},
		{name: "succeeded", pod: done, want: []string{"Succeeded", "PodScheduled", "Initialized", "init Completed", "sidecar Completed", "main Completed"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, summary(c.pod.Status)); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
	if got := failed.Annotations[GPUsAnnotation]; got != "0,1" {
		t.Errorf("GPUs = %q, want 0,1", got)
	}
	if got := timeOf(failed, StartedAtAnnotation); !got.Equal(at(1)) {
		t.Errorf("started at %v, want %v", got, at(1))
	}
	if code := failed.Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
}

func TestAPatchIsBoundToTheVersionItWasDecidedOn(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", ResourceVersion: "7"}}
	content, err := refused(pod, reasonAdmission, errors.New("no GPUs"), at(0)).encode()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Metadata struct{ UID, ResourceVersion string }
		Status   struct{ Phase, Reason, Message string }
	}
	if err := json.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	want := got
	want.Metadata.UID, want.Metadata.ResourceVersion = "u", "7"
	want.Status.Phase, want.Status.Reason, want.Status.Message = "Failed", "UnexpectedAdmissionError", "Pod was rejected: no GPUs"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}
