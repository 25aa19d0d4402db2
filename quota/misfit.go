package quota

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/api/reason"
)

// namedFlavors bounds how many flavors one sentence tells of.
const namedFlavors = 3

// misfit is why one pod set got no flavor of one resource group.
type misfit struct {
	clusterQueue string
	podSet       string
	// oneOf says that other pod sets ask for a flavor of the group as well.
	oneOf bool
	// flavors is the number of flavors in the group.
	flavors int
	// refused says of each flavor that the pods may not use, why.
	refused []string
	// lacks says that a flavor lacks something; short lists, for each flavor that
	// they may use, what.
	lacks bool
	short [][]shortage
}

// shortage is one cell that has less than is asked.
type shortage struct {
	cell FlavorResource
	// need is what is asked of the cell, others what pod sets before this one take
	// of it.
	need, others, nominal int64
	// own is what is free of nominal as long as nobody borrows it; room is what can
	// be had now, borrowed or not, and later what can be had when those that are
	// leaving have left and those that have a claim have come.
	own, room, later int64
	// most is what could be had with nothing in use.
	most int64
	// keepers are those for whose jobs some of it is withheld.
	keepers []keeper
	// cohort is "" where there is none; borrowing is the limit or noLimit.
	cohort    string
	borrowing int64
}

func (s *search) shortageOf(fr FlavorResource, c *cell, need, others int64) shortage {
	sees := s.sight(fr, c, need)
	out := shortage{
		cell: fr, need: need, others: others, nominal: c.limits.nominal, borrowing: c.limits.borrowing,
		own:   amountOf(c.limits.nominal).minus(c.used[sees.now]).atLeastZero().value(),
		room:  c.available(sees.now).atLeastZero().value(),
		later: c.available(sees.afterwards).atLeastZero().value(),
		most:  c.potential().value(),
	}
	if s.queue.parent != nil {
		out.cohort = s.queue.parent.name
	}
	if !s.empty {
		for _, k := range s.tree.keepers(s.queue.root(), fr) {
			if k.id != s.request.ID && (sees == toBorrow || !k.fromBorrowers) {
				out.keepers = append(out.keepers, k)
			}
		}
	}
	return out
}

// lookAround looks at the other pod sets than the one with this index. In a group
// of one flavor they all ask for the same, so that the sentence is to name what the
// whole job needs; else each goes where there is enough for it.
func (m *misfit) lookAround(group int, sets []demand, this int) {
	if m.flavors > 1 {
		for i := range sets {
			m.oneOf = m.oneOf || (i != this && sets[i].groups[group] != nil)
		}
		return
	}
	for _, short := range m.short {
		for i := range short {
			short[i].need, short[i].others = saturatingAdd(short[i].need, short[i].others), 0
			for _, d := range sets[this+1:] {
				for _, a := range d.groups[group] {
					if a.resource == short[i].cell.Resource {
						short[i].need = saturatingAdd(short[i].need, a.value)
					}
				}
			}
		}
	}
}

// ineligible is the reason where no flavor of the group may be used at all.
func (m *misfit) ineligible() *reason.Reason {
	if m.flavors == 0 {
		return reason.New(reason.NoMatchingFlavor, "ClusterQueue %s lists no flavor for pod set %s", m.clusterQueue, m.podSet)
	}
	return reason.New(reason.NoMatchingFlavor, "pod set %s: %s", m.podSet, join(m.refused, "; "))
}

// waits is the reason where the quota is there, and in use.
func (m *misfit) waits(queue string) *reason.Reason {
	return &reason.Reason{Class: reason.WaitingForQuota, Message: m.sentence(queue, shortage.free)}
}

// exceeds is the reason where the job is larger than the queue.
func (m *misfit) exceeds(queue string) *reason.Reason {
	return &reason.Reason{Class: reason.ExceedsMaxQuota, Message: m.sentence(queue, shortage.limit)}
}

// sentence says what the job needs and what each flavor has of it. In a group
// of one flavor every resource that is short is told, and the flavor's name
// adds nothing; with several flavors, only the first resource of each.
func (m *misfit) sentence(queue string, has func(s shortage, in string) string) string {
	first := m.short[0][0]
	head := "needs " + FormatAmount(first.cell.Resource, first.need) + " in queue " + queue + ", "
	if m.oneOf {
		head = "pod set " + m.podSet + " " + head
	}
	if m.flavors == 1 {
		tail := has(first, "")
		for _, s := range m.short[0][1:] {
			tail += fmt.Sprintf("; needs %s, %s", FormatAmount(s.cell.Resource, s.need), has(s, ""))
		}
		return head + tail
	}
	clauses := make([]string, 0, len(m.short))
	for _, short := range m.short {
		s := short[0]
		clause := has(s, " in flavor "+s.cell.Flavor)
		if s.others > 0 {
			clause += ", where other pod sets of it need " + value(s, s.others)
		}
		if s.cell.Resource != first.cell.Resource {
			clause = fmt.Sprintf("%s needed, %s", FormatAmount(s.cell.Resource, s.need), clause)
		}
		clauses = append(clauses, clause)
	}
	return head + join(clauses, ", ")
}

// free says what is free of the nominal quota, what a cohort adds or takes away,
// and what others will bring or take.
func (s shortage) free(in string) string {
	own := min(s.own, s.room)
	out := value(s, own) + " of " + value(s, s.nominal) + " free" + in
	borrowable := s.room - own
	switch {
	case s.cohort == "":
	case own < s.own:
		out += fmt.Sprintf(", %s lent in cohort %s", value(s, s.own-own), s.cohort)
	case borrowable > 0:
		out += ", " + value(s, borrowable) + " more can be borrowed from cohort " + s.cohort + s.borrowingLimit()
	case s.most > s.nominal:
		out += ", none can be borrowed from cohort " + s.cohort + s.borrowingLimit()
	}
	out += s.keptFrom()
	switch {
	case s.later < s.room:
		out += fmt.Sprintf(", %s of it promised to other jobs", value(s, s.room-s.later))
	case s.later > s.room:
		out += fmt.Sprintf(", %s more when jobs that are leaving have gone", value(s, s.later-s.room))
	}
	return out
}

// limit says what the most is that a queue can ever give.
func (s shortage) limit(in string) string {
	out := fmt.Sprintf("the quota is %s%s", value(s, s.nominal), in)
	if s.most > s.nominal {
		out += fmt.Sprintf(", at most %s more can be borrowed from cohort %s", value(s, s.most-s.nominal), s.cohort)
	}
	return out
}

func (s shortage) borrowingLimit() string {
	if s.borrowing == noLimit {
		return ""
	}
	return " (limit " + value(s, s.borrowing) + ")"
}

func value(s shortage, v int64) string { return FormatValue(s.cell.Resource, v) }

// join names the first few parts and counts the rest.
func join(parts []string, sep string) string {
	if len(parts) > namedFlavors {
		more := len(parts) - namedFlavors
		parts = append(slices.Clone(parts[:namedFlavors]), fmt.Sprintf("and %d more flavors", more))
	}
	return strings.Join(parts, sep)
}
