package policyfiles

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/policy"
)

// ErrFindings says that a test failed, an object would be refused, or a policy does
// not compile. What it is was written.
var ErrFindings = errors.New("something is wrong")

// testSuffix ends the name of a file with tests.
const testSuffix = "_test.rego"

// Files are policies and their tests.
type Files struct {
	Policies []policy.Policy
	// Modules are all files, those of tests and of the policies' libraries included.
	Modules []policy.File
}

// Load reads policies from files and folders, whose files end in .rego, .yaml, .yml or
// .json. An AdmissionPolicy is one policy, and so is a constraint of Gatekeeper's with
// its template. So is each module of Rego with a rule that says what is wrong, with the
// modules that have none as its libraries. Other objects are passed over.
func Load(paths []string) (*Files, error) {
	out := &Files{}
	var sources []policy.File
	var constraints gatekeeper
	for _, root := range paths {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			switch filepath.Ext(path) {
			case ".rego":
				body, err := os.ReadFile(path)
				sources = append(sources, policy.File{Name: path, Rego: string(body)})
				return err
			case ".yaml", ".yml", ".json":
				return out.addObjects(path, &constraints)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading policies: %w", err)
		}
	}
	out.addModules(sources)
	more, err := constraints.policies()
	if err != nil {
		return nil, err
	}
	out.Policies = append(out.Policies, more...)
	for i := range constraints.templates {
		files, _ := constraints.templates[i].files()
		out.Modules = append(out.Modules, files...)
	}
	if len(out.Modules) == 0 {
		return nil, fmt.Errorf("there are no policies in %s", strings.Join(paths, ", "))
	}
	return out, nil
}

// addModules makes policies of modules in Rego.
func (f *Files) addModules(sources []policy.File) {
	var libs, own []policy.File
	for _, s := range sources {
		switch {
		case strings.HasSuffix(s.Name, testSuffix):
		case policy.HasResult(s):
			own = append(own, s)
		default:
			libs = append(libs, s)
		}
	}
	for _, s := range own {
		f.Policies = append(f.Policies, policy.Policy{
			Name: strings.TrimSuffix(filepath.Base(s.Name), ".rego"), Files: append([]policy.File{s}, libs...),
		})
	}
	if len(own) == 0 && len(libs) > 0 {
		// Why they are no policies is for the compiler to say.
		f.Policies = append(f.Policies, policy.Policy{Name: strings.TrimSuffix(filepath.Base(libs[0].Name), ".rego"), Files: libs})
	}
	f.Modules = append(f.Modules, sources...)
}

// addObjects makes policies of the AdmissionPolicies in a file, and keeps what is
// Gatekeeper's.
func (f *Files) addObjects(path string, constraints *gatekeeper) error {
	objects, err := Objects(path)
	if err != nil {
		return err
	}
	for _, u := range objects {
		if err := constraints.add(path, u); err != nil {
			return err
		}
		if u.GroupVersionKind() != v1alpha1.GroupVersion.WithKind("AdmissionPolicy") {
			continue
		}
		o := &v1alpha1.AdmissionPolicy{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, o, true); err != nil {
			return fmt.Errorf("reading AdmissionPolicy %s of %s: %w", u.GetName(), path, err)
		}
		p, err := policy.FromAPI(o)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		for i := range p.Files {
			p.Files[i].Name = path + ":" + o.Name + ":" + p.Files[i].Name
		}
		f.Policies, f.Modules = append(f.Policies, p), append(f.Modules, p.Files...)
	}
	return nil
}

// Objects are those of a file with any number of documents, in YAML or JSON. The path
// "-" is the standard input.
func Objects(path string) ([]*unstructured.Unstructured, error) {
	var body []byte
	var err error
	if path == "-" {
		body, err = io.ReadAll(os.Stdin)
	} else {
		body, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading objects: %w", err)
	}
	var out []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(body), 4096)
	for {
		var fields map[string]any
		err := decoder.Decode(&fields)
		if errors.Is(err, io.EOF) {
			return slices.DeleteFunc(out, func(u *unstructured.Unstructured) bool { return u.GetKind() == "" }), nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if len(fields) == 0 {
			continue
		}
		u := &unstructured.Unstructured{}
		// The decoder knows no whole numbers, and a number of GPUs is one.
		text, err := (&unstructured.Unstructured{Object: fields}).MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if err := u.UnmarshalJSON(text); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		out = append(out, u)
	}
}
