package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	gpuapi "github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/simulator"
	"github.com/muster-gpu/muster/workload"
)

// choosing is a scheduler that chooses the devices of pods.
const choosing = `
apiVersion: config.muster.dev/v1alpha1
kind: SchedulerConfiguration
profiles: [muster, default-scheduler]
islands: {enforcement: dra}
`

// TestDevices tells stories of pods whose GPUs are devices (dynamic resource
// allocation), on a sandbox of four nodes with eight cards each, of which each two
// share a PCIe root.
func TestDevices(t *testing.T) {
	config := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(config, []byte(choosing), 0o600); err != nil {
		t.Fatal(err)
	}
	c := up(t, "devices", func(o *sandbox.Options) { o.Config, o.Devices, o.GPUProduct = config, true, "NVIDIA-L40S" })
	tellAll(t, c, "devices", batchJobs, []story[batchTeam]{
		{"a Job whose pods claim GPUs is charged for them, runs whole, and frees them when it ends", claimedRuns},
		{"a Job whose pods claim more GPUs than nodes have free waits with the numbers, and runs when there is room", claimedWaits},
		{"a Job whose pods claim GPUs is over quota by what they claim", claimedOverQuota},
		{"a Job whose GPUs are devices behind nvidia.com/gpu is charged for them and runs whole", behindResource},
		{"pods get GPUs that share PCIe roots, and break no pair that they need not", closeDevices},
		{"a pod that claims GPUs and names no queue goes to the default one", claimedDefault},
		{"a pod that claims GPUs runs without a queue where there is no default one", claimedUnqueued},
		{"a Job of higher priority gets the devices of one that is stopped for it", claimedPreempts},
		{"a killed scheduler charges claimed GPUs once, and gives none of them away", claimedSchedulerKilled},
	})
}

// claimTemplate creates a ResourceClaimTemplate of so many GPUs, and returns its name.
func (tm team) claimTemplate(t *testing.T, gpus int64) string {
	t.Helper()
	name := fmt.Sprintf("gpus-%d", gpus)
	tm.make(t, &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: name}, Spec: resourceapi.ResourceClaimTemplateSpec{
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpus", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: gpuapi.Driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: gpus},
		}}}},
	}})
	return name
}

// claiming has pods get their GPUs by a template of claims.
func claiming(spec *corev1.PodSpec, template string) {
	spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: &template}}
	spec.Containers[0].Resources = corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpus"}}}
}

// createClaiming creates a Job of pods that claim GPUs.
func (tm batchTeam) createClaiming(t *testing.T, name, template string, pods int32) *batchv1.Job {
	t.Helper()
	job := tm.claimingJob(name, template, pods)
	tm.make(t, job)
	return job
}

func (tm batchTeam) claimingJob(name, template string, pods int32) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: name, Labels: map[string]string{workload.QueueLabel: "q"}}, Spec: jobSpec(pods, 0)}
	claiming(&job.Spec.Template.Spec, template)
	return job
}

// paired checks that each pod has so many GPUs, of which each two are those of one PCIe
// root, and that none has those of another.
func (tm team) paired(t *testing.T, pods []corev1.Pod, gpus int) {
	t.Helper()
	holders := map[string]string{}
	for i := range pods {
		indices, err := simulator.GPUs(&pods[i])
		if err != nil || len(indices) != gpus {
			t.Errorf("%s has GPUs %v, want %d (%v)", pods[i].Name, indices, gpus, err)
		}
		has := map[int]bool{}
		for _, index := range indices {
			has[index] = true
			at := fmt.Sprintf("GPU %d of %s", index, pods[i].Spec.NodeName)
			if other, taken := holders[at]; taken {
				t.Errorf("%s is %s's and %s's", at, other, pods[i].Name)
			}
			holders[at] = pods[i].Name
		}
		for index := range has {
			if !has[index^1] {
				t.Errorf("%s has GPUs %v, of which %d is without its pair", pods[i].Name, indices, index)
			}
		}
	}
}

func claimedRuns(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 16)
	tm.createClaiming(t, "train", tm.claimTemplate(t, 4), 4)
	tm.paired(t, tm.runs(t, "train", 4), 4)
	tm.usage(t, "q", 16, 1, 0)
	tm.end(t, "train")
	tm.usage(t, "q", 0, 0, 0)
	eventually(t, "no device to be allocated", func(ctx context.Context) error {
		var claims resourceapi.ResourceClaimList
		if err := tm.client.List(ctx, &claims); err != nil {
			return err
		}
		for _, claim := range claims.Items {
			if claim.Status.Allocation != nil {
				return fmt.Errorf("ResourceClaim %s has %v", claim.Name, claim.Status.Allocation.Devices.Results)
			}
		}
		return nil
	})
}

func claimedWaits(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 64)
	first := tm.createClaiming(t, "first", tm.claimTemplate(t, 6), 4)
	tm.paired(t, tm.runs(t, "first", 4), 6)
	tm.createClaiming(t, "second", tm.claimTemplate(t, 4), 2)
	tm.waits(t, "second", "NoPlacement", "8 GPUs free, but no node has 4; 4 more GPUs are missing, on 2 nodes")
	tm.usage(t, "q", 24, 1, 1)
	tm.createClaiming(t, "small", tm.claimTemplate(t, 2), 4)
	tm.paired(t, tm.runs(t, "small", 4), 2)
	tm.remove(t, first)
	tm.paired(t, tm.runs(t, "second", 2), 4)
	tm.usage(t, "q", 16, 2, 0)
}

func claimedOverQuota(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 8)
	four := tm.claimTemplate(t, 4)
	first := tm.createClaiming(t, "first", four, 2)
	tm.runs(t, "first", 2)
	tm.createClaiming(t, "second", four, 1)
	tm.waits(t, "second", "WaitingForQuota", "needs 4 GPUs in queue q, 0 of 8 free")
	tm.remove(t, first)
	tm.runs(t, "second", 1)
	tm.usage(t, "q", 4, 1, 0)
}

func behindResource(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 32)
	tm.create(t, "train", "q", 4, 6)
	tm.paired(t, tm.runs(t, "train", 4), 6)
	tm.usage(t, "q", 24, 1, 0)
	tm.create(t, "wide", "q", 2, 4)
	tm.waits(t, "wide", "NoPlacement", "8 GPUs free, but no node has 4; 4 more GPUs are missing, on 2 nodes")
	tm.end(t, "train")
	tm.paired(t, tm.runs(t, "wide", 2), 4)
	tm.usage(t, "q", 8, 1, 0)
}

// closeDevices has single GPUs taken first: of the free ones those that come first
// would be of two PCIe roots.
func closeDevices(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 32)
	on := func(pod *corev1.Pod) *corev1.Pod {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-2"}
		pod.Labels = map[string]string{workload.QueueLabel: "q"}
		return pod
	}
	gpusOf := func(pod *corev1.Pod) []int {
		tm.make(t, pod)
		tm.started(t, pod)
		indices, err := simulator.GPUs(pod)
		if err != nil {
			t.Fatal(err)
		}
		return indices
	}
	one, two, four := on(tm.alone("one", 1, nil, nil)), on(tm.alone("two", 0, nil, nil)), on(tm.alone("four", 4, nil, nil))
	claiming(&two.Spec, tm.claimTemplate(t, 2))
	got := [][]int{gpusOf(one), gpusOf(two), gpusOf(four), gpusOf(on(tm.alone("last", 1, nil, nil)))}
	if diff := cmp.Diff([][]int{{0}, {2, 3}, {4, 5, 6, 7}, {1}}, got); diff != "" {
		t.Errorf("GPUs of one pod after the other (-want +got):\n%s", diff)
	}
}

func claimedDefault(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "default", 8)
	pod := tm.alone("pod", 0, nil, nil)
	pod.Spec.SchedulerName = "muster"
	claiming(&pod.Spec, tm.claimTemplate(t, 8))
	tm.make(t, pod)
	tm.started(t, pod)
	tm.usage(t, "default", 8, 1, 0)
}

func claimedUnqueued(t *testing.T, tm batchTeam) {
	pod := tm.alone("pod", 0, nil, nil)
	pod.Spec.SchedulerName = "muster"
	claiming(&pod.Spec, tm.claimTemplate(t, 8))
	tm.make(t, pod)
	tm.started(t, pod)
	eventually(t, "its GPUs to be told as unmanaged", func(context.Context) error {
		if want := fmt.Sprintf("muster_unmanaged_gpus{namespace=%q,reason=\"no-queue\"} 8", tm.namespace); !strings.Contains(tm.metrics(t), want) {
			return fmt.Errorf("there is no %s", want)
		}
		return nil
	})
}

func claimedPreempts(t *testing.T, tm batchTeam) {
	tm.make(t, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent-devices"}, Value: 100})
	tm.preemptingQueue(t, 32)
	eight := tm.claimTemplate(t, 8)
	tm.createClaiming(t, "victim", eight, 4)
	tm.runs(t, "victim", 4)
	urgent := tm.claimingJob("urgent", eight, 2)
	urgent.Labels["kueue.x-k8s.io/priority-class"] = "urgent-devices"
	tm.make(t, urgent)
	tm.paired(t, tm.runs(t, "urgent", 2), 8)
	tm.waits(t, "victim", "WaitingForQuota", "needs 32 GPUs")
	tm.usage(t, "q", 16, 1, 1)
	tm.end(t, "urgent")
	tm.paired(t, tm.runs(t, "victim", 4), 8)
}

func claimedSchedulerKilled(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 64)
	four := tm.claimTemplate(t, 4)
	tm.createClaiming(t, "first", four, 4)
	before := tm.runs(t, "first", 4)
	tm.kill(t, "muster-scheduler")
	tm.createClaiming(t, "second", four, 4)
	tm.restart(t, "muster-scheduler")
	after := append(tm.runs(t, "first", 4), tm.runs(t, "second", 4)...)
	tm.paired(t, after, 4)
	for i := range before {
		if before[i].UID != after[i].UID {
			t.Errorf("%s was made anew", before[i].Name)
		}
	}
	tm.usage(t, "q", 32, 2, 0)
}
