package policy

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// What a status says at most, so that an object stays small: errors, and bytes of
// each message.
const (
	maxErrors  = 20
	maxMessage = 1024
)

// FromAPI is the policy of an object. Its files are called rego and libs[0] and so
// on. The error says that its parameters are no object.
func FromAPI(o *v1alpha1.AdmissionPolicy) (Policy, error) {
	s := &o.Spec
	p := Policy{
		Name: o.Name, Generation: o.Generation, Files: []File{{Name: "rego", Rego: s.Rego}},
		Version: s.RegoVersion, Input: s.Input, Enforcement: Enforcement(s.Enforcement), OnError: Enforcement(s.OnError),
		Match:  Match{Namespaces: s.Match.Namespaces, ExcludedNamespaces: s.Match.ExcludedNamespaces},
		Exempt: Exemptions{Namespaces: s.Exempt.Namespaces, Users: s.Exempt.Users, Groups: s.Exempt.Groups},
	}
	for i, lib := range s.Libs {
		p.Files = append(p.Files, File{Name: fmt.Sprintf("libs[%d]", i), Rego: lib})
	}
	for _, k := range s.Match.Kinds {
		p.Match.Kinds = append(p.Match.Kinds, Kinds{APIGroups: k.APIGroups, Kinds: k.Kinds})
	}
	for _, o := range s.Match.Operations {
		p.Match.Operations = append(p.Match.Operations, admissionv1.Operation(o))
	}
	if s.Parameters != nil && len(s.Parameters.Raw) > 0 {
		if err := json.Unmarshal(s.Parameters.Raw, &p.Parameters); err != nil {
			return p, fmt.Errorf("reading the parameters of AdmissionPolicy %s: %w", o.Name, err)
		}
	}
	return p, nil
}

// ToAPI writes a status into that of the object. What does not change keeps its
// times, so that an equal status is an equal object.
func (s *Status) ToAPI(into *v1alpha1.AdmissionPolicyStatus) {
	into.ObservedGeneration, into.RegoVersion, into.Input = s.Generation, s.RegoVersion, s.Input
	into.LastGoodGeneration, into.QuarantinedUntil = 0, nil
	if s.Serving != nil {
		into.LastGoodGeneration = *s.Serving
	}
	if !s.Quarantined.IsZero() {
		until := metav1.NewTime(s.Quarantined).Rfc3339Copy()
		into.QuarantinedUntil = &until
	}
	into.Errors = nil
	for _, e := range s.Errors[:min(len(s.Errors), maxErrors)] {
		into.Errors = append(into.Errors, v1alpha1.PolicyError{File: e.File, Row: int32(e.Row), Column: int32(e.Col), Message: short(e.Message)})
	}
	into.Counts = v1alpha1.PolicyCounts(s.Counts)
	into.LastViolations = nil
	for i := range s.Last {
		into.LastViolations = append(into.LastViolations, s.Last[i].ToAPI())
	}
	compiled := metav1.Condition{
		Type: v1alpha1.ConditionCompiled, Status: metav1.ConditionTrue, Reason: "Compiled", ObservedGeneration: s.Generation,
		Message: "the newest version is asked",
	}
	switch {
	case s.Compiled:
	case s.Serving != nil:
		compiled.Status, compiled.Reason = metav1.ConditionFalse, "LastGoodServes"
		compiled.Message = fmt.Sprintf("generation %d is asked, because the newest version does not compile: %s", *s.Serving, short(s.Errors[0].Error()))
	default:
		compiled.Status, compiled.Reason = metav1.ConditionFalse, "NeverCompiled"
		compiled.Message = "the policy is not asked, because it does not compile: " + short(s.Errors[0].Error())
	}
	apimeta.SetStatusCondition(&into.Conditions, compiled)
}

// ToAPI is the violation as the API server keeps it.
func (r *Recorded) ToAPI() v1alpha1.PolicyViolation {
	return v1alpha1.PolicyViolation{
		Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Message: short(r.Message), At: metav1.NewTime(r.At).Rfc3339Copy(),
	}
}

// short is a message of at most maxMessage bytes.
func short(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	end := maxMessage - len("...")
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + "..."
}
