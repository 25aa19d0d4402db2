package library

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	admissionv1 "k8s.io/api/admission/v1"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/policy"
)

// Prefix begins the names of the library's policies.
const Prefix = "muster-"

//go:embed *.rego
var sources embed.FS

// Level is what a policy of the library does.
type Level string

// A policy is not asked, warns, or refuses.
const (
	Off  Level = "off"
	Warn Level = "warn"
	Deny Level = "deny"
)

// Setting changes one policy.
type Setting struct {
	// Level is the policy's own default if it is empty.
	Level Level
	// Parameters replace those of the same names.
	Parameters map[string]any
	// Exempt are requests of which it is not asked.
	Exempt policy.Exemptions
}

// Info is what a policy's metadata says.
type Info struct {
	// Name is without Prefix.
	Name        string
	Title       string
	Description string
	Level       Level
	Parameters  map[string]any
	Match       policy.Match

	rego string
}

// custom are the fields of the metadata that are the library's own.
type custom struct {
	Level      Level          `json:"level"`
	Parameters map[string]any `json:"parameters"`
	Match      struct {
		Kinds      []policy.Kinds          `json:"kinds"`
		Operations []admissionv1.Operation `json:"operations"`
	} `json:"match"`
}

// List is all policies, by name.
func List() ([]Info, error) {
	names, err := fs.Glob(sources, "*.rego")
	if err != nil {
		return nil, err
	}
	var out []Info
	for _, file := range names {
		if strings.HasSuffix(file, "_test.rego") {
			continue
		}
		info, err := read(file)
		if err != nil {
			return nil, fmt.Errorf("reading policy %s: %w", file, err)
		}
		out = append(out, info)
	}
	return out, nil
}

func read(file string) (Info, error) {
	body, err := sources.ReadFile(file)
	if err != nil {
		return Info{}, err
	}
	m, err := ast.ParseModuleWithOpts(file, string(body), ast.ParserOptions{ProcessAnnotation: true})
	if err != nil {
		return Info{}, err
	}
	for _, a := range m.Annotations {
		if a.Scope != "package" {
			continue
		}
		fields, err := json.Marshal(a.Custom)
		if err != nil {
			return Info{}, err
		}
		var c custom
		if err := json.Unmarshal(fields, &c); err != nil {
			return Info{}, err
		}
		return Info{
			Name: strings.TrimSuffix(file, ".rego"), Title: a.Title, Description: a.Description, Level: c.Level,
			Parameters: c.Parameters, Match: policy.Match{Kinds: c.Match.Kinds, Operations: c.Match.Operations}, rego: string(body),
		}, nil
	}
	return Info{}, fmt.Errorf("its package has no metadata")
}

// Policies are those that are not off. Settings are by Info.Name; an error names one
// that there is no policy for, or a level or parameter that does not exist.
func Policies(settings map[string]Setting) ([]policy.Policy, error) {
	all, err := List()
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if !slices.ContainsFunc(all, func(i Info) bool { return i.Name == name }) {
			return nil, fmt.Errorf("there is no policy %q in the library", name)
		}
	}
	var out []policy.Policy
	for _, info := range all {
		p, err := info.with(settings[info.Name])
		if err != nil {
			return nil, err
		}
		if p != nil {
			out = append(out, *p)
		}
	}
	return out, nil
}

// Configured are the policies as the webhook's configuration has them. The error names the
// field.
func Configured(changes map[string]configv1alpha1.LibraryPolicy) ([]policy.Policy, error) {
	settings := make(map[string]Setting, len(changes))
	for name, c := range changes {
		settings[name] = Setting{Level: Level(c.Level), Parameters: c.Parameters, Exempt: policy.Exemptions(c.Exempt)}
	}
	all, err := Policies(settings)
	if err != nil {
		return nil, fmt.Errorf("policies.library: %w", err)
	}
	return all, nil
}

// with is the policy as a setting has it, nil if it is off.
func (i *Info) with(s Setting) (*policy.Policy, error) {
	level := i.Level
	if s.Level != "" {
		level = s.Level
	}
	parameters := map[string]any{}
	maps.Copy(parameters, i.Parameters)
	for name, value := range s.Parameters {
		if _, known := i.Parameters[name]; !known {
			return nil, fmt.Errorf("policy %s has no parameter %q", i.Name, name)
		}
		parameters[name] = value
	}
	p := &policy.Policy{
		Name: Prefix + i.Name, Files: []policy.File{{Name: i.Name + ".rego", Rego: i.rego}}, Version: "v1",
		Match: i.Match, Exempt: s.Exempt, Parameters: parameters,
	}
	switch level {
	case Off:
		return nil, nil
	case Warn:
		p.Enforcement = policy.Warn
	case Deny:
		p.Enforcement = policy.Deny
	default:
		return nil, fmt.Errorf("policy %s: level is %q, which is none of %s, %s, %s", i.Name, level, Off, Warn, Deny)
	}
	return p, nil
}
