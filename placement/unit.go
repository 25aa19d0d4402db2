package placement

import (
	"fmt"

	"github.com/muster-gpu/muster/api/gpu"
)

// unit is what a class counts its GPUs in: "" for whole GPUs and for several kinds, the
// resource's name for slices.
type unit string

// unit is that of the demand's GPUs.
func (d *demand) unit() unit {
	found := unit("")
	for i := range d.scalars {
		switch s := &d.scalars[i]; {
		case !s.gpu:
		case found != "" || gpu.Whole(s.name):
			return ""
		default:
			found = unit(s.name)
		}
	}
	return found
}

// podsOf is so many pods, with the GPUs that each asks for.
func (d *demand) podsOf(n int) string {
	if d.gpus == 0 {
		return pods(n)
	}
	return pods(n) + " of " + d.unit().of(d.gpus)
}

// of is a number with its unit.
func (u unit) of(n int64) string { return u.number(n, fmt.Sprint(n), "") }

// more and free are the same of more of them, and of free ones.
func (u unit) more(n int64) string { return u.number(n, fmt.Sprint(n), "more ") }

func (u unit) free(n int64) string {
	if n == 1 {
		return u.number(n, "a", "free ")
	}
	return u.number(n, fmt.Sprint(n), "free ")
}

func (u unit) number(n int64, number, kind string) string {
	name := string(u)
	switch {
	case u == "" && n == 1:
		name = "GPU"
	case u == "":
		name = "GPUs"
	}
	return fmt.Sprintf("%s %s%s", number, kind, name)
}

// are is a number with its unit as the subject of a sentence.
func (u unit) are(n int64) string { return u.of(n) + isOrAre(n) }

// missing words how many more are needed, and on how many nodes.
func (u unit) missing(n int64, nodes int) string {
	where := "one node"
	if nodes > 1 {
		where = fmt.Sprintf("%d nodes", nodes)
	}
	return fmt.Sprintf("%s%s missing, on %s", u.more(n), isOrAre(n), where)
}

func isOrAre(n int64) string {
	if n == 1 {
		return " is"
	}
	return " are"
}
