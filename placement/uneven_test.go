package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement/topology"
)

func TestPodsOfSeveralSizesInOneDomain(t *testing.T) {
	rack, preferred := requiring("rack"), preferring("rack")
	for _, test := range []struct {
		name    string
		nodes   []*v1.Node
		running []*v1.Pod
		gang    Gang
		want    []string
		why     *reason.Reason
	}{
		{
			name: "the large pods are named first", nodes: oneBlock(1, 2),
			gang: gangOf(close(class(makePod("x", 8), 1), rack), close(class(makePod("y", 1), 4), rack)),
			want: []string{"b0", "b1 b1 b1 b1"},
		},
		{
			name: "the small pods are named first, and leave the large ones room", nodes: oneBlock(1, 2),
			gang: gangOf(close(class(makePod("x", 1), 8), rack), close(class(makePod("y", 4), 2), rack)),
			want: []string{"b1 b1 b1 b1 b1 b1 b1 b1", "b0 b0"},
		},
		{
			name: "some ask for no GPUs", nodes: oneBlock(2, 1),
			gang: gangOf(close(class(makePod("x", 0), 4), rack), close(class(makePod("y", 8), 1), rack)),
			want: []string{"b0 b0 b0 b0", "b0"},
		},
		{
			name: "some ask for CPU and others for GPUs: a node has room for more pods than for those of one size", nodes: oneBlock(1),
			gang: gangOf(close(class(makePod("x", 0, cpus("8")), 7), rack), close(class(makePod("y", 1, cpus("0")), 8), rack)),
			want: []string{"a0 a0 a0 a0 a0 a0 a0", "a0 a0 a0 a0 a0 a0 a0 a0"},
		},
		{
			name: "one pod comes back to others of another size", nodes: oneBlock(2, 2), running: []*v1.Pod{makePod("y-0", 4, on("a1"))},
			gang: gangOf(returning(class(makePod("x", 1), 0), rack, "", "a0"), returning(class(makePod("y", 4), 0), rack, "a1")),
			want: []string{"a1", ""},
		},
		{
			name: "one comes back to others that all stay, which are larger", nodes: oneBlock(2, 2), running: append(busy("a0"), makePod("y-0", 1, on("a1"))),
			gang: gangOf(returning(class(makePod("x", 8), 0), rack, "a0"), returning(class(makePod("y", 1), 0), rack, "a1", "")),
			want: []string{"", "a1"},
		},
		{
			name: "a leader is beside pods of two sizes", nodes: oneBlock(1),
			gang: gangOf(leader(class(makePod("launcher", 0), 1), rack), close(class(makePod("x", 4), 1), rack), close(class(makePod("y", 1), 4), rack)),
			want: []string{"a0", "a0", "a0 a0 a0 a0"},
		},
		{
			name: "no rack has room for one size", nodes: oneBlock(2, 2), running: busy("a0", "b1"),
			gang: gangOf(close(class(makePod("x", 1), 4), rack), close(class(makePod("y", 8), 2), rack)),
			why:  reason.New(reason.NoPlacement, `pod set "x" needs 4 pods of 1 GPU and pod set "y" needs 2 pods of 8 GPUs in one rack; the best, a, has room for 1 of "y"`),
		},
		{
			name: "none has, even empty", nodes: oneBlock(2, 3),
			gang: gangOf(close(class(makePod("x", 1), 4), rack), close(class(makePod("y", 8), 4), rack)),
			why:  reason.New(reason.ExceedsCluster, `pod set "x" needs 4 pods of 1 GPU and pod set "y" needs 4 pods of 8 GPUs in one rack; even empty, the largest, b, has room for 3 of "y"`),
		},
		{
			name: "each fits alone, and there are too few GPUs for both", nodes: oneBlock(2, 3), running: busy("b0"),
			gang: gangOf(close(class(makePod("x", 1), 4), rack), close(class(makePod("y", 8), 2), rack)),
			why:  reason.New(reason.NoPlacement, `pod set "x" needs 4 pods of 1 GPU and pod set "y" needs 2 pods of 8 GPUs in one rack; the best, a, has room for 16 of their 20 GPUs`),
		},
		{
			name: "each fits alone, and never both", nodes: oneBlock(2, 2),
			gang: gangOf(close(class(makePod("x", 1), 4), rack), close(class(makePod("y", 8), 2), rack)),
			why:  reason.New(reason.ExceedsCluster, `pod set "x" needs 4 pods of 1 GPU and pod set "y" needs 2 pods of 8 GPUs in one rack; even empty, the largest, a, has room for 16 of their 20 GPUs`),
		},
		{
			name: "each fits alone, and it is not GPUs that are too few", nodes: oneBlock(2),
			gang: gangOf(close(class(makePod("x", 8, cpus("10")), 2), rack), close(class(makePod("y", 0, cpus("60")), 1), rack)),
			why:  reason.New(reason.NoPlacement, `pod set "x" needs 2 pods of 8 GPUs and pod set "y" needs 1 pod in one rack; there is room for each of these alone, and not for all together`),
		},
		{
			name: "a rack is only preferred", nodes: oneBlock(2, 2),
			gang: gangOf(close(class(makePod("x", 8), 4), preferred), close(class(makePod("y", 1), 4), preferred)),
			why:  reason.New(reason.ExceedsCluster, `pod set "x" needs 4 pods of 8 GPUs and pod set "y" needs 4 pods of 1 GPU; even empty, there is room for 32 of their 36 GPUs`),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, test.nodes, test.running...)
			plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, test.gang)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, nodes := range plan {
				got = append(got, strings.Join(nodes, " "))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("nodes by rank (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.why, why); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHowFewDomainsPodsOfSeveralSizesNeedIsSaidWhereItIsKnown: where one has them all.
func TestHowFewDomainsPodsOfSeveralSizesNeedIsSaidWhereItIsKnown(t *testing.T) {
	for name, test := range map[string]struct {
		racks []int
		want  topology.Quality
	}{
		"in one": {[]int{2, 1}, topology.Quality{Level: 1, Domains: 1, Fewest: 1}},
		"in two": {[]int{1, 1}, topology.Quality{Level: 1, Domains: 2, Crossed: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, oneBlock(test.racks...))
			asked := preferring("rack")
			gang := gangOf(close(class(makePod("x", 8), 1), asked), close(class(makePod("y", 4), 1), asked))
			var got []topology.Quality
			gang.Placed = func(_ *Topology, q topology.Quality) { got = append(got, q) }
			if _, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang); err != nil || why != nil {
				t.Fatal(why, err)
			}
			if diff := cmp.Diff([]topology.Quality{test.want}, got); diff != "" {
				t.Errorf("how close they are (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPodsOfSeveralSizesFindTheRackThatHasRoom: with sizes that go into each other, whoever
// puts the largest pods first onto the fullest node finds a place where there is one.
func TestPodsOfSeveralSizesFindTheRackThatHasRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		defer cancel()
		racks := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 8), 1, 3), 1, 3).Draw(t, "free GPUs by rack")
		sizes := rapid.Permutation([]int{1, 2, 4, 8}).Draw(t, "sizes")[:rapid.IntRange(2, 3).Draw(t, "pod sets")]
		var counts []int
		for _, free := range racks {
			counts = append(counts, len(free))
		}
		nodes := oneBlock(counts...)
		var running []*v1.Pod
		at := 0
		for _, free := range racks {
			for _, n := range free {
				if n < 8 {
					running = append(running, makePod("busy-"+nodes[at].Name, 8-n, on(nodes[at].Name)))
				}
				at++
			}
		}
		asked := requiring("rack")
		var gang Gang
		var pods []int
		for i, size := range sizes {
			count := rapid.IntRange(1, 4).Draw(t, "pods")
			gang.Classes = append(gang.Classes, close(class(makePod(fmt.Sprint("set-", i), size), count), asked))
			pods = append(pods, slices.Repeat([]int{size}, count)...)
		}
		gang.Name, gang.UID = "job", "job-uid"
		c := newClusterIn(ctx, t, nodes, running...)
		plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang)
		if err != nil {
			t.Fatal(err)
		}
		if want := slices.ContainsFunc(racks, func(free []int) bool { return packs(free, pods) }); want != (plan != nil) {
			t.Fatalf("a rack has room: %v; the plan is %v (%v)", want, plan, why)
		}
		used := map[byte]bool{}
		for _, names := range plan {
			for _, name := range names {
				used[name[0]] = true
			}
		}
		if len(used) > 1 {
			t.Fatalf("%v is not in one rack", plan)
		}
	})
}

// packs says that pods of such sizes go onto nodes with so many free GPUs.
func packs(free, pods []int) bool {
	free, pods = slices.Clone(free), slices.Clone(pods)
	slices.SortFunc(pods, func(a, b int) int { return b - a })
	for _, size := range pods {
		best := -1
		for i, n := range free {
			if n >= size && (best < 0 || n < free[best]) {
				best = i
			}
		}
		if best < 0 {
			return false
		}
		free[best] -= size
	}
	return true
}
