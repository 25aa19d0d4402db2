package defaults

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var jobSets = schema.GroupVersionResource{Group: jobSetGroup, Version: "v1alpha2", Resource: "jobsets"}

// Explanation says of one pod or pod template where it has its values from.
type Explanation struct {
	// Template is the name of the replicated job of a JobSet; empty of a pod.
	Template string
	// Exists says that it is in the cluster, with what it got when it was created.
	Exists bool
	// Applied are the RuntimeDefaults that have changed it, as "name@generation".
	Applied []string
	// Chosen are the names of those that select it now, the first in order first.
	Chosen []string
	Outcome
}

// Explain says what the RuntimeDefaults that are known now would make of a pod or a
// JobSet, whether it exists or is still to be created. A pod of a JobSet that exists
// is looked at as the JobSet is. Nothing is written.
func (c *Catalog) Explain(ctx context.Context, object *unstructured.Unstructured) ([]Explanation, error) {
	raw, err := object.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	d, err := Read(raw)
	if err != nil {
		return nil, err
	}
	var templates []Template
	subjectOf, kind := object, object.GetKind()
	switch kind {
	case podKind:
		var t Template
		if t, err = d.Pod(); err == nil {
			templates = []Template{t}
		}
		if member(d) {
			kind = "JobSet"
			subjectOf, err = c.jobSet(ctx, object)
		}
	case "JobSet":
		templates, err = d.Templates()
	default:
		return nil, fmt.Errorf("a %s gets no RuntimeDefaults: its pods do, or its JobSet", kind)
	}
	if err != nil {
		return nil, err
	}
	all := c.All()
	subject, err := c.subject(ctx, object.GetNamespace(), kind, subjectOf, all)
	if err != nil {
		return nil, err
	}
	var out []Explanation
	for _, t := range templates {
		chosen := Choose(all, subject, t.Pod.Labels)
		e := Explanation{Exists: object.GetUID() != "", Applied: Applied(t.Pod), Outcome: d.Stamp(t, chosen, c.around(subject.Namespace, kind == podKind))}
		if kind == "JobSet" && object.GetKind() == kind {
			e.Template = fmt.Sprint(d.job(t))
		}
		for _, by := range chosen {
			e.Chosen = append(e.Chosen, by.Name)
		}
		out = append(out, e)
	}
	return out, nil
}

// jobSet is the JobSet of a pod.
func (c *Catalog) jobSet(ctx context.Context, pod *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	name := pod.GetLabels()[jobSetLabel]
	js, err := c.dynamic.Resource(jobSets).Namespace(pod.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading JobSet %s/%s: %w", pod.GetNamespace(), name, err)
	}
	return js, nil
}

// Line is one field of a pod: what it has there in the end, and from where.
type Line struct{ Field, Value, Source string }

// Lines has each field that RuntimeDefaults want once, in the order in which they were
// looked at.
func (e *Explanation) Lines() []Line {
	var fields []string
	byField := map[string][]Value{}
	for _, v := range e.Values {
		if _, seen := byField[v.Field]; !seen {
			fields = append(fields, v.Field)
		}
		byField[v.Field] = append(byField[v.Field], v)
	}
	var lines []Line
	for _, field := range fields {
		lines = append(lines, e.line(byField[field]))
	}
	return lines
}

// line is about what all want of one field, the first in order first.
func (e *Explanation) line(all []Value) Line {
	decided := 0
	for _, decides := range []func(Value) bool{
		e.recorded,
		func(v Value) bool { return v.From != "" && v.Why == "" },
		func(v Value) bool { return v.Value != "" },
	} {
		if i := slices.IndexFunc(all, decides); i >= 0 {
			decided = i
			break
		}
	}
	is := all[decided]
	l := Line{Field: is.Field, Value: is.Value, Source: e.source(is)}
	for i, v := range all {
		switch {
		case i == decided || v.Wanted == is.Value:
		case left(v):
			l.Source += "; " + e.source(v)
		case is.Why != "":
			l.Source += fmt.Sprintf(", nor %q of RuntimeDefaults %s", v.Wanted, v.By)
		case i < decided:
			l.Source += fmt.Sprintf("; a new one gets %q from RuntimeDefaults %s", v.Wanted, v.By)
		default:
			l.Source += fmt.Sprintf(", before RuntimeDefaults %s with %q", v.By, v.Wanted)
		}
	}
	return l
}

// recorded says that a value which is there is from RuntimeDefaults that have changed
// the pod.
func (e *Explanation) recorded(v Value) bool {
	return v.From == "" && v.Why == "" && slices.ContainsFunc(e.Applied, func(a string) bool { return strings.HasPrefix(a, v.By+"@") })
}

// left says that a value is not added though nobody has set another one.
func left(v Value) bool { return v.Why != "" && v.Value == "" }

// source says where a value is from, or why it is not there.
func (e *Explanation) source(v Value) string {
	switch {
	case left(v):
		return fmt.Sprintf("not set to %q of RuntimeDefaults %s: %s", v.Wanted, v.By, v.Why)
	case v.Why != "":
		return fmt.Sprintf("its author or runtime, not %q of RuntimeDefaults %s", v.Wanted, v.By)
	case v.From != "" && e.Exists:
		return fmt.Sprintf("only a new one gets it from RuntimeDefaults %s", v.From)
	case v.From != "", e.recorded(v):
		return "RuntimeDefaults " + v.By
	}
	return "its author or runtime, as RuntimeDefaults " + v.By + " want it"
}
