package invariants

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// node is a Node. One that does not exist has no room.
type node struct {
	ref    string
	host   string
	exists bool
	away   bool
	// allocatable is what it advertises, and devices are the GPUs beside, by the
	// ResourceSlices that publish them.
	allocatable amounts[corev1.ResourceName]
	devices     map[string]int64
	room        allowance[corev1.ResourceName]
}

func (c *Checker) node(name string) *node {
	if c.nodes[name] == nil {
		c.nodes[name] = &node{ref: "Node " + name, host: name}
	}
	return c.nodes[name]
}

// nodeNamed is the name of the node with a kubernetes.io/hostname label.
func (c *Checker) nodeNamed(host string) string {
	for name, n := range c.nodes {
		if n.exists && n.host == host {
			return name
		}
	}
	return host
}

func (c *Checker) hostOf(name string) string {
	if n := c.nodes[name]; n != nil {
		return n.host
	}
	return name
}

func (c *Checker) seeNode(o *corev1.Node, gone bool) {
	n := c.node(o.Name)
	if host := o.Labels[corev1.LabelHostname]; host != "" {
		n.host = host
	}
	n.allocatable = amounts[corev1.ResourceName]{}
	if !gone {
		for name, q := range o.Status.Allocatable {
			n.allocatable.add(name, q)
		}
	}
	if away := gone || isAway(o); n.away != away {
		n.away = away
		c.forgive()
	}
	was := n.exists
	n.exists = !gone
	c.resize(n, o.Name, was != n.exists)
}

// resize takes it that a node may have other room than before.
func (c *Checker) resize(n *node, name string, changed bool) {
	limit := n.limit()
	if !changed && same(n.room.limit, limit) {
		return
	}
	c.forgive()
	n.room.set(limit, c.load(name).total, c.now, c.options.InFlight)
	if !n.exists {
		c.note(n.ref+" is gone", n.ref)
		return
	}
	c.note(fmt.Sprintf("%s has %s", n.ref, list(limit)), n.ref)
}

// load is what is taken up on a node.
type load struct {
	// total is all of it; without recent leaves out the pods that others have
	// bound just now.
	total, known amounts[corev1.ResourceName]
	// parts say who takes up what.
	parts []share
}

// share is one pod's or one Workload's part in a load.
type share struct {
	ref, text string
	takes     amounts[corev1.ResourceName]
}

func (c *Checker) load(name string) load {
	l := load{total: amounts[corev1.ResourceName]{}, known: amounts[corev1.ResourceName]{}}
	take := func(p share, known bool) {
		l.parts = append(l.parts, p)
		for r, q := range p.takes {
			l.total.add(r, q)
			if known {
				l.known.add(r, q)
			}
		}
	}
	for _, p := range c.pods {
		if p.node == name && p.onNode() {
			take(share{p.ref, p.ref, p.requests}, p.ours || !c.justNow(p.boundAt))
		}
	}
	for _, cl := range c.workloads {
		if !c.holds(cl) {
			continue
		}
		for set, s := range cl.sets {
			n := c.unfilled(cl, set, name)
			if n <= 0 {
				continue
			}
			takes := amounts[corev1.ResourceName]{}
			for r, q := range s.request {
				takes.add(r, times(q, n))
			}
			take(share{cl.ref, fmt.Sprintf("%d held for %s of %s", n, set, cl.ref), takes}, true)
		}
	}
	slices.SortFunc(l.parts, func(a, b share) int { return strings.Compare(a.text, b.text) })
	return l
}

// unfilled is how many slots of a pod set on a node wait for their pods. A
// slot whose pod has succeeded is given up, and so is that of a pod which its
// Workload calls reclaimable; one whose pod is somewhere else is not free twice.
func (c *Checker) unfilled(cl *claim, set, name string) int64 {
	s := cl.sets[set]
	here, all, charged := s.hosts[c.hostOf(name)], s.count, s.charged
	if here == 0 {
		return 0
	}
	for _, p := range c.podsOf(cl.owner, set) {
		if p.onNode() {
			all--
			charged--
			if p.node == name {
				here--
			}
		}
	}
	for at, n := range cl.done {
		if at.set == set {
			all -= n
			if at.node == name {
				here -= n
			}
		}
	}
	return min(here, all, charged)
}

// judgeRoom asserts that a node is not overfull after something was put there.
func (c *Checker) judgeRoom(name string, ours bool, what string, about ...string) {
	n, l := c.node(name), c.load(name)
	used := l.known
	if !ours {
		used = l.total
	}
	over := n.room.exceeded(used, c.now, c.options.InFlight)
	slices.Sort(over)
	if len(over) > 0 {
		r := over[0]
		objects, parts := append([]string{n.ref}, about...), []string{}
		for _, p := range l.parts {
			if q, ok := p.takes[r]; ok {
				objects = append(objects, p.ref)
				parts = append(parts, fmt.Sprintf("%s %s", p.text, text(q)))
			}
		}
		summary := fmt.Sprintf("%s, and %s has %s of %s %s taken: %s", what, n.ref, text(used[r]), text(n.room.limit[r]), r, strings.Join(parts, ", "))
		if ours {
			c.violated(nodesKept, summary, objects...)
		} else {
			c.others("%s", summary)
		}
	}
	n.room.settle(l.total)
}

// settleNode takes what is on a node now as given.
func (c *Checker) settleNode(name string) {
	if name != "" {
		c.node(name).room.settle(c.load(name).total)
	}
}

// judgeSlots asserts that the slots of a Workload which was admitted, or got
// other nodes, fit beside what is there.
func (c *Checker) judgeSlots(was, now *claim, newly bool) {
	added := map[string]bool{}
	if now.admitted && !now.gone {
		for set, s := range now.sets {
			for host, n := range s.hosts {
				if newly || was.sets[set] == nil || was.sets[set].hosts[host] < n {
					added[c.nodeNamed(host)] = true
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(added)) {
		c.judgeRoom(name, true, now.ref+" was admitted", now.ref)
	}
	if was == nil {
		return
	}
	for _, host := range was.hosts() {
		if name := c.nodeNamed(host); !added[name] {
			c.settleNode(name)
		}
	}
}

// others records what others than Muster did.
func (c *Checker) others(format string, args ...any) {
	if c.judging() {
		c.foreign = append(c.foreign, fmt.Sprintf(format, args...))
	}
}

func text(q resource.Quantity) string { return q.String() }
