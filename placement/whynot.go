package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/api/reason"
)

// maxRefusals and maxRefusalBytes bound how much of what the Filter plugins
// said goes into one sentence.
const (
	maxRefusals     = 4
	maxRefusalBytes = 120
)

// shortage is all that a "no" is told from: one class that found too few
// nodes. "Usable" nodes are those that no Filter plugin refuses for good, for
// instance for a taint; GPUs are those of the resource names that the class
// asks for.
type shortage struct {
	// podSet is the pod set's name if the gang has several, else empty.
	podSet string
	// pods is the number of pods wanted, placed that found a node.
	pods, placed int
	// gpus is the number of GPUs per pod, in the unit.
	gpus int64
	unit unit
	// gangGPUs and clusterGPUs are all that the gang asks for and all that
	// nodes have, of any name and usable or not.
	gangGPUs, clusterGPUs int64
	// uncounted says that nodes may have GPUs as devices, which are in no number here.
	uncounted bool
	// nodes is the number of nodes in the snapshot.
	nodes int
	// free GPUs on usable nodes without the gang, and the most on one node.
	free, mostFree int64
	// room is how many pods the GPUs of usable nodes hold beside the rest of
	// the gang, if nothing but GPUs counts.
	room int
	// possible is the number of nodes that are usable, or will be once they
	// are ready and not cordoned; total and largest are their GPUs, free or
	// not, and emptyRoom the pods that they would hold without any other pod.
	possible       int
	total, largest int64
	emptyRoom      int
	// missing is which GPUs would have to become free on usable nodes for more pods.
	missing shortfall
	// sizes are what a pod asks for, and what nodes have of it: those of possible that
	// are large enough for the pod's GPUs.
	sizes []want
	// refused is what a PreFilter plugin said of the whole cluster.
	refused string
	// refusals are those of all nodes, with the pods placed; enough those of the nodes
	// that have the GPUs for one more pod, which fewer have not.
	refusals, enough refusals
	fewer            int
	// passedOver is those of nodes that have free GPUs but are not usable.
	passedOver refusals
}

// refusals counts nodes by why they take no more pods of a class.
type refusals struct {
	// said is what plugins said, wants what there is too little of.
	said  map[string]int
	wants []want
}

// hear counts what plugins said of a node.
func (r *refusals) hear(said []string) {
	if r.said == nil {
		r.said = map[string]int{}
	}
	for _, text := range said {
		r.said[text]++
	}
}

// none says that no node was counted.
func (r *refusals) none() bool {
	return len(r.said) == 0 && !slices.ContainsFunc(r.wants, func(w want) bool { return w.nodes > 0 })
}

// reason says the one binding constraint in numbers.
func (s *shortage) reason() *reason.Reason {
	switch {
	case s.refused != "":
		return reason.New(reason.NoPlacement, "%sno node passes: %s", s.subject(""), shorten(s.refused))
	case s.nodes == 0:
		return reason.New(reason.ExceedsCluster, "the cluster has no nodes")
	case s.gangGPUs > s.clusterGPUs && !s.uncounted:
		return reason.New(reason.ExceedsCluster, "needs %s; the cluster has %d", unit("").of(s.gangGPUs), s.clusterGPUs)
	case s.possible == 0:
		return reason.New(reason.NoPlacement, "%sno node passes: %s", s.subject(""), s.refusals.String())
	case s.emptyRoom < s.pods:
		return reason.New(reason.ExceedsCluster, "%s", s.tooBig())
	case s.missing.perPod > 0 && s.room < s.pods:
		return reason.New(reason.NoPlacement, "%s%s%s", s.tooFewGPUs(), s.moreGPUs(), s.except())
	case s.placed == 0:
		return reason.New(reason.NoPlacement, "%s%s", s.subject(""), s.refusedBy())
	default:
		return reason.New(reason.NoPlacement, "%s %d of %s; for the rest %s", s.subject("finds nodes for"), s.placed, pods(s.pods), s.refusedBy())
	}
}

// refusedBy words why nodes take no more pods: those that have the GPUs, where there
// are such, because the others would not be taken anyway.
func (s *shortage) refusedBy() string {
	if s.gpus == 0 || s.enough.none() {
		return "no node passes: " + s.refusals.String()
	}
	others := ""
	switch {
	case s.fewer == 1:
		others = "; one other has fewer"
	case s.fewer > 1:
		others = fmt.Sprintf("; %d others have fewer", s.fewer)
	}
	return fmt.Sprintf("no node with %s passes: %s%s", s.unit.free(s.gpus), s.enough.String(), others)
}

// tooBig words that empty nodes could not hold the class.
func (s *shortage) tooBig() string {
	holder := "the cluster has"
	if s.possible < s.nodes {
		holder = "the nodes that it may use have"
	}
	switch need := s.gpus * int64(s.pods); {
	case need > s.total && !s.uncounted:
		return fmt.Sprintf("%s %s; %s %d", s.subject("needs"), s.unit.of(need), holder, s.total)
	case s.gpus > s.largest && !s.uncounted:
		return fmt.Sprintf("%s %s on one node; the largest node has %d", s.subject("needs"), s.unit.of(s.gpus), s.largest)
	}
	if s.gpus > 0 {
		holder = "the nodes with " + s.unit.of(s.gpus) + " have"
	}
	for i := range s.sizes {
		switch w := &s.sizes[i]; {
		case w.gpu || w.name == v1.ResourcePods:
		case w.each > w.largest:
			return fmt.Sprintf("%s %s on one node%s; the largest has %s", s.subject("needs"), w.amount(w.each), s.withGPUs(), w.about(w.largest))
		case w.each*int64(s.pods) > w.total:
			return fmt.Sprintf("%s %s; %s %s", s.subject("needs"), w.amount(w.each*int64(s.pods)), holder, w.about(w.total))
		}
	}
	return fmt.Sprintf("%s room for %s; even empty, the nodes have room for %s", s.subject("needs"), pods(s.pods), numberOrNone(s.emptyRoom))
}

// withGPUs says of which nodes a pod with GPUs can be.
func (s *shortage) withGPUs() string {
	if s.gpus == 0 {
		return ""
	}
	return " with " + s.unit.of(s.gpus)
}

// tooFewGPUs words that free GPUs are too few or too scattered.
func (s *shortage) tooFewGPUs() string {
	if s.free >= s.gpus && s.mostFree < s.gpus {
		if s.podSet == "" {
			return fmt.Sprintf("%s free, but no node has %d", s.unit.of(s.free), s.gpus)
		}
		return fmt.Sprintf("%s a node with %s; %s free, but no node has %d", s.subject("needs"), s.unit.of(s.gpus), s.unit.are(s.free), s.gpus)
	}
	if s.pods == 1 && s.free < s.gpus {
		return fmt.Sprintf("%s %s; %s free", s.subject("needs"), s.unit.of(s.gpus), s.unit.are(s.free))
	}
	beside := ""
	if s.podSet != "" {
		beside = " beside the other pod sets"
	}
	return fmt.Sprintf("%s %s of %s; %s free, with room for %s of them%s",
		s.subject("needs"), pods(s.pods), s.unit.of(s.gpus), s.unit.are(s.free), numberOrNone(s.room), beside)
}

// moreGPUs words what would have to become free, if only GPUs count.
func (s *shortage) moreGPUs() string {
	gpus, nodes := s.missing.of(s.pods - s.room)
	if nodes == 0 {
		return ""
	}
	return "; " + s.unit.missing(gpus, nodes)
}

// except names the free GPUs that were not counted.
func (s *shortage) except() string {
	if s.passedOver.none() {
		return ""
	}
	return "; not counted: " + s.passedOver.String()
}

// subject names the pod set where the gang has several.
func (s *shortage) subject(verb string) string {
	switch {
	case s.podSet == "":
		return verb
	case verb == "":
		return fmt.Sprintf("pod set %q: ", s.podSet)
	default:
		return fmt.Sprintf("pod set %q %s", s.podSet, verb)
	}
}

// String lists what was said, most frequent first, with how many nodes it was said
// of.
func (r *refusals) String() string {
	counts := maps.Clone(r.said)
	if counts == nil {
		counts = map[string]int{}
	}
	for i := range r.wants {
		if w := &r.wants[i]; w.nodes > 0 {
			counts[w.insufficient()] += w.nodes
		}
	}
	if len(counts) == 0 {
		return "no plugin says why"
	}
	said := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	parts := make([]string, 0, maxRefusals+1)
	for i, text := range said {
		if i == maxRefusals {
			parts = append(parts, fmt.Sprintf("and %d more reasons", len(said)-i))
			if len(said)-i == 1 {
				parts[i] = "and 1 more reason"
			}
			break
		}
		parts = append(parts, fmt.Sprintf("%d %s", counts[text], shorten(text)))
	}
	return strings.Join(parts, ", ")
}

// shorten bounds what one plugin said.
func shorten(text string) string {
	if len(text) <= maxRefusalBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxRefusalBytes], "") + "..."
}

func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

func numberOrNone(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}
