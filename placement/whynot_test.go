package placement

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-gpu/muster/api/reason"
)

func TestShortageReason(t *testing.T) {
	// Four nodes of 8 GPUs, usable, with plenty of all else.
	base := func(change func(*shortage)) shortage {
		s := shortage{
			pods: 1, gpus: 8, gangGPUs: 8, clusterGPUs: 32,
			nodes: 4, possible: 4, total: 32, largest: 8, emptyRoom: 4, missing: shortfall{perPod: 8},
		}
		change(&s)
		return s
	}
	for _, test := range []struct {
		name  string
		given shortage
		want  *reason.Reason
	}{
		{
			name:  "an empty cluster",
			given: shortage{pods: 1, gpus: 1, gangGPUs: 1},
			want:  reason.New(reason.ExceedsCluster, "the cluster has no nodes"),
		},
		{
			name:  "all classes together ask for more than there is",
			given: base(func(s *shortage) { s.podSet, s.gangGPUs = "worker", 40 }),
			want:  reason.New(reason.ExceedsCluster, "needs 40 GPUs; the cluster has 32"),
		},
		{
			name:  "the nodes that may be used have too few GPUs",
			given: base(func(s *shortage) { s.pods, s.possible, s.total, s.emptyRoom = 4, 3, 24, 3 }),
			want:  reason.New(reason.ExceedsCluster, "needs 32 GPUs; the nodes that it may use have 24"),
		},
		{
			name:  "no node is large enough",
			given: base(func(s *shortage) { s.gpus, s.emptyRoom = 16, 0 }),
			want:  reason.New(reason.ExceedsCluster, "needs 16 GPUs on one node; the largest node has 8"),
		},
		{
			name:  "empty nodes lack something other than GPUs",
			given: base(func(s *shortage) { s.pods, s.gpus, s.emptyRoom = 4, 1, 1 }),
			want:  reason.New(reason.ExceedsCluster, "needs room for 4 pods; even empty, the nodes have room for 1"),
		},
		{
			name:  "enough GPUs are free but scattered",
			given: base(func(s *shortage) { s.free, s.mostFree = 8, 4 }),
			want:  reason.New(reason.NoPlacement, "8 GPUs free, but no node has 8"),
		},
		{
			name:  "enough GPUs are free but scattered, for one pod set of several",
			given: base(func(s *shortage) { s.podSet, s.free, s.mostFree = "worker", 8, 4 }),
			want:  reason.New(reason.NoPlacement, `pod set "worker" needs a node with 8 GPUs; 8 GPUs are free, but no node has 8`),
		},
		{
			name:  "one pod and too few free GPUs",
			given: base(func(s *shortage) { s.free, s.mostFree = 1, 1 }),
			want:  reason.New(reason.NoPlacement, "needs 8 GPUs; 1 GPU is free"),
		},
		{
			name:  "several pods and no room for any",
			given: base(func(s *shortage) { s.pods, s.free, s.mostFree = 2, 4, 4 }),
			want:  reason.New(reason.NoPlacement, "needs 2 pods of 8 GPUs; 4 GPUs are free, with room for none of them"),
		},
		{
			name:  "several pods of one GPU",
			given: base(func(s *shortage) { s.pods, s.gpus, s.emptyRoom, s.free, s.mostFree, s.room = 3, 1, 32, 2, 2, 2 }),
			want:  reason.New(reason.NoPlacement, "needs 3 pods of 1 GPU; 2 GPUs are free, with room for 2 of them"),
		},
		{
			name: "GPUs that are free where the pod may not go",
			given: base(func(s *shortage) {
				s.free, s.mostFree, s.passedOver = 0, 0, refusals{said: map[string]int{"node(s) had untolerated taint(s)": 2}}
			}),
			want: reason.New(reason.NoPlacement, "needs 8 GPUs; 0 GPUs are free; not counted: 2 node(s) had untolerated taint(s)"),
		},
		{
			name:  "what a PreFilter plugin said",
			given: shortage{podSet: "worker", refused: `persistentvolumeclaim "data" not found`},
			want:  reason.New(reason.NoPlacement, `pod set "worker": no node passes: persistentvolumeclaim "data" not found`),
		},
		{
			name: "what Filter plugins said, most frequent first",
			given: base(func(s *shortage) {
				s.gpus, s.missing, s.refusals = 0, shortfall{}, refusals{said: map[string]int{"Insufficient cpu": 1, "node(s) had untolerated taint(s)": 3}}
			}),
			want: reason.New(reason.NoPlacement, "no node passes: 3 node(s) had untolerated taint(s), 1 Insufficient cpu"),
		},
		{
			name: "a part of the class found nodes",
			given: base(func(s *shortage) {
				s.podSet, s.gpus, s.missing, s.pods, s.placed, s.refusals = "worker", 0, shortfall{}, 2, 1, refusals{said: map[string]int{"Too many pods": 4}}
			}),
			want: reason.New(reason.NoPlacement, `pod set "worker" finds nodes for 1 of 2 pods; for the rest no node passes: 4 Too many pods`),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.given.reason()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	said := map[string]int{strings.Repeat("é", 200): 9}
	for i := range 9 {
		said[fmt.Sprintf("reason %d", i)] = 1
	}
	want := "9 " + strings.Repeat("é", 60) + "..., 1 reason 0, 1 reason 1, 1 reason 2, and 6 more reasons"
	if diff := cmp.Diff(want, (&refusals{said: said}).String()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("1 a, 1 b, 1 c, 1 d, and 1 more reason", (&refusals{said: map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}}).String()); diff != "" {
		t.Error(diff)
	}
}
