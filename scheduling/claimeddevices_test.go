package scheduling

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	testclock "k8s.io/utils/clock/testing"

	"github.com/muster-gpu/muster/workload"
)

// claiming has the pods of a job claim devices.
func claiming(claim corev1.PodResourceClaim) func(*workload.Job) {
	return func(j *workload.Job) { j.PodSets[0].Template.Spec.ResourceClaims = []corev1.PodResourceClaim{claim} }
}

// fourDevices are all that the node has.
var fourDevices = resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
	Name:    "gpus",
	Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 4},
}}}}

// deviceContest is a node with four devices, which the claim "taken" has for a pod that has
// gone. free takes them from it, as the claim controller does then.
func deviceContest(t *testing.T) (c *contest, free func()) {
	t.Helper()
	const driver = "gpu.example.com"
	taken := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "taken", UID: "taken", ResourceVersion: "1"}, Spec: fourDevices}
	taken.Status.Allocation = &resourceapi.AllocationResult{}
	taken.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "gone", UID: "gone"}}
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "devices", ResourceVersion: "1"},
		Spec:       resourceapi.ResourceSliceSpec{Driver: driver, NodeName: new("node-0"), Pool: resourceapi.ResourcePool{Name: "node-0", ResourceSliceCount: 1}},
	}
	for i := range 4 {
		device := fmt.Sprintf("gpu-%d", i)
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: device})
		taken.Status.Allocation.Devices.Results = append(taken.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: "gpus", Driver: driver, Pool: "node-0", Device: device,
		})
	}
	client := fake.NewClientset(
		&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}, slice, taken,
		&resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "four"}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: fourDevices}},
	)
	factory, fake := informers.NewSharedInformerFactory(client, 0), testclock.NewFakeClock(epoch0)
	var handle framework.Framework
	c = &contest{newStageIn(t.Context(), t, fake, client, factory, nil), t}
	c.clock = fake
	handle = c.cycle.sched.Profiles[corev1.DefaultSchedulerName]
	if err := c.cycle.planner.PlanClaims(c.ctx, handle); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	c.watched.AddNode(c.logger, flavored("node-0", "gpu", 8))
	allocated := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			found, err := handle.SharedDRAManager().ResourceClaims().ListAllAllocatedDevices()
			slices, _ := handle.SharedDRAManager().ResourceSlices().ListWithDeviceTaintRules()
			if err == nil && len(found) == want && len(slices) == 1 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d devices are allocated, want %d: %v", len(found), want, err)
			}
		}
	}
	allocated(4)
	return c, func() {
		t.Helper()
		if err := client.ResourceV1().ResourceClaims(namespace).Delete(c.ctx, "taken", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		allocated(0)
		c.claimsChanged()
	}
}

// The devices of a pod are taken back a moment after it has gone.
func TestAClaimWaitsUntilTheDevicesOfThoseThatHaveLeftAreFree(t *testing.T) {
	for name, test := range map[string]struct {
		freed bool
		want  State
	}{
		"they become free": {true, Admitting},
		"they stay taken":  {false, Pending},
	} {
		t.Run(name, func(t *testing.T) {
			c, free := deviceContest(t)
			c.policy("main", "", 8, lowerPriority)
			c.runs(one("low", 4, claiming(corev1.PodResourceClaim{Name: "gpus", ResourceClaimName: new("taken")})), 0)
			high := one("high", 4, claiming(corev1.PodResourceClaim{Name: "gpus", ResourceClaimTemplateName: new("four")}))
			c.submit(high, 1)
			c.pass()
			c.wantLeaving("low")
			c.wantState(high, Claimed)
			c.left("low-uid")
			c.pass()
			c.wantState(high, Claimed)
			if diff := cmp.Diff("the jobs that were stopped for it have left; it waits until their devices are free", c.why(high).Message); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
			if test.freed {
				free()
				other := one("other", 4, claiming(corev1.PodResourceClaim{Name: "gpus", ResourceClaimTemplateName: new("four")}))
				c.submit(other, 0)
				c.pass()
				c.wantState(other, Pending)
			}
			for range 4 {
				c.clock.Step(devicesFreed / 3)
				c.tick(Timing{StartTimeout: time.Hour})
				c.pass()
			}
			c.wantState(high, test.want)
			c.wantNoPhantoms()
		})
	}
}

// It says until then what it waits for.
func TestAJobIsTriedAgainWhenTheDevicesOfPodsThatHaveGoneAreFree(t *testing.T) {
	c, free := deviceContest(t)
	c.policy("main", "", 8, lowerPriority)
	j := one("next", 4, claiming(corev1.PodResourceClaim{Name: "gpus", ResourceClaimTemplateName: new("four")}))
	c.submit(j, 0)
	c.pass()
	c.wantState(j, Pending)
	if diff := cmp.Diff("no node with 4 free GPUs passes: 1 cannot allocate all claims; 4 devices are still allocated to pods that have gone", c.why(j).Message); diff != "" {
		t.Errorf("reason (-want +got):\n%s", diff)
	}
	free()
	c.pass()
	c.wantState(j, Admitting)
}
