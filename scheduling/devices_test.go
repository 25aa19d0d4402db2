package scheduling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// devicesBehind are extended resources behind which there are devices.
type devicesBehind struct {
	fwk.SharedDRAManager
	names []corev1.ResourceName
}

func (b devicesBehind) DeviceClassResolver() fwk.DeviceClassResolver { return b }

func (b devicesBehind) GetDeviceClass(name corev1.ResourceName) *resourceapi.DeviceClass {
	for _, known := range b.names {
		if known == name {
			return &resourceapi.DeviceClass{}
		}
	}
	return nil
}

func TestDevicesThatANodeDoesNotAdvertiseAreNotTooFew(t *testing.T) {
	s := testScene(t, 16, 8)
	s.devices = devicesBehind{names: []corev1.ResourceName{"nvidia.com/gpu"}}
	taken := amounts{"nvidia.com/gpu": 8, "example.com/nic": 1}
	for name, test := range map[string]struct {
		allocatable amounts
		over        amounts
	}{
		"none are advertised":    {amounts{}, amounts{"example.com/nic": 1}},
		"a node advertises four": {amounts{"nvidia.com/gpu": 4}, amounts{"nvidia.com/gpu": 4, "example.com/nic": 1}},
	} {
		r := &room{allocatable: test.allocatable, taken: amounts{}}
		r.taken.add(taken, 1)
		s.leaveOutDevices(r)
		if diff := cmp.Diff(test.over, r.over()); diff != "" {
			t.Errorf("%s: too little (-want +got):\n%s", name, diff)
		}
	}
	if !needsClaims(job("a", set("main", 0, 1, 4)), s.isDevice) {
		t.Error("a job that may get devices is not tried again when there are more")
	}
	if needsClaims(job("a", set("main", 0, 1, 0)), s.isDevice) {
		t.Error("a job without GPUs waits for devices")
	}
}
