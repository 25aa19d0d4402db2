package quota

import (
	"cmp"
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
	// flavors is the number of flavors in the group.
	flavors int
	// refused says of each flavor that the pods may not use, why.
	refused []string
	// short lists, for each flavor that they may use, what it lacks.
	short [][]shortage
}

// shortage is one cell that has less than is asked.
type shortage struct {
	cell FlavorResource
	// need counts the pod sets before this one that use the cell too.
	need, free, nominal int64
}

func sortShortages(short []shortage) {
	slices.SortFunc(short, func(a, b shortage) int {
		return cmp.Or(
			cmp.Compare(nativeLast(a.cell.Resource), nativeLast(b.cell.Resource)),
			cmp.Compare(a.cell.Resource, b.cell.Resource),
		)
	})
}

// countLaterSets adds what the pod sets after this one will ask of the same
// cells, so that the sentence names what the whole job needs. It holds only in
// a group of one flavor, where they have nowhere else to go.
func (m *misfit) countLaterSets(group int, later []demand) {
	for _, short := range m.short {
		for i := range short {
			for _, d := range later {
				short[i].need = saturatingAdd(short[i].need, d.groups[group][short[i].cell.Resource])
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
	return reason.New(reason.WaitingForQuota, "%s", m.sentence(queue, func(s shortage) string {
		return fmt.Sprintf("%s of %s free", value(s, s.free), value(s, s.nominal))
	}))
}

// exceeds is the reason where the job is larger than the queue.
func (m *misfit) exceeds(queue string) *reason.Reason {
	return reason.New(reason.ExceedsMaxQuota, "%s", m.sentence(queue, func(s shortage) string {
		return fmt.Sprintf("the quota is %s", value(s, s.nominal))
	}))
}

// sentence says what the job needs and what each flavor has of it. In a group
// of one flavor every resource that is short is told, and the flavor's name
// adds nothing; with several flavors, only the first resource of each.
func (m *misfit) sentence(queue string, has func(shortage) string) string {
	first := m.short[0][0]
	head := fmt.Sprintf("needs %s in queue %s, ", FormatAmount(first.cell.Resource, first.need), queue)
	if m.flavors == 1 {
		tail := has(first)
		for _, s := range m.short[0][1:] {
			tail += fmt.Sprintf("; needs %s, %s", FormatAmount(s.cell.Resource, s.need), has(s))
		}
		return head + tail
	}
	clauses := make([]string, 0, len(m.short))
	for _, short := range m.short {
		s := short[0]
		clause := fmt.Sprintf("%s in flavor %s", has(s), s.cell.Flavor)
		if s.cell.Resource != first.cell.Resource {
			clause = fmt.Sprintf("%s: %s", s.cell.Resource, clause)
		}
		clauses = append(clauses, clause)
	}
	return head + join(clauses, ", ")
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
