package invariants

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// line is one change as a reader wants to see it.
type line struct {
	version string
	seen    time.Time
	text    string
	// about are the objects that the change concerns.
	about []string
}

func (l line) String() string {
	return fmt.Sprintf("%s  rv %-8s %s", l.seen.Format("15:04:05.000"), l.version, l.text)
}

// history keeps the newest changes, at most size of them.
type history struct {
	size  int
	lines []line
}

func (h *history) add(l line) {
	h.lines = append(h.lines, l)
	if len(h.lines) >= 2*h.size {
		h.lines = slices.Clone(h.lines[len(h.lines)-h.size:])
	}
}

// of returns the newest changes that concern any of the objects, in their
// order, at most most of them.
func (h *history) of(objects []string, most int) []string {
	var out []string
	for i := len(h.lines) - 1; i >= 0 && len(out) < most && i >= len(h.lines)-h.size; i-- {
		if slices.ContainsFunc(h.lines[i].about, func(o string) bool { return slices.Contains(objects, o) }) {
			out = append(out, h.lines[i].String())
		}
	}
	slices.Reverse(out)
	return out
}

// Violation is one thing that should not have happened.
type Violation struct {
	// Invariant is what must hold, in one sentence.
	Invariant string
	// Version and Seen are when it was broken.
	Version string
	Seen    time.Time
	// Summary says in one sentence, with numbers, how it was broken.
	Summary string
	// Objects are the objects concerned, each as "Kind namespace/name".
	Objects []string
	// History are the changes of these objects that led there, oldest first.
	History []string
}

// Error is the report that a reader finds in a failed test.
func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "broken: %s\n  %s\n  at resource version %s, %s; objects: %s\n  history:\n",
		v.Invariant, v.Summary, v.Version, v.Seen.Format(time.RFC3339Nano), strings.Join(v.Objects, ", "))
	for _, l := range v.History {
		fmt.Fprintf(&b, "    %s\n", l)
	}
	return b.String()
}
