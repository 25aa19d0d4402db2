package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	// gpus is the number of GPUs per pod.
	gpus int64
	// gangGPUs and clusterGPUs are all that the gang asks for and all that
	// nodes have, of any name and usable or not.
	gangGPUs, clusterGPUs int64
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
	// refused is what a PreFilter plugin said of the whole cluster.
	refused string
	// refusals counts what Filter plugins said, by node, with the pods placed.
	refusals map[string]int
	// passedOver is the part of refusals from nodes that have free GPUs but
	// are not usable.
	passedOver map[string]int
}

// reason says the one binding constraint in numbers.
func (s *shortage) reason() *reason.Reason {
	switch {
	case s.refused != "":
		return reason.New(reason.NoPlacement, "%sno node passes: %s", s.subject(""), shorten(s.refused))
	case s.nodes == 0:
		return reason.New(reason.ExceedsCluster, "the cluster has no nodes")
	case s.gangGPUs > s.clusterGPUs:
		return reason.New(reason.ExceedsCluster, "needs %s; the cluster has %d", gpus(s.gangGPUs), s.clusterGPUs)
	case s.possible == 0:
		return reason.New(reason.NoPlacement, "%sno node passes: %s", s.subject(""), histogram(s.refusals))
	case s.emptyRoom < s.pods:
		return reason.New(reason.ExceedsCluster, "%s", s.tooBig())
	case s.gpus > 0 && s.room < s.pods:
		return reason.New(reason.NoPlacement, "%s%s", s.tooFewGPUs(), s.except())
	case s.placed == 0:
		return reason.New(reason.NoPlacement, "%sno node passes: %s", s.subject(""), histogram(s.refusals))
	default:
		return reason.New(reason.NoPlacement, "%s %d of %s; for the rest no node passes: %s",
			s.subject("finds nodes for"), s.placed, pods(s.pods), histogram(s.refusals))
	}
}

// tooBig words that empty nodes could not hold the class.
func (s *shortage) tooBig() string {
	holder := "the cluster has"
	if s.possible < s.nodes {
		holder = "the nodes that it may use have"
	}
	switch need := s.gpus * int64(s.pods); {
	case need > s.total:
		return fmt.Sprintf("%s %s; %s %d", s.subject("needs"), gpus(need), holder, s.total)
	case s.gpus > s.largest:
		return fmt.Sprintf("%s %s on one node; the largest node has %d", s.subject("needs"), gpus(s.gpus), s.largest)
	default:
		return fmt.Sprintf("%s room for %s; even empty, the nodes have room for %s", s.subject("needs"), pods(s.pods), numberOrNone(s.emptyRoom))
	}
}

// tooFewGPUs words that free GPUs are too few or too scattered.
func (s *shortage) tooFewGPUs() string {
	if s.free >= s.gpus && s.mostFree < s.gpus {
		if s.podSet == "" {
			return fmt.Sprintf("%s free, but no node has %d", gpus(s.free), s.gpus)
		}
		return fmt.Sprintf("%s a node with %s; %s free, but no node has %d", s.subject("needs"), gpus(s.gpus), gpusAre(s.free), s.gpus)
	}
	if s.pods == 1 && s.free < s.gpus {
		return fmt.Sprintf("%s %s; %s free", s.subject("needs"), gpus(s.gpus), gpusAre(s.free))
	}
	beside := ""
	if s.podSet != "" {
		beside = " beside the other pod sets"
	}
	return fmt.Sprintf("%s %s of %s; %s free, with room for %s of them%s",
		s.subject("needs"), pods(s.pods), gpus(s.gpus), gpusAre(s.free), numberOrNone(s.room), beside)
}

// except names the free GPUs that were not counted.
func (s *shortage) except() string {
	if len(s.passedOver) == 0 {
		return ""
	}
	return "; not counted: " + histogram(s.passedOver)
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

// histogram lists what was said, most frequent first, with how many nodes it
// was said of.
func histogram(refusals map[string]int) string {
	if len(refusals) == 0 {
		return "no plugin says why"
	}
	said := slices.SortedFunc(maps.Keys(refusals), func(a, b string) int {
		return cmp.Or(cmp.Compare(refusals[b], refusals[a]), strings.Compare(a, b))
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
		parts = append(parts, fmt.Sprintf("%d %s", refusals[text], shorten(text)))
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

func gpus(n int64) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}

func gpusAre(n int64) string {
	if n == 1 {
		return "1 GPU is"
	}
	return gpus(n) + " are"
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
