package defaults

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// Around is what a decision depends on beside the pod template and the
// RuntimeDefaults.
type Around struct {
	// Defaulted says that the API server has filled in its own defaults, as it does
	// in pods and not in the templates of a JobSet. What equals them then counts as
	// unset.
	Defaulted bool
	// Baseline says that the namespace enforces a Pod Security level that allows no
	// capabilities beyond those of a container runtime.
	Baseline bool
	// PriorityClasses and RuntimeClasses are those that exist: a pod that names
	// another is refused.
	PriorityClasses, RuntimeClasses sets.Set[string]
	// DefaultPriorityClass is what the API server gives pods that name none, or empty.
	DefaultPriorityClass string
}

// Value is one value that RuntimeDefaults want, and what became of it.
type Value struct {
	// Field is where, as "env NCCL_DEBUG of container node".
	Field string
	// Value is what the pod has there in the end; empty where it has nothing.
	Value string
	// From names the RuntimeDefaults from which it is; empty where it was there.
	From string
	// Wanted is what the RuntimeDefaults By want.
	Wanted, By string
	// Why says why the pod does not have what is wanted; empty where it has it.
	Why string
}

// Outcome is what Stamp has found and done.
type Outcome struct {
	// Values are in the order in which they were looked at.
	Values []Value
	// Refusals are the sentences for which the object must not be created: what
	// RuntimeDefaults of class required want and cannot add.
	Refusals []string
	// Warnings are sentences for the author.
	Warnings []string
}

// Stamp adds what the RuntimeDefaults want, of which the first decides where two
// want different things, to a pod or a pod template of the document. One that asks
// for no devices, and does not start the ranks of an MPI job, stays as it is. A
// second run changes nothing.
func (d *Document) Stamp(template Template, chosen []*v1alpha1.RuntimeDefaults, around Around) Outcome {
	s := &stamper{doc: d, at: template.at, pod: template.Pod, around: around, from: map[string]string{}}
	launcher := s.launcher()
	devices := len(s.targets(nil)) > 0
	if !devices && launcher == nil {
		return Outcome{}
	}
	for _, by := range chosen {
		s.by, s.changed = by, false
		var targets []*container
		if devices {
			targets = s.targets(by.Spec.Containers.Names)
		}
		for _, c := range targets {
			s.container(c)
		}
		if len(targets) > 0 {
			s.sharedMemory(targets)
			s.podFields()
		}
		if launcher != nil && launcher.named(by.Spec.Containers.Names) {
			if !launcher.among(targets) {
				s.env(launcher)
			}
			s.forward(launcher)
		}
		if s.changed {
			s.record.Applied = append(s.record.Applied, reference(by))
		}
	}
	s.note()
	return s.out
}

// Template is a pod, or a pod template, of a document.
type Template struct {
	at path
	// Pod is what it says. The API's type of templates has the fields of pods.
	Pod *corev1.PodTemplateSpec
}

// Pod is the document itself, which must be a pod.
func (d *Document) Pod() (Template, error) { return d.template(nil) }

// Templates are the pod templates of the document, which must be a JobSet, in order.
// Those without a spec are left out.
func (d *Document) Templates() ([]Template, error) {
	jobs, _ := d.get(path{"spec", "replicatedJobs"})
	list, _ := jobs.([]any)
	var out []Template
	for i := range list {
		at := path{"spec", "replicatedJobs", strconv.Itoa(i), "template", "spec", "template"}
		if _, found := d.get(at.to("spec")); !found {
			continue
		}
		t, err := d.template(at)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func (d *Document) template(at path) (Template, error) {
	node, _ := d.get(at)
	fields, ok := node.(map[string]any)
	if !ok {
		return Template{}, fmt.Errorf("reading the pod template at %q: it is no object", at.pointer())
	}
	t := Template{at: at, Pod: &corev1.PodTemplateSpec{}}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, t.Pod); err != nil {
		return Template{}, fmt.Errorf("reading the pod template at %q: %w", at.pointer(), err)
	}
	return t, nil
}

// stamper is one run over one template. The pod is kept as the document becomes,
// so that each of the RuntimeDefaults sees what those before it have added.
type stamper struct {
	doc    *Document
	at     path
	pod    *corev1.PodTemplateSpec
	around Around
	// by is whose turn it is.
	by      *v1alpha1.RuntimeDefaults
	changed bool
	// from says which RuntimeDefaults decided a field.
	from   map[string]string
	record record
	out    Outcome
}

// spec is the path of the pod's spec.
func (s *stamper) spec(steps ...string) path { return s.at.to("spec").to(steps...) }

// state is who has decided a field.
type state int

const (
	// absent: the field is not there.
	absent state = iota
	// preset: it has what the API server gives it where nobody has decided.
	preset
	// authored: it is somebody's choice.
	authored
)

// stateOf is the state of a field that is there, or holds a preset.
func stateOf(there, byDefault bool) state {
	switch {
	case !there:
		return absent
	case byDefault:
		return preset
	}
	return authored
}

// decide says whether a field is to be set, and notes what becomes of it.
func (s *stamper) decide(field, want, have string, is state) bool {
	v := Value{Field: field, Value: have, From: s.from[field], Wanted: want, By: s.by.Name}
	set := v.From == "" && (is == absent || (is == preset && have != want))
	switch {
	case v.From == "" && is != authored:
		v.Value, v.From = want, s.by.Name
		s.from[field] = s.by.Name
		s.changed = s.changed || set
	case have == want:
		if v.From == "" {
			s.from[field] = s.by.Name // it stands for this one against those that follow
		}
	case v.From != "":
		v.Why = fmt.Sprintf("RuntimeDefaults %s come first", v.From)
	default:
		v.Why = "set by the author"
		s.refuse("%s must be %q, and is %q", field, want, have)
	}
	s.out.Values = append(s.out.Values, v)
	return set
}

// leave notes that a value is not added, and tells the author.
func (s *stamper) leave(field, want, why string) {
	s.out.Values = append(s.out.Values, Value{Field: field, Wanted: want, By: s.by.Name, Why: why})
	s.out.Warnings = append(s.out.Warnings, fmt.Sprintf("RuntimeDefaults %s: %s is not set to %q: %s", s.by.Name, field, want, why))
}

// refuse refuses the object if the RuntimeDefaults are required.
func (s *stamper) refuse(format string, args ...any) {
	if required(s.by) {
		s.out.Refusals = append(s.out.Refusals, fmt.Sprintf("RuntimeDefaults %s: ", s.by.Name)+fmt.Sprintf(format, args...))
	}
}
