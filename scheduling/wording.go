package scheduling

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The events that warn: something went wrong with a node.
const (
	noteNodeLost   = "NodeLost"
	noteHoldBroken = "HoldBroken"
)

// warnings are the reasons of events that are warnings.
var warnings = []string{noteNodeLost, noteHoldBroken, noteInvalidAnnotation, noteStartRefused, noteStopRefused, noteStillLeaving, noteQueueChangeIgnored, notePodsGone, noteNodesRefused, noteIdle, noteStalled}

// noteQueueChangeIgnored: a job that runs names another queue than that in which it
// holds quota.
const noteQueueChangeIgnored = "QueueChangeIgnored"

// noteStopRefused: the API server does not let a job be stopped that is to stop.
const noteStopRefused = "StopRefused"

// noteStartRefused: the API server does not let an admitted job be resumed.
const noteStartRefused = "StartRefused"

// The events about preemption.
const (
	notePreempted         = "Preempted"
	notePreempting        = "Preempting"
	noteClaimEnded        = "ClaimEnded"
	noteInvalidAnnotation = "InvalidAnnotation"
)

// amount says how much a job is: its GPUs, or its pods where it has none.
func amount(gpus, pods int64) string {
	switch {
	case gpus == 1:
		return "1 GPU"
	case gpus > 0:
		return fmt.Sprintf("%d GPUs", gpus)
	case pods == 1:
		return "1 pod"
	default:
		return fmt.Sprintf("%d pods", pods)
	}
}

// nodeRange writes nodes shortly, in their order and each once: runs of consecutive
// numbers as first..last, and no more than five items.
func nodeRange(nodes []string) string {
	const most = 5
	var items []string
	nodes = slices.Compact(slices.SortedFunc(slices.Values(nodes), compareNodes))
	for i := 0; i < len(nodes); {
		end := i
		for end+1 < len(nodes) && follows(nodes[end], nodes[end+1]) {
			end++
		}
		if end == i {
			items = append(items, nodes[i])
		} else {
			items = append(items, nodes[i]+".."+nodes[end])
		}
		i = end + 1
	}
	if len(items) > most {
		items = append(items[:most:most], fmt.Sprintf("and %d more", len(items)-most))
	}
	return strings.Join(items, ", ")
}

// compareNodes orders names by what is before the number at their end, then by
// that number.
func compareNodes(a, b string) int {
	ap, an, _ := numbered(a)
	bp, bn, _ := numbered(b)
	return cmp.Or(cmp.Compare(ap, bp), cmp.Compare(an, bn), cmp.Compare(a, b))
}

// follows says that b is a's name with the number at its end one higher.
func follows(a, b string) bool {
	ap, an, aok := numbered(a)
	bp, bn, bok := numbered(b)
	return aok && bok && ap == bp && bn == an+1
}

func numbered(s string) (prefix string, n int, ok bool) {
	i := len(s)
	for i > 0 && s[i-1] >= '0' && s[i-1] <= '9' {
		i--
	}
	n, err := strconv.Atoi(s[i:])
	return s[:i], n, err == nil
}
