package policyfiles

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-gpu/muster/policy"
)

// The groups of Gatekeeper's objects.
const (
	templateGroup   = "templates.gatekeeper.sh"
	constraintGroup = "constraints.gatekeeper.sh"
)

// gatekeeper are the objects of Gatekeeper in all files: a template has the rules, and
// each constraint of its kind is a policy of them.
type gatekeeper struct {
	templates   []template
	constraints []constraint
}

// template is what is read of a ConstraintTemplate.
type template struct {
	path string
	Spec struct {
		CRD struct {
			Spec struct {
				Names struct {
					Kind string `json:"kind"`
				} `json:"names"`
			} `json:"spec"`
		} `json:"crd"`
		Targets []struct {
			module
			Code []struct {
				Engine string `json:"engine"`
				Source module `json:"source"`
			} `json:"code"`
		} `json:"targets"`
	} `json:"spec"`
}

// module is Rego with its libraries.
type module struct {
	Rego    string   `json:"rego"`
	Libs    []string `json:"libs"`
	Version string   `json:"version"`
}

// constraint is what is read of an object of a template's kind.
type constraint struct {
	path string
	kind string
	name string
	Spec struct {
		EnforcementAction policy.Enforcement `json:"enforcementAction"`
		Match             struct {
			Kinds              []policy.Kinds `json:"kinds"`
			Namespaces         []string       `json:"namespaces"`
			ExcludedNamespaces []string       `json:"excludedNamespaces"`
		} `json:"match"`
		Parameters map[string]any `json:"parameters"`
	} `json:"spec"`
}

// add keeps an object if it is one of Gatekeeper's.
func (g *gatekeeper) add(path string, u *unstructured.Unstructured) error {
	var into any
	switch u.GroupVersionKind().Group {
	case templateGroup:
		g.templates = append(g.templates, template{path: path})
		into = &g.templates[len(g.templates)-1]
	case constraintGroup:
		g.constraints = append(g.constraints, constraint{path: path, kind: u.GetKind(), name: u.GetName()})
		into = &g.constraints[len(g.constraints)-1]
	default:
		return nil
	}
	body, err := u.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s %s of %s: %w", u.GetKind(), u.GetName(), path, err)
	}
	return nil
}

// files are the modules of a template. Those of code are for engines other than Rego
// where they say so.
func (t *template) files() (files []policy.File, version string) {
	name := t.path + ":" + t.Spec.CRD.Spec.Names.Kind
	for _, target := range t.Spec.Targets {
		m := target.module
		for _, code := range target.Code {
			if code.Engine == "Rego" {
				m = code.Source
			}
		}
		if m.Rego == "" {
			continue
		}
		files = append(files, policy.File{Name: name + ":rego", Rego: m.Rego})
		for i, lib := range m.Libs {
			files = append(files, policy.File{Name: fmt.Sprintf("%s:libs[%d]", name, i), Rego: lib})
		}
		return files, m.Version
	}
	return nil, ""
}

// policies are those of the constraints, and of templates that have none.
func (g *gatekeeper) policies() ([]policy.Policy, error) {
	var out []policy.Policy
	used := map[string]bool{}
	for i := range g.constraints {
		c := &g.constraints[i]
		t := g.template(c.kind)
		if t == nil {
			return nil, fmt.Errorf("%s %s of %s has no ConstraintTemplate in the files", c.kind, c.name, c.path)
		}
		used[c.kind] = true
		p := t.policy(c.name)
		p.Enforcement, p.Parameters = c.Spec.EnforcementAction, c.Spec.Parameters
		p.Match = policy.Match{Kinds: c.Spec.Match.Kinds, Namespaces: c.Spec.Match.Namespaces, ExcludedNamespaces: c.Spec.Match.ExcludedNamespaces}
		out = append(out, p)
	}
	for i := range g.templates {
		if t := &g.templates[i]; !used[t.Spec.CRD.Spec.Names.Kind] {
			out = append(out, t.policy(t.Spec.CRD.Spec.Names.Kind))
		}
	}
	return out, nil
}

func (g *gatekeeper) template(kind string) *template {
	for i := range g.templates {
		if g.templates[i].Spec.CRD.Spec.Names.Kind == kind {
			return &g.templates[i]
		}
	}
	return nil
}

func (t *template) policy(name string) policy.Policy {
	p := policy.Policy{Name: name}
	p.Files, p.Version = t.files()
	return p
}
