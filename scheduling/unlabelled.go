package scheduling

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	// noteTopology is the event of a ResourceFlavor whose nodes are not labelled as
	// its topology says, or whose topology contradicts that of another.
	noteTopology = "TopologyIncomplete"
	// topologiesEvery is the shortest time between two looks at all nodes.
	topologiesEvery = 10 * time.Second
)

// leveled is a flavor with a topology.
type leveled struct {
	*kueue.ResourceFlavor
	levels []string
}

// tellTopologies tells flavors what is wrong with their topologies, once for each
// level.
func (r *reporter) tellTopologies(ctx context.Context) error {
	now := r.clock.Now()
	if now.Sub(r.lookedAt) < topologiesEvery {
		return nil
	}
	var list kueue.ResourceFlavorList
	if err := r.reader.List(ctx, &list); isGone(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("listing ResourceFlavors: %w", err)
	}
	nodes, err := r.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	r.lookedAt = now
	flavors := r.ledger.leveled(list.Items)
	told := map[string]string{}
	for _, f := range flavors {
		wrong := f.unlabelled(nodes)
		wrong = append(wrong, f.contradicts(flavors)...)
		var what, said []string
		for _, w := range wrong {
			what, said = append(what, w.what), append(said, w.said)
		}
		if told[f.Name] = strings.Join(what, " "); len(wrong) > 0 && r.topologies[f.Name] != told[f.Name] {
			r.recorder.Event(f.ResourceFlavor, corev1.EventTypeWarning, noteTopology, strings.Join(said, "; "))
		}
	}
	r.topologies = told
	return nil
}

// leveled are those of the flavors that have levels.
func (l *Ledger) leveled(flavors []kueue.ResourceFlavor) []leveled {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []leveled
	for i := range flavors {
		if levels := l.quota.Levels(flavors[i].Name); len(levels) > 0 {
			out = append(out, leveled{&flavors[i], levels})
		}
	}
	return out
}

// fault is what is wrong with a topology, and the words for it, which have numbers.
type fault struct{ what, said string }

// unlabelled are the levels whose label nodes of the flavor lack. A level that the
// configuration has may be one that the cluster does not use: it counts only where
// some of the nodes have its label.
func (f leveled) unlabelled(nodes []*corev1.Node) []fault {
	lack, all := make([]int, len(f.levels)), 0
	for _, node := range nodes {
		if !f.has(node) {
			continue
		}
		all++
		for i, level := range f.levels {
			if node.Labels[level] == "" {
				lack[i]++
			}
		}
	}
	var out []fault
	for i, level := range f.levels {
		switch n := lack[i]; {
		case n == 0:
		case n < all:
			out = append(out, fault{level, fmt.Sprintf("%d of its %d nodes lack the label %s, a level of its topology: they are near no other there", n, all, level)})
		case f.Spec.TopologyName != nil:
			out = append(out, fault{"no " + level, fmt.Sprintf("none of its %d nodes has the label %s, a level of Topology %s", all, level, *f.Spec.TopologyName)})
		}
	}
	return out
}

// has says that a node is one of the flavor's.
func (f leveled) has(node *corev1.Node) bool {
	return labels.SelectorFromSet(f.Spec.NodeLabels).Matches(labels.Set(node.Labels))
}

// contradicts are the flavors whose topologies have two levels the other way round.
func (f leveled) contradicts(others []leveled) []fault {
	var out []fault
	for _, o := range others {
		if inner, outer, found := turned(f.levels, o.levels); found {
			out = append(out, fault{"not " + o.Name, fmt.Sprintf("its topology has %s inside %s, and that of flavor %s the other way round", inner, outer, o.Name)})
		}
	}
	return out
}

// turned are two levels of which the first list has inner inside outer, and the
// second the other way round.
func turned(levels, others []string) (inner, outer string, found bool) {
	for i, outer := range levels {
		for _, inner := range levels[i+1:] {
			a, b := slices.Index(others, outer), slices.Index(others, inner)
			if b >= 0 && b < a {
				return inner, outer, true
			}
		}
	}
	return "", "", false
}
