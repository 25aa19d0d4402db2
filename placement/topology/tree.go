package topology

import (
	"math"
	"slices"
)

// noHost is the penalty of a domain that cannot be host, see domain.penalty.
const noHost = math.MaxInt32

// Node is a node and what it has room for.
type Node struct {
	Name string
	// Values are those of the levels' labels, outermost first; "" where the node
	// has no such label, so that it is near no other at that level.
	Values []string
	// Room is how many of the pods it has room for.
	Room int
	// Beside is how many beside the leader, below 0 if it has no room for that. It
	// is looked at only where there is a leader.
	Beside int
	// Free is what is free on the node in a unit of all jobs, such as GPUs. Of
	// domains that are equal else, that with less is taken.
	Free int64
}

// Tree is nodes in domains of one or more levels. A domain is told by the values
// of its own level and of all levels further out, so that the racks 1 of two
// blocks are two racks. The level after the last is that of single nodes.
//
// A Tree is not safe for concurrent use.
type Tree struct {
	levels  int
	compare func(a, b string) int
	// domains are the root, whose level is -1, the domains and the nodes; those
	// outside come before those inside them.
	domains []domain
	byLevel [][]int32
	byKey   map[key]int32
	// ids has the domain of each node, beside what they have room for beside a
	// leader.
	ids    []int32
	beside []int
	// better is that of the request that was counted last, and unit how many pods are
	// one slot of a node.
	better func(a, b, pods int) int
	unit   int
}

type key struct {
	parent int32
	value  string
}

type domain struct {
	parent   int32
	level    int
	value    string
	children []int32
	// node is the index of a single node, else -1.
	node int32
	// alone: the node inside has no label for this level.
	alone bool

	room int
	free int64
	// slots is how many slices there is room for: in domains of the level of the
	// outermost slices and further out how many of those, further in how many of
	// those within them, and in the end how many pods. Without slices it is pods
	// everywhere.
	slots int
	// penalty is how many of the slots are lost if the domain is the host of what
	// goes with the slices: the leader, or a last slice that is smaller. noHost if
	// it has no room for that.
	penalty int
	// kept is the number of the gang's pods that stay inside.
	kept int
	rank uint32
}

// NewTree has no nodes yet. compare orders names and values of labels.
func NewTree(levels int, compare func(a, b string) int) *Tree {
	return &Tree{
		levels: levels, compare: compare,
		domains: []domain{{parent: -1, level: -1, node: -1}},
		byLevel: make([][]int32, levels+1),
		byKey:   map[key]int32{},
	}
}

// Grow makes space for as many more nodes.
func (t *Tree) Grow(nodes int) {
	t.domains = slices.Grow(t.domains, nodes+nodes/8)
	t.byLevel[t.levels] = slices.Grow(t.byLevel[t.levels], nodes)
	t.ids, t.beside = slices.Grow(t.ids, nodes), slices.Grow(t.beside, nodes)
}

// Add adds a node with as many values as the tree has levels, and returns its
// index: they are counted from 0.
func (t *Tree) Add(n Node) int {
	at := int32(0)
	for level := range t.levels {
		value := n.Values[level]
		if value == "" {
			at = t.add(domain{parent: at, level: level, value: n.Name, node: -1, alone: true})
			continue
		}
		k := key{at, value}
		id, found := t.byKey[k]
		if !found {
			id = t.add(domain{parent: at, level: level, value: value, node: -1})
			t.byKey[k] = id
		}
		at = id
	}
	index := len(t.ids)
	id := t.add(domain{parent: at, level: t.levels, value: n.Name, node: int32(index), room: n.Room, free: n.Free})
	t.ids, t.beside = append(t.ids, id), append(t.beside, n.Beside)
	return index
}

func (t *Tree) add(d domain) int32 {
	id := int32(len(t.domains))
	t.domains = append(t.domains, d)
	t.byLevel[d.level] = append(t.byLevel[d.level], id)
	parent := &t.domains[d.parent]
	parent.children = append(parent.children, id)
	return id
}

// Limit says that a node has room for no more pods than said. beside is that of
// Node.
func (t *Tree) Limit(node, room, beside int) {
	d := &t.domains[t.ids[node]]
	d.room = max(0, min(d.room, room))
	t.beside[node] = min(t.beside[node], beside, d.room)
}

// Take takes room on a node for one pod.
func (t *Tree) Take(node int) {
	room := t.domains[t.ids[node]].room
	t.Limit(node, room-1, t.beside[node]-1)
}

// Return gives back what Take has taken.
func (t *Tree) Return(node int) {
	t.domains[t.ids[node]].room++
	t.beside[node]++
}

// Room is how many pods there is room for on a node.
func (t *Tree) Room(node int) int { return t.domains[t.ids[node]].room }

// Share says that two nodes share a domain of a level.
func (t *Tree) Share(a, b, level int) bool { return t.at(a, level) == t.at(b, level) }

// count works out for how much of a request each domain has room.
func (t *Tree) count(r *Request) {
	last := len(t.domains) - 1
	for i := range t.domains {
		d := &t.domains[i]
		if d.node < 0 {
			d.room, d.free = 0, 0
		}
		d.slots, d.penalty, d.kept, d.rank = 0, noHost, 0, 0
		if r.Rank != nil {
			d.rank = r.Rank()
		}
	}
	for _, node := range r.Kept {
		t.domains[t.ids[node]].kept++
	}
	t.better, t.unit = r.Better, r.unit(t.levels)
	outer, rest := r.outermost(t.levels)
	for id := last; id >= 0; id-- {
		d := &t.domains[id]
		unit, within := r.unit(d.level), 1
		if d.node >= 0 {
			d.slots = d.room
		} else {
			within = r.unit(d.level + 1)
		}
		d.slots /= unit / within
		switch {
		case d.alone && r.sliced(d.level):
			d.slots = 0
		case d.level > outer.Level:
			d.penalty = 0
		case d.level == outer.Level:
			d.penalty = t.penalty(d, r, outer.Size, rest)
		}
		if id == 0 {
			break
		}
		p := &t.domains[d.parent]
		p.room += d.room
		p.free += d.free
		p.kept += d.kept
		p.slots += d.slots
		if p.level < outer.Level {
			p.penalty = min(p.penalty, d.penalty)
		}
	}
}

// penalty is that of a domain at the level of the slices.
func (t *Tree) penalty(d *domain, r *Request, size, rest int) int {
	switch {
	case r.Leader:
		beside := t.beside[d.node]
		if beside < 0 {
			return noHost
		}
		return d.room - min(beside, d.room)
	case rest == 0 || d.room%size >= rest:
		return 0
	case d.slots > 0:
		return 1
	}
	return noHost
}

// fits says that a domain has room for need slots, and if it is the host for what
// goes with them.
func (d *domain) fits(need int, host bool) bool {
	return !host && d.slots >= need || d.penalty != noHost && d.slots-d.penalty >= need
}

// at is the domain around a node at a level, -1 for all nodes.
func (t *Tree) at(node, level int) int32 {
	id := t.ids[node]
	for t.domains[id].level > level {
		id = t.domains[id].parent
	}
	return id
}
