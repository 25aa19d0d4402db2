package placement

import fwk "k8s.io/kube-scheduler/framework"

// planningKey marks a CycleState that belongs to a plan, not to a pod's own
// scheduling cycle.
const planningKey fwk.StateKey = "muster.dev/planning"

type planningMark struct{}

// Clone keeps the mark on copies of the state.
func (m planningMark) Clone() fwk.StateData { return m }

// MarkPlanning marks the state as one of a planning run. Plan does so before
// it runs the PreFilter plugins, because the plugin that steers gang pods into
// their slots is one of them, and a hypothetical pod has no slot yet.
func MarkPlanning(state fwk.CycleState) { state.Write(planningKey, planningMark{}) }

// IsPlanning tells whether the plugins are being asked by a planning run.
func IsPlanning(state fwk.CycleState) bool {
	_, err := state.Read(planningKey)
	return err == nil
}
