package scheduling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-gpu/muster/placement"
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
}

// TestJobsAreTriedAgainWhenThereAreDevices also where there was no class for them when
// the jobs came.
func TestJobsAreTriedAgainWhenThereAreDevices(t *testing.T) {
	for name, test := range map[string]struct {
		gpus   int64
		behind corev1.ResourceName
		wait   waiting
		want   bool
	}{
		"nodes that advertise too few":          {4, "nvidia.com/gpu", forGPUs, true},
		"nodes that pass too few":               {4, "nvidia.com/gpu", forRoom, true},
		"devices of another kind":               {4, "example.com/nic", forGPUs, false},
		"a job without GPUs has none to expect": {0, "nvidia.com/gpu", forRoom, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 16, 2)
			b := s.entry(s.pending(job("a", set("main", 0, 1, test.gpus)))).spot.bucket
			c := cure{wait: test.wait, queue: "main"}
			if test.wait == forGPUs {
				c.lacks = []*placement.Lack{{Pods: 1, Bite: placement.Bite{Resource: "nvidia.com/gpu", PerPod: test.gpus}}}
			}
			s.waits.put(b, c, s.clock.Now())
			s.devices = devicesBehind{names: []corev1.ResourceName{test.behind}}
			s.claimsChanged()
			if got := b.cure.wait == nothing; got != test.want {
				t.Errorf("it is due: %v, want %v", got, test.want)
			}
		})
	}
}

func TestDevicesMayBeMoreThanTheLargestNodeAdvertises(t *testing.T) {
	s := testScene(t, 16)
	s.watched.AddNode(s.logger, node("node-0", 2))
	e := s.entry(s.pending(job("a", set("main", 0, 1, 4))))
	if s.lastingly(e) == nil {
		t.Error("a pod that is larger than any node is not told so")
	}
	s.devices = devicesBehind{names: []corev1.ResourceName{"nvidia.com/gpu"}}
	if why := s.lastingly(e); why != nil {
		t.Errorf("nodes that advertise none have devices, and it is told %q", why.Message)
	}
}
