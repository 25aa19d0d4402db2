package rendering

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// Difference says what a real pod needs of its node that a planned pod does
// not, in phrases that read well after "they": empty if the plan serves it. A
// pod that needs less is no difference. real must come from Asked.
func Difference(planned, real *corev1.PodSpec) []string {
	var out []string
	add := func(format string, args []string) {
		if len(args) > 0 {
			out = append(out, fmt.Sprintf(format, strings.Join(args, " and ")))
		}
	}
	if more := moreRequests(planned, real); len(more) > 0 {
		add("request %s", amounts(more))
		if names := injected(planned, real); len(names) > 0 {
			out[len(out)-1] += fmt.Sprintf(" (injected: %s)", strings.Join(names, ", "))
		}
	}
	add("select nodes with %s", moreLabels(planned.NodeSelector, real.NodeSelector))
	if terms := nodeTerms(real); len(terms) > 0 && !equality.Semantic.DeepEqual(terms, nodeTerms(planned)) {
		out = append(out, "have another node affinity")
	}
	near := func(s *corev1.PodSpec) []corev1.PodAffinityTerm { return podTerms(s, false) }
	apart := func(s *corev1.PodSpec) []corev1.PodAffinityTerm { return podTerms(s, true) }
	topology := func(t corev1.PodAffinityTerm) string { return t.TopologyKey }
	add("must be near other pods by %s", names(missing(near(real), near(planned)), topology))
	add("must be apart from other pods by %s", names(missing(apart(real), apart(planned)), topology))
	add("must be spread by %s", names(missing(spread(real), spread(planned)), func(c corev1.TopologySpreadConstraint) string { return c.TopologyKey }))
	add("do not tolerate %s", names(untolerated(planned, real), func(t corev1.Toleration) string { return cmp.Or(t.Key, "all taints") }))
	add("use host port %s", names(missing(hostPorts(real), hostPorts(planned)), func(p corev1.ContainerPort) string { return fmt.Sprintf("%d/%s", p.HostPort, p.Protocol) }))
	add("mount volume %s", names(missing(volumes(real), volumes(planned)), func(v corev1.Volume) string { return v.Name }))
	add("ask for resource claim %s", names(missing(real.ResourceClaims, planned.ResourceClaims), func(c corev1.PodResourceClaim) string { return c.Name }))
	return out
}

// Asked is the spec of a real pod without what is not its pod set's: what
// JobSet's exclusive placement gives each of its pods, and a pin to one node.
func Asked(pod *corev1.Pod) *corev1.PodSpec {
	s := pod.Spec.DeepCopy()
	s.NodeName = ""
	exclusive := pod.Annotations[jobset.ExclusiveKey]
	if exclusive != "" {
		delete(s.NodeSelector, exclusive)
	}
	a := s.Affinity
	if a == nil {
		return s
	}
	if n := a.NodeAffinity; n != nil && n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms := nodeTerms(s)
		n.RequiredDuringSchedulingIgnoredDuringExecution = nil
		if len(terms) > 0 {
			n.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
		}
	}
	if exclusive == "" {
		return s
	}
	ofJobSet := func(t corev1.PodAffinityTerm) bool {
		return t.TopologyKey == exclusive && t.LabelSelector != nil &&
			slices.ContainsFunc(t.LabelSelector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == jobset.JobKey })
	}
	if p := a.PodAffinity; p != nil {
		p.RequiredDuringSchedulingIgnoredDuringExecution = slices.DeleteFunc(p.RequiredDuringSchedulingIgnoredDuringExecution, ofJobSet)
	}
	if p := a.PodAntiAffinity; p != nil {
		p.RequiredDuringSchedulingIgnoredDuringExecution = slices.DeleteFunc(p.RequiredDuringSchedulingIgnoredDuringExecution, ofJobSet)
	}
	return s
}

// Cover makes s, a spec from Asked, request at least what was planned before,
// so that pods of one set that differ from each other are all covered in the
// end, whatever the order in which they appear.
func Cover(s, planned *corev1.PodSpec) {
	more := moreRequests(s, planned)
	if len(more) == 0 {
		return
	}
	overhead := maps.Clone(s.Overhead)
	if overhead == nil {
		overhead = corev1.ResourceList{}
	}
	for name, q := range more {
		sum := overhead[name]
		sum.Add(q)
		overhead[name] = sum
	}
	s.Overhead = overhead
}

// moreRequests is what b requests beyond a.
func moreRequests(a, b *corev1.PodSpec) corev1.ResourceList {
	has, wants := requests(a), requests(b)
	more := corev1.ResourceList{}
	for name, q := range wants {
		if q.Sub(has[name]); q.Sign() > 0 {
			more[name] = q
		}
	}
	return more
}

func requests(s *corev1.PodSpec) corev1.ResourceList {
	return resourcehelper.PodRequests(&corev1.Pod{Spec: *s}, resourcehelper.PodResourcesOptions{})
}

func amounts(more corev1.ResourceList) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(more)) {
		q := more[name]
		out = append(out, fmt.Sprintf("%s more %s", q.String(), name))
	}
	return out
}

// injected are the containers of a real pod that the planned one has not.
func injected(planned, real *corev1.PodSpec) []string {
	name := func(c corev1.Container) string { return c.Name }
	all := func(s *corev1.PodSpec) []corev1.Container { return slices.Concat(s.InitContainers, s.Containers) }
	has := names(all(planned), name)
	return slices.DeleteFunc(names(all(real), name), func(n string) bool { return slices.Contains(has, n) })
}

func moreLabels(planned, real map[string]string) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(real)) {
		if has, found := planned[key]; !found || has != real[key] {
			out = append(out, key+"="+real[key])
		}
	}
	return out
}

// nodeTerms are the required node affinity, without pins to a node's name as
// DaemonSets have them.
func nodeTerms(s *corev1.PodSpec) []corev1.NodeSelectorTerm {
	if s.Affinity == nil || s.Affinity.NodeAffinity == nil || s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	var out []corev1.NodeSelectorTerm
	for _, t := range s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(t.MatchExpressions) > 0 {
			out = append(out, corev1.NodeSelectorTerm{MatchExpressions: t.MatchExpressions})
		}
	}
	return out
}

// podTerms are the required terms of affinity or anti-affinity, as they are in
// a template: the API server resolves label keys to the labels of each pod.
func podTerms(s *corev1.PodSpec, anti bool) []corev1.PodAffinityTerm {
	if s.Affinity == nil {
		return nil
	}
	var terms []corev1.PodAffinityTerm
	switch {
	case !anti && s.Affinity.PodAffinity != nil:
		terms = slices.Clone(s.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	case anti && s.Affinity.PodAntiAffinity != nil:
		terms = slices.Clone(s.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	for i := range terms {
		terms[i].LabelSelector = unresolved(terms[i].LabelSelector, slices.Concat(terms[i].MatchLabelKeys, terms[i].MismatchLabelKeys))
	}
	return terms
}

func spread(s *corev1.PodSpec) []corev1.TopologySpreadConstraint {
	var out []corev1.TopologySpreadConstraint
	for _, c := range s.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			c.LabelSelector = unresolved(c.LabelSelector, c.MatchLabelKeys)
			out = append(out, c)
		}
	}
	return out
}

// unresolved is a selector without the requirements of the keys given.
func unresolved(s *metav1.LabelSelector, keys []string) *metav1.LabelSelector {
	if s == nil || len(keys) == 0 {
		return s
	}
	out := *s
	out.MatchExpressions = slices.DeleteFunc(slices.Clone(s.MatchExpressions), func(r metav1.LabelSelectorRequirement) bool {
		return slices.Contains(keys, r.Key)
	})
	return &out
}

// untolerated are the tolerations that were planned with and that a real pod
// has in no form. Those of nodes that are not ready are left out: nothing is
// planned there.
func untolerated(planned, real *corev1.PodSpec) []corev1.Toleration {
	var out []corev1.Toleration
	for _, t := range planned.Tolerations {
		if t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable || t.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(real.Tolerations, func(o corev1.Toleration) bool { return covers(o, t) }) {
			out = append(out, t)
		}
	}
	return out
}

// covers says that o tolerates all that t does.
func covers(o, t corev1.Toleration) bool {
	if o.Effect != "" && o.Effect != t.Effect {
		return false
	}
	if o.Operator == corev1.TolerationOpExists {
		return o.Key == "" || o.Key == t.Key
	}
	return o.Key == t.Key && o.Value == t.Value && cmp.Or(o.Operator, corev1.TolerationOpEqual) == cmp.Or(t.Operator, corev1.TolerationOpEqual)
}

func hostPorts(s *corev1.PodSpec) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				out = append(out, corev1.ContainerPort{HostIP: cmp.Or(p.HostIP, "0.0.0.0"), HostPort: p.HostPort, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP)})
			}
		}
	}
	return out
}

// volumes are those that tie a pod to nodes: claims, and disks that one node
// has at a time.
func volumes(s *corev1.PodSpec) []corev1.Volume {
	var out []corev1.Volume
	for _, v := range s.Volumes {
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.ISCSI != nil || v.RBD != nil {
			out = append(out, v)
		}
	}
	return out
}

// missing are the items of a that b has not.
func missing[T any](a, b []T) []T {
	var out []T
	for _, x := range a {
		if !slices.ContainsFunc(b, func(y T) bool { return equality.Semantic.DeepEqual(x, y) }) {
			out = append(out, x)
		}
	}
	return out
}

func names[T any](list []T, name func(T) string) []string {
	var out []string
	for _, x := range list {
		out = append(out, name(x))
	}
	return out
}
