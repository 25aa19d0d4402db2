package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement/inventory"
)

// gpuSlice are the GPUs of a node, one on each of the PCIe roots.
func gpuSlice(node string, roots ...string) *resourceapi.ResourceSlice {
	slice := makeSlice(node, len(roots))
	slice.Spec.Driver = gpu.Driver
	for i, root := range roots {
		slice.Spec.Devices[i].Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"resource.kubernetes.io/pcieRoot": {StringValue: &root},
			"resource.kubernetes.io/pciBusID": {StringValue: new(fmt.Sprint(i))},
		}
	}
	return slice
}

// allocated is a claim that has got some devices of a node, for a pod there.
func allocated(name, driver, node string, devices ...int) (*resourceapi.ResourceClaim, *v1.Pod) {
	pod := makePod(name, 0, on(node), sharing(name))
	claim := makeDeviceClaim(name, len(devices))
	claim.Status.Allocation = &resourceapi.AllocationResult{}
	for _, i := range devices {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: "gpus", Driver: driver, Pool: node, Device: fmt.Sprintf("gpu-%d", i),
		})
	}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	return claim, pod
}

// TestGPUsThatAreDevicesAreCounted: d0 has pairs of GPUs of which each first comes
// before the seconds, d1 those that follow each other, so that who has the first two GPUs
// of a node breaks both pairs of d0, and leaves one of d1.
func TestGPUsThatAreDevicesAreCounted(t *testing.T) {
	claims := func(n int, options ...podOption) *v1.Pod {
		return makePod(fmt.Sprintf("p%d", n), 0, append(options, claiming(fmt.Sprintf("gpus-%d", n)))...)
	}
	halves := map[string][]int{"d0": {0, 1}, "d1": {0, 1}}
	hostname := func(name string) podOption { return selecting(v1.LabelHostname, name) }
	tests := []struct {
		name        string
		enforcement Enforcement
		// taken are the GPUs of each node that others have, and holds pods that will get
		// some.
		taken map[string][]int
		holds []*v1.Pod
		gang  Gang
		want  string
	}{
		{"pods that claim GPUs go where there are enough", EnforceDRA, nil, nil, gangOf(class(claims(3), 2)), "d0 x1, d1 x1"},
		{"why they do not is told in numbers", EnforceDRA, halves, nil, gangOf(class(claims(3), 2)),
			"NoPlacement: 4 GPUs free, but no node has 3; 2 more GPUs are missing, on 2 nodes"},
		{"what was placed before is missing", EnforceDRA, map[string][]int{"d0": {0, 1}}, nil, gangOf(class(claims(3), 1), class(claims(4), 1)), `NoPlacement: pod set "p3" needs 1 pod of 3 GPUs; 6 GPUs are free, with room for none of them beside the other pod sets; 1 more GPU is missing, on one node`},
		{"more than any node has", EnforceDRA, nil, nil, gangOf(class(claims(8), 1)), "ExceedsCluster: needs 8 GPUs on one node; the largest node has 4"},
		{"a pair is found where Muster chooses", EnforceDRA, halves, nil, gangOf(class(claims(2), 1)), "d1 x1"},
		{"and not looked for where it does not", Predict, halves, nil, gangOf(class(claims(2), 1)), "d0 x1"},
		{"GPUs behind a resource are devices too", EnforceDRA, halves, nil, gangOf(class(makePod("p", 2), 1)), "d1 x1"},
		{"what a pod is planned to get is a pair, so that another one is left", EnforceDRA, map[string][]int{"d1": {0}}, nil,
			gangOf(class(claims(2, hostname("d0")), 1), class(makePod("p", 2), 1)), "d0 x1; d0 x1"},
		{"a hold that has got nothing yet will get a pair, too", EnforceDRA, map[string][]int{"d1": {0}}, []*v1.Pod{makePod("hold", 0, on("d0"), claiming("gpus-2"))},
			gangOf(class(makePod("p", 2), 1)), "d0 x1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			whole := makeDeviceClass()
			whole.Spec.ExtendedResourceName = new(string(gpuResource))
			objects := []runtime.Object{whole}
			published := inventory.NewSlices(inventory.NewProducts(nil))
			for _, slice := range []*resourceapi.ResourceSlice{gpuSlice("d0", "r0", "r1", "r0", "r1"), gpuSlice("d1", "r0", "r0", "r1", "r1")} {
				published.Replace(nil, slice)
				objects = append(objects, slice)
			}
			for _, n := range []int{2, 3, 4, 8} {
				objects = append(objects, makeDeviceTemplate(fmt.Sprintf("gpus-%d", n), n))
			}
			running, taken := tt.holds, 0
			for node, gpus := range tt.taken {
				claim, pod := allocated("on-"+node, gpu.Driver, node, gpus...)
				running, objects, taken = append(running, pod), append(objects, claim), taken+len(gpus)
			}
			c := newClaimCluster(t, objects, []*v1.Node{makeNode("d0", 0), makeNode("d1", 0), makeNode("n", 0)}, running...)
			c.await(t, func() bool {
				devices, err := c.planner.claims.devices.SharedDRAManager.ResourceClaims().ListAllAllocatedDevices()
				return err == nil && len(devices) == taken && c.planner.claims.isDevice(gpuResource)
			})
			c.planner.UseIslands(NewIslands(published, tt.enforcement, sets.New("gpu")))
			before := c.dump(t)
			assignment, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, tt.gang)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if why != nil {
				got = string(why.Class) + ": " + why.Message
			} else {
				var all []string
				for _, nodes := range assignment {
					all = append(all, use(nodes))
				}
				got = strings.Join(all, "; ")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("nodes, or why not (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, c.dump(t)); diff != "" {
				t.Errorf("the plan has left something (-before +after):\n%s", diff)
			}
		})
	}
}

// TestDevicesOfPodsThatAreAwayAreFree: d0 has four devices, which a claim of two pods has.
// Those of pods that have gone are free once they are given back, and not before.
func TestDevicesOfPodsThatAreAwayAreFree(t *testing.T) {
	const no = "NoPlacement: no node passes: 1 cannot allocate all claims"
	tests := []struct {
		name string
		// away are for a while, of whom those that are back are back sooner.
		away, back, gone []string
		want             string
		// after is what is planned, or said, when those that were away are back.
		after string
	}{
		{"while its pods are there", nil, nil, nil, no, no},
		{"while its pods are away", []string{"a", "b"}, nil, nil, "d0 x1", no},
		{"when one of them is back", []string{"a", "b"}, []string{"b"}, nil, no, no},
		{"while another pod has it too", []string{"a"}, nil, nil, no, no},
		{"while another pod had it that has gone", []string{"a"}, nil, []string{"b"}, "d0 x1", no},
		{"when its pods have gone", nil, nil, []string{"a", "b"}, no + "; 4 devices are still allocated to pods that have gone", no + "; 4 devices are still allocated to pods that have gone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			claim, a := allocated("a", deviceDriver, "d0", 0, 1, 2, 3)
			b := makePod("b", 0, on("d0"), sharing("a"))
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: b.Name, UID: b.UID})
			running := slices.DeleteFunc([]*v1.Pod{a, b}, func(p *v1.Pod) bool { return slices.Contains(tt.gone, p.Name) })
			c := newClaimCluster(t, []runtime.Object{makeDeviceClass(), makeSlice("d0", 4), makeDeviceTemplate("gpus-4", 4), claim}, []*v1.Node{makeNode("d0", 0)}, running...)
			c.await(t, func() bool {
				allocated, err := c.planner.claims.devices.SharedDRAManager.ResourceClaims().ListAllAllocatedDevices()
				return err == nil && len(allocated) == 4
			})
			w, err := c.planner.Without(c.planner.newTrial(c.ctx, c.fw, c.snap, nil).logger, c.snap)
			if err != nil {
				t.Fatal(err)
			}
			plan := func() string {
				assignment, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gangOf(class(makePod("p", 0, claiming("gpus-4")), 1)))
				switch {
				case err != nil:
					t.Fatal(err)
				case why != nil:
					return string(why.Class) + ": " + why.Message
				}
				return use(assignment[0])
			}
			for _, pod := range running {
				if slices.Contains(tt.away, pod.Name) {
					if err := w.Remove([]*v1.Pod{pod}); err != nil {
						t.Fatal(err)
					}
				}
			}
			got := plan()
			if len(tt.back) > 0 {
				back := slices.DeleteFunc(slices.Clone(running), func(p *v1.Pod) bool { return !slices.Contains(tt.back, p.Name) })
				if err := w.Restore(back); err != nil {
					t.Fatal(err)
				}
				got = plan()
			}
			behind, err := c.planner.claims.devices.tracker.leftBehind()
			if all := len(tt.gone) == 2; err != nil || (behind > 0) != all {
				t.Errorf("%d devices are left behind, all pods have gone: %v (%v)", behind, all, err)
			}
			if err := w.End(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tt.want, tt.after}, []string{got, plan()}); diff != "" {
				t.Errorf("nodes, or why not, and when they are back (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPodSetsInOneRackGetNoDeviceTwice: d0 has four devices, of which two pods of two sets
// want as many each.
func TestPodSetsInOneRackGetNoDeviceTwice(t *testing.T) {
	for devices, fits := range map[int]bool{2: true, 3: false} {
		template := fmt.Sprintf("gpus-%d", devices)
		for name, options := range map[string][]podOption{"by choice": {claiming(template)}, "domain by domain": {claiming(template), near("a", "rack")}} {
			t.Run(fmt.Sprintf("%s, %d each", name, devices), func(t *testing.T) {
				node := makeNode("d0", 0, nodeLabel("block", "x"), nodeLabel("rack", "1"))
				c := newClaimCluster(t, []runtime.Object{makeDeviceClass(), makeSlice("d0", 4), makeDeviceTemplate(template, devices)}, []*v1.Node{node})
				asked := requiring("rack")
				gang := gangOf(close(class(makePod("a", 0, options...), 1), asked), close(class(makePod("b", 0, claiming(template)), 1), asked))
				plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang)
				if err != nil || (plan != nil) != fits {
					t.Errorf("%v, %v, %v", plan, why, err)
				}
			})
		}
	}
}
