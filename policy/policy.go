package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
)

// Enforcement says what a violation does.
type Enforcement string

// A violation refuses the request, is told to the user, or is only recorded.
const (
	Deny   Enforcement = "deny"
	Warn   Enforcement = "warn"
	DryRun Enforcement = "dryrun"
)

// File is one module of a policy.
type File struct {
	// Name stands in errors.
	Name string
	Rego string
}

// Policy is one policy as its author wrote it.
type Policy struct {
	// Name is unique among the policies of an Engine.
	Name string
	// Generation is that of the object it was read from; 0 if there is none.
	Generation int64
	// Files are its modules, libraries included. At least one of them has a rule
	// named violation, deny or warn, or one of these with _ and more behind it.
	Files []File
	// Version is the language: "v1", "v0", or empty for the one in which it compiles,
	// v1 before v0.
	Version string
	// Input is what input is: "admission", the request as Gatekeeper and OPA's
	// tutorials know it; "manifest", the object alone as conftest knows it; or empty
	// for what the rules read.
	Input string
	// Enforcement is Deny if it is empty. Rules named warn never do more than Warn.
	Enforcement Enforcement
	// OnError is what a policy does that cannot be evaluated. Empty is its
	// Enforcement, and Warn for one that has never compiled.
	OnError Enforcement
	Match   Match
	Exempt  Exemptions
	// Parameters are input.parameters; nil is an empty object.
	Parameters map[string]any
}

// Match says for which requests a policy is asked. What is empty selects all, and
// Operations CREATE and UPDATE.
type Match struct {
	Kinds []Kinds
	// Namespaces and ExcludedNamespaces are names, which may end in '*'. An object
	// without a namespace matches no Namespaces and is never excluded.
	Namespaces         []string
	ExcludedNamespaces []string
	Operations         []admissionv1.Operation
}

// Kinds are all kinds of the names given in all groups given; "*", or none, is any.
type Kinds struct {
	APIGroups []string
	Kinds     []string
}

// Exemptions are requests of which a policy is not asked.
type Exemptions struct {
	// Namespaces may end in '*'.
	Namespaces []string
	// Users and Groups are those of whoever makes the request.
	Users  []string
	Groups []string
}

// Validate says what is wrong with the policy besides its Rego, naming the field.
func (p *Policy) Validate() error {
	if p.Name == "" {
		return fmt.Errorf("a policy has no name")
	}
	if len(p.Files) == 0 {
		return fmt.Errorf("policy %s has no Rego", p.Name)
	}
	for field, of := range map[string]struct {
		value string
		known []string
	}{
		"regoVersion": {p.Version, []string{"", versionV0, versionV1}},
		"input":       {p.Input, []string{"", inputAdmission, inputManifest}},
		"enforcement": {string(p.Enforcement), []string{"", string(Deny), string(Warn), string(DryRun)}},
		"onError":     {string(p.OnError), []string{"", string(Deny), string(Warn), string(DryRun)}},
	} {
		if !slices.Contains(of.known, of.value) {
			return fmt.Errorf("policy %s: %s is %q, which is none of %s", p.Name, field, of.value, strings.Join(of.known[1:], ", "))
		}
	}
	return nil
}

// source identifies what a program is compiled from.
func (p *Policy) source() string { return digest(p.Files, p.Version, p.Input) }

// scope identifies what belongs to a version of a policy besides its source.
func (p *Policy) scope() string { return digest(p.Match, p.Parameters) }

func digest(parts ...any) string {
	hash := sha256.New()
	// Everything in them has a JSON form: parameters were read from one.
	_ = json.NewEncoder(hash).Encode(parts)
	return hex.EncodeToString(hash.Sum(nil))
}

func (p *Policy) enforcement() Enforcement {
	if p.Enforcement == "" {
		return Deny
	}
	return p.Enforcement
}

// onError is what a failure does; compiled says whether there ever was a version.
func (p *Policy) onError(compiled bool) Enforcement {
	switch {
	case p.OnError != "":
		return milder(p.OnError, p.enforcement())
	case !compiled:
		return milder(Warn, p.enforcement())
	}
	return p.enforcement()
}

// milder is the one of two enforcements that does less.
func milder(a, b Enforcement) Enforcement {
	order := []Enforcement{Deny, Warn, DryRun}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// selects says that the request is one of those that the policy is for.
func (m *Match) selects(r *admissionv1.AdmissionRequest) bool {
	operations := m.Operations
	if len(operations) == 0 {
		operations = []admissionv1.Operation{admissionv1.Create, admissionv1.Update}
	}
	if !slices.Contains(operations, r.Operation) && !slices.Contains(operations, "*") {
		return false
	}
	if len(m.Kinds) > 0 && !slices.ContainsFunc(m.Kinds, func(k Kinds) bool {
		return among(k.APIGroups, r.Kind.Group) && among(k.Kinds, r.Kind.Kind)
	}) {
		return false
	}
	if len(m.Namespaces) > 0 && (r.Namespace == "" || !matches(m.Namespaces, r.Namespace)) {
		return false
	}
	return r.Namespace == "" || !matches(m.ExcludedNamespaces, r.Namespace)
}

// covers says that the request is exempt.
func (e *Exemptions) covers(r *admissionv1.AdmissionRequest) bool {
	return (r.Namespace != "" && matches(e.Namespaces, r.Namespace)) ||
		slices.Contains(e.Users, r.UserInfo.Username) ||
		slices.ContainsFunc(r.UserInfo.Groups, func(g string) bool { return slices.Contains(e.Groups, g) })
}

func among(names []string, name string) bool {
	return len(names) == 0 || slices.Contains(names, "*") || slices.Contains(names, name)
}

// matches says that a name is one of those listed, of which one may end in '*'.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if prefix, open := strings.CutSuffix(p, "*"); open {
			return strings.HasPrefix(name, prefix)
		}
		return p == name
	})
}
