package placement

import (
	"cmp"
	"strings"
)

// compareNatural orders names as people number things: node-2 before node-10.
// Runs of digits compare as numbers of any length, all else byte by byte;
// names that are then equal (a-1, a-01) compare as plain strings, so that the
// order is total.
func compareNatural(a, b string) int {
	// What names of one cluster have in common is most of them; the number
	// that the first difference is in begins before it.
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	for same > 0 && isDigit(a[same-1]) {
		same--
	}
	x, y := a[same:], b[same:]
	for x != "" && y != "" {
		if !isDigit(x[0]) || !isDigit(y[0]) {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		var m, n string
		m, x = cutNumber(x)
		n, y = cutNumber(y)
		if d := cmp.Or(cmp.Compare(len(m), len(n)), strings.Compare(m, n)); d != 0 {
			return d
		}
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// cutNumber splits the leading digits off s, without their leading zeros.
func cutNumber(s string) (number, rest string) {
	end := 0
	for end < len(s) && isDigit(s[end]) {
		end++
	}
	return strings.TrimLeft(s[:end], "0"), s[end:]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
