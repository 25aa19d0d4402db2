package placement

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"
)

// What is planned while pods are away is what is planned where they never
// were, and afterwards the snapshot is as if nothing had happened.
func TestPlanWithoutPodsIsThePlanOfAClusterThatNeverHadThem(t *testing.T) {
	plans := 0
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		defer cancel()
		nodes, running := drawCluster(t)
		gang := drawGang(t)
		var victims, others []*v1.Pod
		for _, p := range running {
			if rapid.Bool().Draw(t, "victim") {
				victims = append(victims, p)
			} else {
				others = append(others, p)
			}
		}
		c, never := newClusterIn(ctx, t, nodes, running...), newClusterIn(ctx, t, nodes, others...)
		before := c.dump(t)

		w, err := c.planner.Without(klog.Logger{}, c.snap)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Remove(victims); err != nil {
			t.Fatal(err)
		}
		// Some come back and go again.
		some := victims[:rapid.IntRange(0, len(victims)).Draw(t, "some")]
		if err := w.Restore(some); err != nil {
			t.Fatal(err)
		}
		if err := w.Remove(some); err != nil {
			t.Fatal(err)
		}
		got, why, err := c.planner.Plan(ctx, c.fw, c.snap, gang)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "some stay back") {
			if err := w.Restore(some); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, c.dump(t)); diff != "" {
			t.Fatalf("the snapshot changed:\n%s", diff)
		}

		want, whyNever, err := never.planner.Plan(ctx, never.fw, never.snap, gang)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("the plan (-never there +taken away): %s\nreasons: %v, %v", diff, whyNever, why)
		}
		if len(victims) > 0 && got != nil {
			plans++
		}
	})
	if plans == 0 {
		t.Error("no case had a plan without a victim")
	}
}

func TestHopeless(t *testing.T) {
	for _, test := range []struct {
		name  string
		gang  Gang
		freed int64
		want  bool
	}{
		{"8 GPUs of 6 that are free and 2 that would be", gangOf(class(makePod("w", 4), 2)), 2, false},
		{"8 GPUs of 6 that are free and 1 that would be", gangOf(class(makePod("w", 4), 2)), 1, true},
		{"GPUs of nodes that the selector does not allow", gangOf(class(makePod("w", 4, selecting("zone", "a")), 1)), 0, true},
		{"pods without GPUs", gangOf(class(makePod("w", 0), 100)), 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, makeNodes(2, 8), makePod("x", 5, on("node-0")), makePod("y", 5, on("node-1")))
			got, err := c.planner.Hopeless(c.snap, test.gang, test.freed)
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("hopeless is %v, want %v", got, test.want)
			}
		})
	}
}

func TestWithoutPassesOverPodsThatTheSnapshotDoesNotHave(t *testing.T) {
	c := newCluster(t, makeNodes(1, 8), makePod("x", 5, on("node-0")))
	before := c.dump(t)
	w, err := c.planner.Without(klog.Logger{}, c.snap)
	if err != nil {
		t.Fatal(err)
	}
	strangers := []*v1.Pod{makePod("y", 1, on("node-0")), makePod("z", 1, on("node-7"))}
	if err := w.Remove(strangers); err != nil {
		t.Fatal(err)
	}
	if err := w.Restore(strangers); err != nil {
		t.Fatal(err)
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, c.dump(t)); diff != "" {
		t.Errorf("the snapshot changed:\n%s", diff)
	}
	if err := w.End(); err == nil {
		t.Error("it ended twice without an error")
	}
}

// BenchmarkWithout is what it costs to begin and end, with nothing planned.
func BenchmarkWithout(b *testing.B) {
	for _, nodes := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("%dnodes", nodes), func(b *testing.B) {
			var running []*v1.Pod
			for n := range nodes {
				for i := range 8 {
					running = append(running, makePod(fmt.Sprintf("busy-%d-%d", n, i), 1, on(fmt.Sprintf("node-%d", n))))
				}
			}
			c := newCluster(b, makeNodes(nodes, 8), running...)
			b.ReportAllocs()
			for b.Loop() {
				w, err := c.planner.Without(klog.Logger{}, c.snap)
				if err != nil {
					b.Fatal(err)
				}
				if err := w.Remove(running[:8]); err != nil {
					b.Fatal(err)
				}
				if err := w.End(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
