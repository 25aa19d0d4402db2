package workload

import (
	"strings"

	"github.com/muster-gpu/muster/workload/identity"
)

// indexList reads the completion indices that the status of an Indexed Job
// lists, "1,3-5,7", in their order, as far as they are below most. What cannot
// be read is left out: the Job controller writes nothing else.
func indexList(list string, most int) []int32 {
	var out []int32
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, ok := identity.Ordinal(first)
		to := from
		if ok && isRange {
			to, ok = identity.Ordinal(last)
		}
		if !ok {
			continue
		}
		for i := from; i <= to && int(i) < most; i++ {
			out = append(out, i)
		}
	}
	return out
}
