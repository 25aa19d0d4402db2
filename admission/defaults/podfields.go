package defaults

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// podFields adds what concerns the pod as a whole.
func (s *stamper) podFields() {
	want := &s.by.Spec.Pod
	s.keys("label", "labels", want.Labels, &s.pod.Labels, &s.record.Labels)
	s.keys("annotation", "annotations", want.Annotations, &s.pod.Annotations, &s.record.Annotations)
	s.tolerations(want.Tolerations)
	s.priority(want.PriorityClassName)

	if name := want.SchedulerName; name != "" {
		have := s.pod.Spec.SchedulerName
		if s.decide("schedulerName", name, have, stateOf(have != "", s.around.Defaulted && have == corev1.DefaultSchedulerName)) {
			s.pod.Spec.SchedulerName = name
			s.doc.set(s.spec("schedulerName"), name)
		}
	}
	if name := want.RuntimeClassName; name != "" {
		have := ""
		if s.pod.Spec.RuntimeClassName != nil {
			have = *s.pod.Spec.RuntimeClassName
		}
		switch {
		case have == "" && !s.around.RuntimeClasses.Has(name):
			s.leave("runtimeClassName", name, "there is no such RuntimeClass")
		case s.decide("runtimeClassName", name, have, stateOf(have != "", false)):
			s.pod.Spec.RuntimeClassName = &name
			s.doc.set(s.spec("runtimeClassName"), name)
		}
	}
	if period := want.TerminationGracePeriodSeconds; period != nil {
		have := s.pod.Spec.TerminationGracePeriodSeconds
		is := stateOf(have != nil, have != nil && s.around.Defaulted && *have == corev1.DefaultTerminationGracePeriodSeconds)
		if s.decide("terminationGracePeriodSeconds", seconds(period), seconds(have), is) {
			s.pod.Spec.TerminationGracePeriodSeconds = period
			s.doc.set(s.spec("terminationGracePeriodSeconds"), *period)
		}
	}
}

// keys adds labels or annotations that are not there.
func (s *stamper) keys(what, field string, want map[string]string, have, added *map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		value, found := (*have)[key]
		if !s.decide(what+" "+key, want[key], value, stateOf(found, false)) {
			continue
		}
		for _, m := range []*map[string]string{have, added} {
			if *m == nil {
				*m = map[string]string{}
			}
			(*m)[key] = want[key]
		}
		s.doc.set(s.at.to("metadata", field, key), want[key])
	}
}

// tolerations are united with those that are there. One that tolerates no more than
// another which is there is not added.
func (s *stamper) tolerations(want []corev1.Toleration) {
	var missing []any
	for _, t := range want {
		field := "toleration " + toleration(&t)
		if i := slices.IndexFunc(s.pod.Spec.Tolerations, func(have corev1.Toleration) bool { return covers(&have, &t) }); i >= 0 {
			s.decide(field, "there", "there", authored)
			continue
		}
		if s.decide(field, "there", "", absent) {
			missing = append(missing, t)
			s.pod.Spec.Tolerations = append(s.pod.Spec.Tolerations, t)
			s.record.Tolerations = append(s.record.Tolerations, t)
		}
	}
	s.doc.extend(s.spec("tolerations"), missing...)
}

// covers says that every taint that b tolerates, a tolerates too. For how long is
// the author's affair.
func covers(a, b *corev1.Toleration) bool {
	operator := func(t *corev1.Toleration) corev1.TolerationOperator {
		if t.Operator == "" {
			return corev1.TolerationOpEqual
		}
		return t.Operator
	}
	if a.Effect != "" && a.Effect != b.Effect {
		return false
	}
	if operator(a) == corev1.TolerationOpExists {
		return a.Key == "" || a.Key == b.Key
	}
	return a.Key == b.Key && operator(a) == operator(b) && a.Value == b.Value
}

// toleration is one as kubectl writes a taint.
func toleration(t *corev1.Toleration) string {
	text := t.Key
	if t.Key == "" {
		text = "*"
	}
	if t.Value != "" {
		text += "=" + t.Value
	}
	return strings.TrimSuffix(text+":"+string(t.Effect), ":")
}

// priority sets the class. The API server has computed the pod's priority before it
// asks the webhook, and refuses a pod whose numbers are not those of its class; it
// computes them again if they are not there.
func (s *stamper) priority(name string) {
	if name == "" {
		return
	}
	have := s.pod.Spec.PriorityClassName
	is := stateOf(have != "", s.around.Defaulted && have == s.around.DefaultPriorityClass)
	if is != authored && !s.around.PriorityClasses.Has(name) {
		s.leave("priorityClassName", name, "there is no such PriorityClass")
		return
	}
	if s.decide("priorityClassName", name, have, is) {
		s.pod.Spec.PriorityClassName = name
		s.doc.set(s.spec("priorityClassName"), name)
		s.doc.remove(s.spec("priority"))
		s.doc.remove(s.spec("preemptionPolicy"))
	}
}
