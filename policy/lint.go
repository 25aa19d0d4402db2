package policy

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Lint finds what compiles and lets objects through that it should not, or the other
// way round. wrong is why the policy does not compile, as Errors.
func Lint(p *Policy) (hints []Error, wrong error) {
	if _, err := compile(context.Background(), p, newStore()); err != nil {
		return nil, err
	}
	modules, _, err := parseVersions(p)
	if err != nil {
		return nil, err
	}
	input := p.Input
	if input == "" {
		input = inputOf(modules)
	}
	for _, m := range modules {
		if input == inputAdmission {
			hints = append(hints, unknownFields(m)...)
		}
		hints = append(hints, unconditional(m)...)
		hints = append(hints, someContainers(m)...)
	}
	slices.SortFunc(hints, func(a, b Error) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Row-b.Row, a.Col-b.Col, strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(hints), nil
}

// admissionFields are those of input.
var admissionFields = []string{"request", "review", "parameters", "workload", "kind", "apiVersion"}

// unknownFields are fields of input that are never there, as those of a misspelt name.
func unknownFields(m *ast.Module) []Error {
	var out []Error
	refsTo(m, ast.InputRootDocument, func(ref ast.Ref) {
		if field := fieldOf(ref); field != "" && !slices.Contains(admissionFields, field) {
			out = append(out, at(ref[0].Location, "input.%s is never there, so what reads it is undefined: input has %s", field, strings.Join(admissionFields, ", ")))
		}
	})
	return out
}

// unconditional are rules that say the same of every object.
func unconditional(m *ast.Module) []Error {
	var out []Error
	for _, r := range m.Rules {
		if result, _ := isResult(string(r.Head.Ref()[0].Value.(ast.Var))); !result || r.Default {
			continue
		}
		// Whatever is not a literal may read the object, be it through another rule.
		depends := false
		ast.WalkTerms(r, func(t *ast.Term) bool {
			v, ok := t.Value.(ast.Var)
			depends = depends || (ok && !v.IsWildcard())
			return depends
		})
		if !depends {
			out = append(out, at(r.Location, "the rule %s depends on nothing, so it is the same for every object", r.Head.Ref()))
		}
	}
	return out
}

// someContainers is a module that looks at some of a pod's containers.
func someContainers(m *ast.Module) []Error {
	kinds := map[string]*ast.Location{}
	ast.WalkTerms(m, func(t *ast.Term) bool {
		if ref, ok := t.Value.(ast.Ref); ok && ref[0].Equal(ast.InputRootDocument) && fieldOf(ref) == "workload" {
			return true
		}
		if s, ok := t.Value.(ast.String); ok && kinds[string(s)] == nil {
			kinds[string(s)] = t.Location
		}
		return false
	})
	where := kinds["containers"]
	if where == nil {
		return nil
	}
	var missing []string
	for _, kind := range []string{"initContainers", "ephemeralContainers"} {
		if kinds[kind] == nil {
			missing = append(missing, kind)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return []Error{at(where, "it reads containers and not %s, which run too: input.workload.containers has all of them", strings.Join(missing, " and "))}
}
