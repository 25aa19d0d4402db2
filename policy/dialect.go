package policy

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// The versions of the language, and what input can be.
const (
	versionV0      = "v0"
	versionV1      = "v1"
	inputAdmission = "admission"
	inputManifest  = "manifest"
)

// exceptionRule names, as in conftest, the rules whose violations do not count.
const exceptionRule = "exception"

// inventoryRoot is the one document of data that policies may read.
const inventoryRoot = "inventory"

// isResult says that a rule of the name says what is wrong with an object, and
// whether it can only warn: violation as in Gatekeeper, deny as in OPA's tutorials,
// deny, warn and these with _ and more behind them as in conftest.
func isResult(name string) (result, warns bool) {
	for _, word := range []string{"violation", "deny", "warn"} {
		if name == word || strings.HasPrefix(name, word+"_") {
			return true, word == "warn"
		}
	}
	return false, false
}

// suffix is what a rule's name has behind violation_, deny_ or warn_.
func suffix(name string) string {
	_, after, _ := strings.Cut(name, "_")
	return after
}

// ruleNames are the names of a module's rules, sorted, each once.
func ruleNames(m *ast.Module) []string {
	var names []string
	for _, r := range m.Rules {
		names = append(names, string(r.Head.Ref()[0].Value.(ast.Var)))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// inputOf says what the rules take input for. Those that read no field of the
// object, nor of a request, take either.
func inputOf(modules []*ast.Module) string {
	kind := inputAdmission
	for _, key := range fieldsOf(modules, ast.InputRootDocument) {
		switch key {
		case "request", "review", "parameters", "workload":
			return inputAdmission
		case "":
		default:
			kind = inputManifest
		}
	}
	return kind
}

// fieldsOf are the fields of a root document that modules name; "" stands for one
// that is not named as such.
func fieldsOf(modules []*ast.Module, root *ast.Term) []string {
	var out []string
	for _, m := range modules {
		refsTo(m, root, func(ref ast.Ref) { out = append(out, fieldOf(ref)) })
	}
	return out
}

// refsTo calls f with every reference to a root document in the imports and rules
// of a module.
func refsTo(m *ast.Module, root *ast.Term, f func(ast.Ref)) {
	visit := func(ref ast.Ref) bool {
		if len(ref) > 0 && ref[0].Equal(root) {
			f(ref)
		}
		return false
	}
	for _, i := range m.Imports {
		ast.WalkRefs(i.Path, visit)
	}
	for _, r := range m.Rules {
		ast.WalkRefs(r, visit)
	}
}

func fieldOf(ref ast.Ref) string {
	if len(ref) < 2 {
		return ""
	}
	s, _ := ref[1].Value.(ast.String)
	return string(s)
}

// checkData finds references to data that would be undefined for ever, so that the
// rule with them would silently let everything through.
func checkData(modules []*ast.Module) Errors {
	roots := []string{inventoryRoot}
	var wrong Errors
	for _, m := range modules {
		root := fieldOf(m.Package.Path)
		if root == inventoryRoot {
			wrong = append(wrong, at(m.Package.Location, "a package may not be called %s: that is what policies read of the cluster", inventoryRoot))
		}
		roots = append(roots, root)
	}
	for _, m := range modules {
		refsTo(m, ast.DefaultRootDocument, func(ref ast.Ref) {
			if field := fieldOf(ref); !slices.Contains(roots, field) {
				wrong = append(wrong, at(ref[0].Location, "%s is not there: policies read data.%s and their own packages", ref, inventoryRoot))
			}
		})
	}
	return wrong
}

// HasResult says that a file has a rule that says what is wrong. One that cannot be
// parsed has one if that can be told: it is a policy that is wrong.
func HasResult(f File) bool {
	for _, version := range []string{versionV1, versionV0} {
		if m, err := parseFile(f, version); err == nil {
			return slices.ContainsFunc(ruleNames(m), func(name string) bool { result, _ := isResult(name); return result })
		}
	}
	return true
}
