package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

func TestRegoOfOtherEnginesRunsUnchanged(t *testing.T) {
	tests := []struct {
		name, rego     string
		libs           []string
		parameters     map[string]any
		input, version string
		want           []string
	}{
		{
			name: "a template of Gatekeeper in v0, with parameters and details",
			rego: `package k8srequiredlabels

violation[{"msg": msg, "details": {"missing_labels": missing}}] {
  provided := {label | input.review.object.metadata.labels[label]}
  required := {label | label := input.parameters.labels[_]}
  missing := required - provided
  count(missing) > 0
  msg := sprintf("you must provide labels: %v", [missing])
}`,
			parameters: map[string]any{"labels": []any{"owner", "app"}},
			input:      "admission", version: "v0",
			want: []string{`[p] you must provide labels: {"owner"}`},
		},
		{
			name: "a template of Gatekeeper with a library",
			rego: `package k8sexempt

import data.lib.exempt.is_exempt

violation[{"msg": msg}] {
  c := input.review.object.spec.containers[_]
  not is_exempt(c)
  msg := sprintf("container <%v> has no digest", [c.name])
}`,
			libs: []string{`package lib.exempt

is_exempt(c) { startswith(c.image, input.parameters.exempt[_]) }`},
			parameters: map[string]any{"exempt": []any{"ok/"}},
			input:      "admission", version: "v0",
			want: []string{"[p] container <main> has no digest"},
		},
		{
			name: "conftest in v0, which sees the object alone",
			rego: `package main

deny[msg] {
  input.kind == "Pod"
  c := input.spec.containers[_]
  not c.resources
  msg := sprintf("%s has no resources", [c.name])
}`,
			input: "manifest", version: "v0",
			want: []string{"[p] main has no resources", "[p] side has no resources"},
		},
		{
			name: "conftest in v1 with an exception",
			rego: `package main

deny_resources contains msg if {
  some c in input.spec.containers
  not c.resources
  msg := sprintf("%s has no resources", [c.name])
}

deny_name contains "the name is too short" if count(input.metadata.name) < 3

exception contains rules if {
  input.metadata.labels.app == "a"
  rules := ["resources"]
}`,
			input: "manifest", version: "v1",
			want: []string{"[p] the name is too short"},
		},
		{
			name: "OPA's tutorial in v1",
			rego: `package kubernetes.admission

deny contains msg if {
  input.request.kind.kind == "Pod"
  some container in input.request.object.spec.containers
  not startswith(container.image, "ok/")
  msg := sprintf("image %q comes from an untrusted registry", [container.image])
}`,
			input: "admission", version: "v1",
			want: []string{`[p] image "bad/x" comes from an untrusted registry`},
		},
		{
			name: "OPA's tutorial in v0 with the old keywords imported",
			rego: `package kubernetes.admission
import future.keywords

deny contains msg if {
  input.request.operation in {"CREATE", "UPDATE"}
  msg := "no"
}`,
			input: "admission", version: "v1",
			want: []string{"[p] no"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := one("p", tt.rego)
			p.Parameters = tt.parameters
			for i, lib := range tt.libs {
				p.Files = append(p.Files, File{Name: "lib" + string(rune('0'+i)), Rego: lib})
			}
			e := engine(p)
			s := e.Statuses()[0]
			if !s.Compiled {
				t.Fatal(s.Errors)
			}
			if s.Input != tt.input || s.RegoVersion != tt.version {
				t.Errorf("input %s in %s, want %s in %s", s.Input, s.RegoVersion, tt.input, tt.version)
			}
			d := review(t, e, create(t, object(map[string]any{"app": "a"}, map[string]any{"containers": []any{
				map[string]any{"name": "main", "image": "bad/x"}, map[string]any{"name": "side", "image": "ok/y"},
			}})))
			if diff := cmp.Diff(tt.want, strings.Split(d.Message(), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheLanguageOfAnAdmissionPolicyAndOfAConfigMap(t *testing.T) {
	const (
		v0     = "package p\n\ndeny[msg] {\n\tinput.request.object.spec.bad\n\tmsg := \"no\"\n}\n"
		v1     = "package p\n\ndeny contains \"no\" if input.request.object.spec.bad\n"
		either = "package p\n\nimport rego.v1\n\ndeny contains \"no\" if input.request.object.spec.bad\n"
	)
	object := func(version, rego string, libs ...string) Policy {
		p, err := FromAPI(&v1alpha1.AdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.AdmissionPolicySpec{RegoVersion: version, Rego: rego, Libs: libs},
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	configMap := func(rego string) Policy {
		p, ok := FromConfigMap(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{PolicyLabel: PolicyLabelRego}}, Data: map[string]string{"p.rego": rego},
		})
		if !ok {
			t.Fatal("it is no policy")
		}
		return p
	}
	tests := []struct {
		name   string
		policy Policy
		// version is the language in which it compiles; empty if it does not, for this error.
		version, wrong string
	}{
		{"v0 that says so", object("v0", v0), "v0", ""},
		{"v0 that says so, with a library", object("v0", "package p\n\nimport data.lib\n\ndeny[\"no\"] { lib.bad }\n", "package lib\n\nbad { input.request.object.spec.bad }\n"), "v0", ""},
		{"v0 that says nothing", object("", v0), "v0", ""},
		{"v0 that says v1", object("v1", v0), "", "rego:3:1: `if` keyword is required before rule body"},
		{"v1 that says so", object("v1", v1), "v1", ""},
		{"v1 that says nothing", object("", v1), "v1", ""},
		{"v1 that says v0", object("v0", v1), "", "rego:3:1: "},
		{"v0 with the words of v1 imported", object("v0", either), "v0", ""},
		{"what is in both, and says nothing", object("", either), "v1", ""},
		{"v0 beside a library in v1", object("", v0, "package lib\n\nx contains 1 if input.request\n"), "", "rego:3:1: "},
		{"a ConfigMap in v0", configMap(v0), "v0", ""},
		{"a ConfigMap in v1", configMap(v1), "v1", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := engine(tt.policy)
			s := e.Statuses()[0]
			if s.RegoVersion != tt.version || s.Compiled != (tt.version != "") {
				t.Errorf("it compiles: %v, in %q: %v", s.Compiled, s.RegoVersion, s.Errors)
			}
			if !s.Compiled {
				if got := s.Errors.Error(); tt.wrong == "" || !strings.HasPrefix(got, tt.wrong) {
					t.Errorf("it is wrong because %s, want %s", got, tt.wrong)
				}
				return
			}
			want := "[" + tt.policy.Name + "] no"
			if d := review(t, e, create(t, map[string]any{"spec": map[string]any{"bad": true}})); d.Message() != want {
				t.Errorf("%+v", d)
			}
			if d := review(t, e, create(t, map[string]any{"spec": map[string]any{}})); !d.Allowed {
				t.Errorf("what is good: %+v", d)
			}
		})
	}
}

func TestGatekeeperSeesADeletedObject(t *testing.T) {
	p := one("p", `package p
violation[{"msg": msg}] { input.review.operation == "DELETE"; msg := input.review.object.metadata.name }`)
	p.Match.Operations = []admissionv1.Operation{admissionv1.Delete}
	r := create(t, nil)
	r.Operation, r.OldObject = "DELETE", raw(t, object(nil, nil))
	r.Object = raw(t, nil)
	if got := review(t, engine(p), r); got.Message() != "[p] p" {
		t.Errorf("%+v", got)
	}
}
