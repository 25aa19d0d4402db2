package workload

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// The bounds that the Workload API puts on a topology assignment.
const (
	maxDomainsPerSlice = 100_000
	maxAffixLength     = 63
	// maxDecodedPods bounds what a Workload that somebody else wrote can make
	// this process allocate; no cluster has room for a larger pod set.
	maxDecodedPods = 10_000_000
)

// EncodeNodes writes the nodes of a pod set, in the order of the pods' indices,
// as a topology assignment with the single level kubernetes.io/hostname. A run
// of pods on one node is one domain, so that the order survives. nil for no
// nodes.
//
// A node is named by its kubernetes.io/hostname label, which has at most 63
// characters; the API refuses longer ones.
func EncodeNodes(nodes []string) *kueue.TopologyAssignment {
	return encodeNodes(nodes, maxDomainsPerSlice)
}

func encodeNodes(nodes []string, domainsPerSlice int) *kueue.TopologyAssignment {
	names, counts := runs(nodes)
	if len(names) == 0 {
		return nil
	}
	assignment := &kueue.TopologyAssignment{Levels: []string{corev1.LabelHostname}}
	for start := 0; start < len(names); start += domainsPerSlice {
		end := min(start+domainsPerSlice, len(names))
		assignment.Slices = append(assignment.Slices, kueue.TopologyAssignmentSlice{
			DomainCount:    int32(end - start),
			ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{levelValues(names[start:end])},
			PodCounts:      podCounts(counts[start:end]),
		})
	}
	return assignment
}

// runs are the nodes without repetition of neighbours, and the length of each
// repetition.
func runs(nodes []string) (names []string, counts []int32) {
	for _, node := range nodes {
		if last := len(names) - 1; last >= 0 && names[last] == node {
			counts[last]++
			continue
		}
		names, counts = append(names, node), append(counts, 1)
	}
	return names, counts
}

// levelValues writes the names, with what they have in common written once: in
// a large job on nodes with long names that is most of the object.
func levelValues(names []string) kueue.TopologyAssignmentSliceLevelValues {
	if len(names) == 1 {
		return kueue.TopologyAssignmentSliceLevelValues{Universal: &names[0]}
	}
	prefix := commonPrefix(names)
	suffix := commonSuffix(names, len(prefix))
	values := &kueue.TopologyAssignmentSliceLevelIndividualValues{Roots: make([]string, len(names))}
	if prefix != "" {
		values.Prefix = &prefix
	}
	if suffix != "" {
		values.Suffix = &suffix
	}
	for i, name := range names {
		values.Roots[i] = name[len(prefix) : len(name)-len(suffix)]
	}
	return kueue.TopologyAssignmentSliceLevelValues{Individual: values}
}

func commonPrefix(names []string) string {
	common := names[0]
	for _, name := range names[1:] {
		n := 0
		for n < min(len(common), len(name)) && common[n] == name[n] {
			n++
		}
		common = common[:n]
	}
	return common[:min(len(common), maxAffixLength)]
}

// commonSuffix is what the names end in alike once their first skip bytes are
// taken off, so that prefix and suffix never overlap.
func commonSuffix(names []string, skip int) string {
	common := names[0][skip:]
	for _, name := range names[1:] {
		rest := name[skip:]
		n := 0
		for n < min(len(common), len(rest)) && common[len(common)-1-n] == rest[len(rest)-1-n] {
			n++
		}
		common = common[len(common)-n:]
	}
	return common[len(common)-min(len(common), maxAffixLength):]
}

func podCounts(counts []int32) kueue.TopologyAssignmentSlicePodCounts {
	if !slices.ContainsFunc(counts, func(n int32) bool { return n != counts[0] }) {
		return kueue.TopologyAssignmentSlicePodCounts{Universal: &counts[0]}
	}
	return kueue.TopologyAssignmentSlicePodCounts{Individual: counts}
}

// DecodeNodes reads a topology assignment back: one node per pod, in the order
// of the pods' indices. An assignment with more levels is read by its lowest,
// which must be kubernetes.io/hostname. nil gives no nodes.
func DecodeNodes(assignment *kueue.TopologyAssignment) ([]string, error) {
	if assignment == nil {
		return nil, nil
	}
	lowest := len(assignment.Levels) - 1
	if lowest < 0 || assignment.Levels[lowest] != corev1.LabelHostname {
		return nil, fmt.Errorf("decoding a topology assignment: its lowest level is not %s but one of %q",
			corev1.LabelHostname, assignment.Levels)
	}
	var nodes []string
	for i := range assignment.Slices {
		slice := &assignment.Slices[i]
		if len(slice.ValuesPerLevel) != len(assignment.Levels) {
			return nil, fmt.Errorf("decoding a topology assignment: slice %d has values for %d levels of %d",
				i, len(slice.ValuesPerLevel), len(assignment.Levels))
		}
		var err error
		if nodes, err = decodeSlice(nodes, slice, &slice.ValuesPerLevel[lowest]); err != nil {
			return nil, fmt.Errorf("decoding a topology assignment: slice %d: %w", i, err)
		}
	}
	return nodes, nil
}

// DecodeDomains reads a topology assignment: the domain of each pod, in the
// order of the assignment, as the node labels of all its levels. Pods of one
// domain share a map. nil gives no domains.
func DecodeDomains(assignment *kueue.TopologyAssignment) ([]map[string]string, error) {
	if assignment == nil {
		return nil, nil
	}
	var out []map[string]string
	for i := range assignment.Slices {
		slice := &assignment.Slices[i]
		if len(slice.ValuesPerLevel) != len(assignment.Levels) {
			return nil, fmt.Errorf("decoding a topology assignment: slice %d has values for %d levels of %d",
				i, len(slice.ValuesPerLevel), len(assignment.Levels))
		}
		for l := range slice.ValuesPerLevel {
			if err := completeValues(slice, &slice.ValuesPerLevel[l]); err != nil {
				return nil, fmt.Errorf("decoding a topology assignment: slice %d: %w", i, err)
			}
		}
		for d := range int(slice.DomainCount) {
			count, err := podsIn(slice, d, maxDecodedPods-len(out))
			if err != nil {
				return nil, fmt.Errorf("decoding a topology assignment: slice %d: %w", i, err)
			}
			domain := map[string]string{}
			for l, level := range assignment.Levels {
				domain[level] = domainName(&slice.ValuesPerLevel[l], d)
			}
			for range count {
				out = append(out, domain)
			}
		}
	}
	return out, nil
}

func decodeSlice(nodes []string, slice *kueue.TopologyAssignmentSlice, values *kueue.TopologyAssignmentSliceLevelValues) ([]string, error) {
	if err := completeValues(slice, values); err != nil {
		return nil, err
	}
	for d := range int(slice.DomainCount) {
		count, err := podsIn(slice, d, maxDecodedPods-len(nodes))
		if err != nil {
			return nil, err
		}
		node := domainName(values, d)
		for range count {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// completeValues says what is missing of a slice: values of a level, or numbers
// of pods.
func completeValues(slice *kueue.TopologyAssignmentSlice, values *kueue.TopologyAssignmentSliceLevelValues) error {
	domains := int(slice.DomainCount)
	if values.Universal == nil && (values.Individual == nil || len(values.Individual.Roots) != domains) {
		return fmt.Errorf("it has no value for each of its %d domains", domains)
	}
	if slice.PodCounts.Universal == nil && len(slice.PodCounts.Individual) != domains {
		return fmt.Errorf("it has %d pod counts for %d domains", len(slice.PodCounts.Individual), domains)
	}
	return nil
}

// podsIn is the number of pods in one domain of a slice, 1 to most.
func podsIn(slice *kueue.TopologyAssignmentSlice, domain, most int) (int, error) {
	count := 0
	if slice.PodCounts.Universal != nil {
		count = int(*slice.PodCounts.Universal)
	} else {
		count = int(slice.PodCounts.Individual[domain])
	}
	if count < 1 || count > most {
		return 0, fmt.Errorf("domain %d has %d pods", domain, count)
	}
	return count, nil
}

func domainName(values *kueue.TopologyAssignmentSliceLevelValues, d int) string {
	if values.Universal != nil {
		return *values.Universal
	}
	var name strings.Builder
	if values.Individual.Prefix != nil {
		name.WriteString(*values.Individual.Prefix)
	}
	name.WriteString(values.Individual.Roots[d])
	if values.Individual.Suffix != nil {
		name.WriteString(*values.Individual.Suffix)
	}
	return name.String()
}
