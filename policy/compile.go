package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
)

// What a policy may be at most: bytes of one file, bytes of all, and how deeply its
// terms are nested. The parser and the compiler recurse, and a stack that is full
// ends the process.
const (
	maxFile  = 256 << 10
	maxFiles = 1 << 20
	maxDepth = 500
)

// compileLimit is how long a policy may take to compile. The compiler cannot be
// stopped: one that takes longer is given up, and ends on its own.
const compileLimit = 5 * time.Second

// program is a compiled policy. It is immutable and may be run by many at a time.
type program struct {
	input string
	// version is the language that it compiled in.
	version string
	rules   []resultRule
}

// resultRule is a rule that says what is wrong.
type resultRule struct {
	name string
	// pkg is its package, so that the exceptions of one do not count in another.
	pkg       string
	warns     bool
	exception bool
	location  *ast.Location
	query     rego.PreparedEvalQuery
}

// compile compiles a policy over a store. The error is Errors where the policy is
// at fault.
func compile(ctx context.Context, p *Policy, data *store) (*program, error) {
	if err := p.Validate(); err != nil {
		return nil, Errors{{Message: err.Error()}}
	}
	ctx, cancel := context.WithTimeout(ctx, compileLimit)
	defer cancel()
	type outcome struct {
		program *program
		err     error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if r := recover(); r != nil {
				o = outcome{err: Errors{{Message: fmt.Sprintf("the compiler failed: %v", r)}}}
			}
			done <- o
		}()
		o.program, o.err = compileProgram(ctx, p, data)
	}()
	select {
	case o := <-done:
		return o.program, o.err
	case <-ctx.Done():
		return nil, Errors{{Message: fmt.Sprintf("it did not compile within %s", compileLimit)}}
	}
}

// parseVersions parses in the version that the policy names, or else in the first
// in which it can be parsed. The errors are those of the version that got further.
func parseVersions(p *Policy) (modules []*ast.Module, version string, err error) {
	if p.Version != "" {
		modules, err = parse(p.Files, p.Version)
		return modules, p.Version, err
	}
	v1, wrong1 := parse(p.Files, versionV1)
	if wrong1 == nil {
		return v1, versionV1, nil
	}
	v0, wrong0 := parse(p.Files, versionV0)
	if wrong0 == nil {
		return v0, versionV0, nil
	}
	if firstRow(wrong0) > firstRow(wrong1) {
		return nil, versionV0, wrong0
	}
	return nil, versionV1, wrong1
}

func firstRow(err error) int {
	var list Errors
	if !errors.As(err, &list) || len(list) == 0 {
		return 0
	}
	return slices.MinFunc(list, func(a, b Error) int { return a.Row - b.Row }).Row
}

func compileProgram(ctx context.Context, p *Policy, data *store) (*program, error) {
	modules, version, err := parseVersions(p)
	if err != nil {
		return nil, err
	}
	if wrong := checkData(modules); len(wrong) > 0 {
		return nil, wrong
	}
	compiler, err := compileModules(modules, version)
	if err != nil {
		return nil, err
	}
	out := &program{input: p.Input, version: version}
	if out.input == "" {
		out.input = inputOf(modules)
	}
	seen := map[string]bool{}
	for _, m := range modules {
		for _, name := range ruleNames(m) {
			result, warns := isResult(name)
			exception := name == exceptionRule
			ref := m.Package.Path.Append(ast.StringTerm(name))
			if (!result && !exception) || seen[ref.String()] {
				continue
			}
			seen[ref.String()] = true
			query, err := rego.New(rego.Compiler(compiler), rego.Store(data), rego.ParsedQuery(ast.NewBody(ast.NewExpr(ast.NewTerm(ref))))).PrepareForEval(ctx)
			if err != nil {
				return nil, errorsOf(err)
			}
			out.rules = append(out.rules, resultRule{
				name: name, pkg: m.Package.Path.String(), warns: warns, exception: exception,
				location: m.Package.Location, query: query,
			})
		}
	}
	if !slices.ContainsFunc(out.rules, func(r resultRule) bool { return !r.exception }) {
		return nil, Errors{{Message: "it has no rule named violation, deny or warn, so it would let everything through"}}
	}
	return out, nil
}

func compileModules(modules []*ast.Module, version string) (*ast.Compiler, error) {
	byName := make(map[string]*ast.Module, len(modules))
	for _, m := range modules {
		byName[m.Package.Location.File] = m
	}
	compiler := ast.NewCompiler().WithCapabilities(capabilities(regoVersion(version))).WithDefaultRegoVersion(regoVersion(version))
	if compiler.Compile(byName); compiler.Failed() {
		return nil, errorsOf(compiler.Errors)
	}
	return compiler, nil
}

// parse parses the files, which may have so many bytes.
func parse(files []File, version string) ([]*ast.Module, error) {
	var wrong Errors
	var modules []*ast.Module
	size := 0
	names := map[string]bool{}
	for _, f := range files {
		size += len(f.Rego)
		switch {
		case names[f.Name]:
			return nil, Errors{{File: f.Name, Message: "there are two files of this name"}}
		case len(f.Rego) > maxFile:
			return nil, Errors{{File: f.Name, Message: fmt.Sprintf("it has %d bytes, and may have %d", len(f.Rego), maxFile)}}
		case size > maxFiles:
			return nil, Errors{{File: f.Name, Message: fmt.Sprintf("the policy has more than %d bytes", maxFiles)}}
		}
		names[f.Name] = true
		m, err := parseFile(f, version)
		if err != nil {
			wrong = append(wrong, errorsOf(err)...)
			continue
		}
		modules = append(modules, m)
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return modules, nil
}

func parseFile(f File, version string) (*ast.Module, error) {
	v := regoVersion(version)
	c := capabilities(v)
	// Only this parser can be told how deep it may go.
	_, _, wrong := ast.NewParser().WithFilename(f.Name).WithReader(strings.NewReader(f.Rego)).
		WithRegoVersion(v).WithCapabilities(c).WithMaxRecursionDepth(maxDepth).Parse()
	if len(wrong) > 0 {
		return nil, wrong
	}
	m, err := ast.ParseModuleWithOpts(f.Name, f.Rego, ast.ParserOptions{RegoVersion: v, Capabilities: c, ProcessAnnotation: true})
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, Errors{{File: f.Name, Row: 1, Col: 1, Message: "it is empty"}}
	}
	return m, nil
}

func regoVersion(version string) ast.RegoVersion {
	if version == versionV0 {
		return ast.RegoV0
	}
	return ast.RegoV1
}
