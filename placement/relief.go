package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Relief finds the first of some jobs that would make room for a gang which has no
// plan if it left its nodes; jobs has the pods of each. It returns -1 where none of them
// alone would, or that is not to be told without a plan: for gangs of several classes,
// and for pods that ask for domains, claims or ports, or mind where other pods are. It
// costs one look at every node, and one at those of each job.
func (p *Planner) Relief(ctx context.Context, fw framework.Framework, snap *cache.Snapshot, gang Gang, jobs [][]*v1.Pod) (int, error) {
	nodes, err := snap.List()
	if err != nil {
		return -1, fmt.Errorf("listing the snapshot's nodes: %w", err)
	}
	var s *classSearch
	for i := range gang.Classes {
		switch class := &gang.Classes[i]; {
		case class.Count == 0:
		case s != nil || (class.Topology != nil && !class.Topology.Unasked):
			return -1, nil
		default:
			if s, err = p.newTrial(ctx, fw, snap, nodes).newClassSearch(&gang, i); err != nil {
				return -1, err
			}
		}
	}
	if s == nil || s.hasClaims || len(s.spreadKeys) > 0 || len(fwk.GetPodAffinityTerms(s.class.Pod.Spec.Affinity)) > 0 ||
		len(fwk.GetPodAntiAffinityTerms(s.class.Pod.Spec.Affinity)) > 0 || keepsApart(s.prototype) {
		return -1, nil
	}
	if unwanted, err := s.isUnwanted(snap); unwanted || err != nil {
		return -1, err
	}
	// most is how many pods one node holds.
	lacks, most, empty := s.class.Count, 0, framework.NewResource(nil)
	screen, room := s.screen(), map[string]int{}
	for _, node := range nodes {
		if node.Node() != nil && screen.lets(node.Node()) {
			n := s.demand.room(node.GetAllocatable(), node.GetRequested(), len(node.GetPods()), s.class.Count)
			room[node.Node().Name] = n
			lacks -= n
			most = max(most, s.demand.room(node.GetAllocatable(), empty, 0, s.class.Count))
		}
	}
	if lacks <= 0 {
		// It is not room that is missing.
		return -1, nil
	}
	scratch := framework.NewResource(nil)
	scratch.ScalarResources = map[v1.ResourceName]int64{}
	for i, pods := range jobs {
		if len(pods)*most < lacks {
			continue
		}
		byNode := slices.SortedFunc(slices.Values(pods), func(a, b *v1.Pod) int { return strings.Compare(a.Spec.NodeName, b.Spec.NodeName) })
		gained := 0
		for len(byNode) > 0 {
			name, n := byNode[0].Spec.NodeName, 1
			for n < len(byNode) && byNode[n].Spec.NodeName == name {
				n++
			}
			gone := byNode[:n]
			byNode = byNode[n:]
			had, usable := room[name]
			if !usable {
				continue
			}
			node, err := snap.Get(name)
			if err != nil {
				return -1, fmt.Errorf("reading node %s of the snapshot: %w", name, err)
			}
			gained += s.demand.roomWithout(node, gone, scratch, s.class.Count) - had
		}
		if gained >= lacks {
			return i, nil
		}
	}
	return -1, nil
}

// isUnwanted says that pods on nodes want pods of the class to be elsewhere.
func (s *classSearch) isUnwanted(snap *cache.Snapshot) (bool, error) {
	nodes, err := snap.HavePodsWithRequiredAntiAffinityList()
	if err != nil {
		return false, fmt.Errorf("listing the nodes whose pods keep others off: %w", err)
	}
	for _, node := range nodes {
		for _, info := range node.GetPodsWithRequiredAntiAffinity() {
			for _, term := range info.GetRequiredAntiAffinityTerms() {
				if term.Matches(s.prototype.Pod, nil) {
					return true, nil
				}
			}
		}
	}
	return false, nil
}

// roomWithout is room on a node once pods of it have gone. left is written to.
func (d *demand) roomWithout(node fwk.NodeInfo, gone []*v1.Pod, left *framework.Resource, limit int) int {
	used, pods := node.GetRequested(), len(node.GetPods())
	left.MilliCPU, left.Memory, left.EphemeralStorage = used.GetMilliCPU(), used.GetMemory(), used.GetEphemeralStorage()
	for i := range d.scalars {
		name := d.scalars[i].name
		left.ScalarResources[name] = used.GetScalarResources()[name]
	}
	for _, info := range node.GetPods() {
		if !slices.ContainsFunc(gone, func(pod *v1.Pod) bool { return pod.UID == info.GetPod().UID }) {
			continue
		}
		r := info.CalculateResource().Resource
		left.MilliCPU -= r.GetMilliCPU()
		left.Memory -= r.GetMemory()
		left.EphemeralStorage -= r.GetEphemeralStorage()
		for i := range d.scalars {
			left.ScalarResources[d.scalars[i].name] -= r.GetScalarResources()[d.scalars[i].name]
		}
		pods--
	}
	return d.room(node.GetAllocatable(), left, pods, limit)
}
