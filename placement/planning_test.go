package placement

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func TestMarkPlanning(t *testing.T) {
	state := framework.NewCycleState()
	if IsPlanning(state) {
		t.Error("a new state is marked")
	}
	MarkPlanning(state)
	if !IsPlanning(state) || !IsPlanning(state.Clone()) {
		t.Error("the mark is lost")
	}
}

// steering stands in for the framework of a profile with a plugin that steers
// pods, and skips hypothetical ones.
type steering struct {
	framework.Framework
	node    string
	unasked bool
}

func (s *steering) RunPreFilterPlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string]) {
	s.unasked = s.unasked || !IsPlanning(state)
	result, status, plugins := s.Framework.RunPreFilterPlugins(ctx, state, pod)
	if s.node != "" {
		result = &fwk.PreFilterResult{NodeNames: sets.New(s.node)}
	}
	return result, status, plugins
}

func TestPlanObeysPreFilter(t *testing.T) {
	c := newCluster(t, makeNodes(3, 8))
	fw := &steering{Framework: c.fw, node: "node-2"}
	plan, why, err := c.planner.Plan(c.ctx, fw, c.snap, gangOf(class(makePod("worker", 4), 2)))
	if err != nil || why != nil || use(plan[0]) != "node-2 x2" {
		t.Errorf("got plan %v, reason %v, error %v, want both pods on node-2", plan, why, err)
	}
	plan, why, err = c.planner.Plan(c.ctx, fw, c.snap, gangOf(class(makePod("worker", 4), 3)))
	if want := "needs 12 GPUs; the nodes that it may use have 8"; err != nil || plan != nil || why.String() != want {
		t.Errorf("got plan %v, reason %v, error %v, want the reason %s", plan, why, err, want)
	}
	if fw.unasked {
		t.Error("PreFilter ran on a state that is not marked as planning")
	}
}
