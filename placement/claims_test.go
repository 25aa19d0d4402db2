package placement

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
)

// zonedNodes are nodes named by zone and number, with 8 GPUs each.
func zonedNodes(names ...string) []*v1.Node {
	var nodes []*v1.Node
	for _, name := range names {
		nodes = append(nodes, makeNode(name, 8, nodeLabel("zone", name[:1])))
	}
	return nodes
}

func newClaimCluster(t *testing.T, objects []runtime.Object, nodes []*v1.Node, running ...*v1.Pod) *cluster {
	t.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	t.Cleanup(cancel)
	return newClusterOf(ctx, t, objects, nodes, running)
}

func TestPlanClaims(t *testing.T) {
	csi := func(driver string, limit int32, nodes []*v1.Node, keys ...string) (objects []runtime.Object) {
		for _, node := range nodes {
			objects = append(objects, makeCSINode(node.Name, driver, limit, keys...))
		}
		return objects
	}
	slicesOf := func(devices int, nodes []*v1.Node) []runtime.Object {
		objects := []runtime.Object{makeDeviceClass()}
		for _, node := range nodes {
			objects = append(objects, makeSlice(node.Name, devices))
		}
		return objects
	}
	four := zonedNodes("a0", "a1", "b0", "b1")
	for _, test := range []struct {
		name    string
		objects []runtime.Object
		nodes   []*v1.Node
		running []*v1.Pod
		gang    Gang
		want    []string
		why     string
	}{
		{
			name:    "volumes of the pods' own are used up one by one",
			objects: []runtime.Object{makeStorageClass("disk", ""), makeVolume("v0", "disk", "zone", "a"), makeVolume("v1", "disk", "zone", "b"), makeVolume("v2", "disk", "zone", "b")},
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 1, scratch("disk")), 3)),
			want:    []string{"a0 x1, b0 x2"},
		},
		{
			name:    "too few volumes for the pods' own",
			objects: []runtime.Object{makeStorageClass("disk", ""), makeVolume("v0", "disk", "zone", "a"), makeVolume("v1", "disk", "zone", "b")},
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 1, scratch("disk")), 3)),
			why:     "finds nodes for 2 of 3 pods; for the rest no node with a free GPU passes: 4 node(s) didn't find available persistent volumes to bind",
		},
		{
			name:    "volumes are provisioned where the class allows",
			objects: []runtime.Object{makeStorageClass("disk", "disk.example.com", allowing("zone", "b"))},
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 8, scratch("disk")), 2)),
			want:    []string{"b0 x1, b1 x1"},
		},
		{
			name:    "the default class is that of volumes that name none",
			objects: []runtime.Object{makeStorageClass("disk", "disk.example.com", allowing("zone", "b"), byDefault), makeStorageClass("other", "other.example.com")},
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 8, scratch("")), 1)),
			want:    []string{"b0 x1"},
		},
		{
			name:    "volumes that do not wait for their pod are where their class allows",
			objects: []runtime.Object{makeStorageClass("disk", "disk.example.com", immediate, allowing("zone", "b"))},
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 8, scratch("disk")), 3)),
			why:     "finds nodes for 2 of 3 pods; for the rest no node with 8 free GPUs passes: 2 node(s) didn't match PersistentVolume's node affinity; 2 others have fewer",
		},
		{
			name:    "a class that does not exist",
			objects: []runtime.Object{makeStorageClass("disk", "")},
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 1, scratch("fast")), 1)),
			why:     `no node passes: storageclass "fast" of volume "scratch" not found`,
		},
		{
			name:    "a node takes only so many volumes",
			objects: append(csi("disk.example.com", 2, four), makeStorageClass("disk", "disk.example.com")),
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 1, scratch("disk")), 5)),
			want:    []string{"a0 x2, a1 x2, b0 x1"},
		},
		{
			name:    "a shared volume made by hand keeps all pods where it can be reached",
			objects: []runtime.Object{makeStorageClass("nfs", ""), makeVolume("v0", "nfs", "zone", "b"), makeVolumeClaim("data", "nfs", v1.ReadWriteMany)},
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 8, mounting("data")), 2)),
			want:    []string{"b0 x1, b1 x1"},
		},
		{
			name:    "a shared volume of a driver without topology is reached from everywhere",
			objects: []runtime.Object{makeStorageClass("nfs", "nfs.example.com"), makeVolumeClaim("data", "nfs", v1.ReadWriteMany)},
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 8, mounting("data")), 4)),
			want:    []string{"a0 x1, a1 x1, b0 x1, b1 x1"},
		},
		{
			name:    "a shared volume of a driver with zones keeps all pods in the zone of the first",
			objects: append(csi("nfs.example.com", 10, four, "zone"), makeStorageClass("nfs", "nfs.example.com"), makeVolumeClaim("data", "nfs", v1.ReadWriteMany)),
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 8, mounting("data")), 3)),
			why:     "finds nodes for 2 of 3 pods; for the rest no node with 8 free GPUs passes: 2 node(s) didn't match PersistentVolume's node affinity; 2 others have fewer",
		},
		{
			name:    "pods that share a volume go to the zone that holds them all",
			objects: append(csi("nfs.example.com", 10, four, "zone"), makeStorageClass("nfs", "nfs.example.com"), makeVolumeClaim("data", "nfs", v1.ReadWriteMany)),
			nodes:   four,
			running: []*v1.Pod{makePod("busy", 4, on("a1"))},
			gang:    gangOf(class(makePod("worker", 4, mounting("data")), 4)),
			want:    []string{"b0 x2, b1 x2"},
		},
		{
			name:    "pods that share a volume of one node stay on it",
			objects: []runtime.Object{makeStorageClass("disk", "disk.example.com"), makeVolumeClaim("data", "disk", v1.ReadWriteOnce)},
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 4, mounting("data")), 3)),
			why:     "finds nodes for 2 of 3 pods; for the rest no node with 4 free GPUs passes: 3 node(s) didn't find available persistent volumes to bind; one other has fewer",
		},
		{
			name:    "devices of the pods' own are given out once",
			objects: append(slicesOf(2, four), makeDeviceTemplate("gpus", 1)),
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 0, claiming("gpus")), 5)),
			want:    []string{"a0 x2, a1 x2, b0 x1"},
		},
		{
			name:    "too few devices for the pods' own",
			objects: append(slicesOf(2, four), makeDeviceTemplate("gpus", 2)),
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 0, claiming("gpus")), 5)),
			why:     "finds nodes for 4 of 5 pods; for the rest no node passes: 4 cannot allocate all claims",
		},
		{
			name:    "a template that does not exist",
			objects: slicesOf(2, four),
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 0, claiming("gpus")), 5)),
			why:     `no node passes: resourceclaimtemplate "gpus" not found`,
		},
		{
			name:    "devices that pods share keep them on one node",
			objects: append(slicesOf(2, four), makeDeviceClaim("gpus", 2)),
			nodes:   four,
			gang:    gangOf(class(makePod("worker", 2, sharing("gpus")), 4)),
			want:    []string{"a0 x4"},
		},
		{
			name:    "devices that pods share are on a node that holds them all",
			objects: append(slicesOf(2, four), makeDeviceClaim("gpus", 2)),
			nodes:   four,
			running: []*v1.Pod{makePod("busy-a", 2, on("a0")), makePod("busy-b", 2, on("a1"))},
			gang:    gangOf(class(makePod("worker", 2, sharing("gpus")), 4)),
			want:    []string{"b0 x4"},
		},
		{
			name:    "a hold keeps its volume and its devices",
			objects: append(slicesOf(2, four[:2]), makeDeviceTemplate("gpus", 2), makeStorageClass("disk", ""), makeVolume("v0", "disk", "zone", "a"), makeVolume("v1", "disk", "zone", "a")),
			nodes:   four[:2],
			running: []*v1.Pod{makePod("hold-other-worker-0", 0, claiming("gpus"), scratch("disk"), on("a0"))},
			gang:    gangOf(class(makePod("worker", 0, claiming("gpus"), scratch("disk")), 2)),
			why:     "finds nodes for 1 of 2 pods; for the rest no node passes: 2 node(s) didn't find available persistent volumes to bind",
		},
		{
			name:    "a hold keeps the volume that it shares in its zone",
			objects: append(csi("nfs.example.com", 10, four, "zone"), makeStorageClass("nfs", "nfs.example.com"), makeVolumeClaim("data", "nfs", v1.ReadWriteMany)),
			nodes:   four,
			running: []*v1.Pod{makePod("hold-other-worker-0", 0, mounting("data"), on("b1"))},
			gang:    gangOf(class(makePod("worker", 8, mounting("data")), 2)),
			want:    []string{"b0 x1, b1 x1"},
		},
		{
			name:    "a hold whose volume is gone holds up nobody",
			objects: []runtime.Object{makeStorageClass("disk", ""), makeVolume("v0", "disk", "zone", "a")},
			nodes:   four,
			running: []*v1.Pod{makePod("hold-other-worker-0", 0, scratch("disk"), on("b0"))},
			gang:    gangOf(class(makePod("worker", 8, scratch("disk")), 1)),
			want:    []string{"a0 x1"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newClaimCluster(t, test.objects, test.nodes, test.running...)
			before := c.dump(t)
			for range 2 {
				// The second plan is the same if the first left nothing behind.
				plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, test.gang)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, nodes := range plan {
					got = append(got, use(nodes))
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("plan (-want +got):\n%s", diff)
				}
				if got := why.String(); got != test.why {
					t.Errorf("got reason %q, want %q", got, test.why)
				}
				if diff := cmp.Diff(before, c.dump(t)); diff != "" {
					t.Errorf("the snapshot changed:\n%s", diff)
				}
				c.mustBeClean(t)
			}
		})
	}
}

// What a trial made, allocated and assumed is taken back wherever it stops.
func TestPlanOfClaimsStoppedLeavesNothing(t *testing.T) {
	objects := []runtime.Object{
		makeStorageClass("disk", ""), makeStorageClass("nfs", "nfs.example.com"), makeVolumeClaim("data", "nfs", v1.ReadWriteMany),
		makeDeviceClass(), makeDeviceTemplate("gpus", 1),
	}
	nodes := zonedNodes("a0", "a1", "b0", "b1")
	for i, node := range nodes {
		objects = append(objects, makeSlice(node.Name, 2), makeVolume(fmt.Sprintf("v%d", i), "disk", v1.LabelHostname, node.Name))
	}
	gang := gangOf(
		class(makePod("worker", 4, scratch("disk"), mounting("data"), claiming("gpus")), 3),
		class(makePod("launcher", 0, scratch("disk"), apart("worker", v1.LabelHostname)), 1))
	c := newClaimCluster(t, objects, nodes)
	before := c.dump(t)
	plan := func(ctx context.Context) (plan Assignment, err error) {
		defer func() {
			if r := recover(); r != nil && r != "a plugin's bug" {
				t.Errorf("recovered %v", r)
			}
		}()
		plan, _, err = c.planner.Plan(ctx, c.fw, c.snap, gang)
		return plan, err
	}
	want, err := plan(c.ctx)
	if err != nil || want == nil {
		t.Fatalf("got plan %v and error %v without any stop", want, err)
	}
	for asked := range 60 {
		if got, err := plan(&countdown{c.ctx, asked}); got == nil && !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled at question %d: got error %v", asked, err)
		}
		_, _ = plan(&panicking{countdown{c.ctx, asked}})
		if diff := cmp.Diff(before, c.dump(t)); diff != "" {
			t.Fatalf("stopped at question %d, the snapshot changed:\n%s", asked, diff)
		}
		c.mustBeClean(t)
		if got, err := plan(c.ctx); err != nil || cmp.Diff(want, got) != "" {
			t.Fatalf("after a stop at question %d: got plan %v and error %v, want %v", asked, got, err, want)
		}
	}
}

// mustBeClean fails if a plan has left claims, volumes or devices behind.
func (c *cluster) mustBeClean(tb fataler) {
	tb.Helper()
	p := c.planner.claims
	if len(p.journal) > 0 || len(p.volumes.claims.over) > 0 || len(p.volumes.volumes.over) > 0 || len(p.devices.tracker.made) > 0 || len(p.devices.tracker.allocated) > 0 {
		tb.Fatalf("a plan left claims behind: %v %v %v %v", p.volumes.claims.over, p.volumes.volumes.over, p.devices.tracker.made, p.devices.tracker.allocated)
	}
	for _, a := range c.client.Actions() {
		switch a.GetVerb() {
		case "get", "list", "watch":
		default:
			tb.Fatalf("a plan wrote to the API server: %v", a)
		}
	}
}
