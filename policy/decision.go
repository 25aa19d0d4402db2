package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Decision is what all policies together say about a request.
type Decision struct {
	Allowed bool
	// Denials refuse the request, Warnings are told to the user, Recorded are told to
	// nobody. Each is sorted by policy and message.
	Denials, Warnings, Recorded []Violation
	// Failures are the policies that could not be evaluated.
	Failures []Failure
}

func (d *Decision) sort() {
	for _, list := range [][]Violation{d.Denials, d.Warnings, d.Recorded} {
		slices.SortFunc(list, func(a, b Violation) int {
			return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.Message, b.Message))
		})
	}
}

// Message says why the request is refused, one line for each reason; it is empty
// for one that is allowed.
func (d *Decision) Message() string {
	var lines []string
	for i := range d.Denials {
		lines = append(lines, line(d.Denials[i].Policy, d.Denials[i].Message))
	}
	for i := range d.Failures {
		if d.Failures[i].Does == Deny {
			lines = append(lines, line(d.Failures[i].Policy, d.Failures[i].message()))
		}
	}
	return strings.Join(lines, "\n")
}

// WarningLines are what the user is told besides.
func (d *Decision) WarningLines() []string {
	var lines []string
	for i := range d.Warnings {
		text := d.Warnings[i].Message
		if d.Warnings[i].Standing {
			text += " (it was so before this change)"
		}
		lines = append(lines, line(d.Warnings[i].Policy, text))
	}
	for i := range d.Failures {
		if d.Failures[i].Does == Warn {
			lines = append(lines, line(d.Failures[i].Policy, d.Failures[i].message()))
		}
	}
	return lines
}

func line(policy, text string) string { return fmt.Sprintf("[%s] %s", policy, text) }
