package policyfiles

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// folder writes files, whose paths are relative.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	manyGPUs = `package gpus

import data.lib

deny contains msg if {
	input.workload.gpus > lib.most
	msg := sprintf("%d GPUs", [input.workload.gpus])
}
`
	lib     = "package lib\n\nmost := 4\n"
	gpuTest = `package gpus_test

import data.gpus

test_many if count(gpus.deny) == 1 with input.workload.gpus as 8

test_few if count(gpus.deny) == 0 with input.workload.gpus as 2
`
	object = `
apiVersion: muster.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: owner}
spec:
  enforcement: warn
  parameters: {label: owner}
  rego: |
    package owner
    violation[{"msg": msg}] {
      not input.review.object.metadata.labels[input.parameters.label]
      msg := "nobody owns it"
    }
`
	jobs = `
apiVersion: batch/v1
kind: Job
metadata: {name: large, namespace: a}
spec: {parallelism: 2, template: {spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 4}}}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: small, namespace: a, labels: {owner: me}}
spec: {template: {spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 4}}}]}}}
`
)

const (
	claiming = `
apiVersion: batch/v1
kind: Job
metadata: {name: claims, namespace: a}
spec: {parallelism: 3, template: {spec: {resourceClaims: [{name: g, resourceClaimTemplateName: two}], containers: [{name: c, image: i, resources: {claims: [{name: g}]}}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: shares, namespace: a}
spec: {parallelism: 3, template: {spec: {resourceClaims: [{name: g, resourceClaimName: one}], containers: [{name: c, image: i, resources: {claims: [{name: g}]}}]}}}
`
	claimed = `---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two, namespace: other}
spec: {spec: {devices: {requests: [{name: g, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 1}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two}
spec: {spec: {devices: {requests: [{name: g, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 2}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one, namespace: a}
spec: {devices: {requests: [{name: g, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 4}}]}}
`
)

// shorn is what was written without the folder's name.
func shorn(out *bytes.Buffer, dir string) string {
	return strings.TrimSpace(strings.ReplaceAll(out.String(), dir+"/", ""))
}

func TestTestsAreRunAndTold(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  string
		found bool
	}{
		{
			name:  "tests that pass",
			files: map[string]string{"p/gpus.rego": manyGPUs, "p/lib.rego": lib, "p/gpus_test.rego": gpuTest},
			want:  "PASS p/gpus_test.rego:5: data.gpus_test.test_many\nPASS p/gpus_test.rego:7: data.gpus_test.test_few\n2 of 2 tests passed",
		},
		{
			name:  "a test that fails and prints",
			files: map[string]string{"a.rego": manyGPUs, "lib.rego": lib, "a_test.rego": "package t\ntest_a if {\n\tprint(\"here\")\n\tfalse\n}\n\ntodo_test_b if true\n"},
			want:  "SKIP data.t.todo_test_b\nFAIL a_test.rego:2: data.t.test_a\n     here\n0 of 1 tests passed", found: true,
		},
		{
			name:  "the policy of an object",
			files: map[string]string{"o.yaml": strings.ReplaceAll(object, "violation[{\"msg\": msg}] {", "violation contains {\"msg\": msg} if {"), "o_test.rego": "package t\ntest_o if count(data.owner.violation) == 1 with input as {\"review\": {\"object\": {}}, \"parameters\": {\"label\": \"a\"}}\n"},
			want:  "PASS o_test.rego:2: data.t.test_o\n1 of 1 tests passed",
		},
		{
			name:  "no tests",
			files: map[string]string{"a.rego": manyGPUs, "lib.rego": lib},
			want:  "there are no tests: rules whose names begin with test_", found: true,
		},
		{
			name:  "a file that does not compile",
			files: map[string]string{"a_test.rego": "package t\ntest_a if nonsense(1)\n"},
			want:  "a_test.rego:2:11: undefined function nonsense", found: true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := folder(t, tt.files)
			var out bytes.Buffer
			err := Test(context.Background(), &out, []string{dir})
			if errors.Is(err, ErrFindings) != tt.found || (err != nil && !tt.found) {
				t.Errorf("the error is %v", err)
			}
			if got := shorn(&out, dir); !strings.HasPrefix(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestWhatPoliciesSayOfObjects(t *testing.T) {
	dir := folder(t, map[string]string{
		"p/gpus.rego": manyGPUs, "p/lib.rego": lib, "p/gpus_test.rego": gpuTest, "p/owner.yaml": object, "jobs.yaml": jobs,
		"old.yaml":       strings.ReplaceAll(jobs, "image: i", "image: older"),
		"claims.yaml":    claiming + claimed,
		"broken.rego":    "package b\ndeny contains x if {\n",
		"inventory.yaml": "kind: Inventory\nqueues: {a: {main: {}}}\n",
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	tests := []struct {
		name    string
		paths   []string
		request Request
		want    string
		found   bool
	}{
		{
			name: "a large job and a small one", paths: []string{at("p")}, request: Request{Objects: []string{at("jobs.yaml")}}, found: true,
			want: "Job a/large: denied\n  deny   [gpus] 8 GPUs\n  warn   [owner] nobody owns it\nJob a/small: allowed",
		},
		{
			name: "a change of a job that was large already", paths: []string{at("p")}, request: Request{Objects: []string{at("jobs.yaml")}, Old: at("old.yaml")},
			want: "Job a/large: allowed\n  warn   [gpus] 8 GPUs (it was so before this change)\n  warn   [owner] nobody owns it (it was so before this change)\nJob a/small: allowed",
		},
		{
			name: "the library and the inventory", request: Request{Objects: []string{at("jobs.yaml")}, Library: true, Inventory: at("inventory.yaml")},
			want: "Job a/large: allowed\n  warn   [muster-pinned-images] container c of main has the image \"i\", whose tag is latest: name a version, or a digest\n" +
				"  warn   [muster-queue-label] Job large asks for 8 GPUs and names no queue: set the label kueue.x-k8s.io/queue-name to one of main\n",
		},
		{
			name: "GPUs that pods claim by a template among the objects", paths: []string{at("p/gpus.rego"), at("p/lib.rego")}, request: Request{Objects: []string{at("claims.yaml")}}, found: true,
			want: "Job a/claims: denied\n  deny   [gpus] 6 GPUs\nJob a/shares: allowed",
		},
		{
			name: "a policy that does not compile", paths: []string{at("broken.rego")}, request: Request{Objects: []string{at("jobs.yaml")}}, found: true,
			want: "broken: broken.rego:3:0: unexpected eof token",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := Eval(context.Background(), &out, tt.paths, tt.request)
			if errors.Is(err, ErrFindings) != tt.found || (err != nil && !tt.found) {
				t.Errorf("the error is %v", err)
			}
			got := shorn(&out, dir)
			if !strings.HasPrefix(got, strings.TrimSpace(tt.want)) {
				t.Error(cmp.Diff(tt.want, got))
			}
		})
	}
}

func TestPoliciesAreLinted(t *testing.T) {
	dir := folder(t, map[string]string{
		"a.rego": "package a\ndeny contains \"x\" if some c in input.request.object.spec.containers\n",
		"b.yaml": strings.ReplaceAll(object, "input.review.", "input.reviw."),
	})
	var out bytes.Buffer
	if err := Lint(&out, []string{dir}); err != nil {
		t.Errorf("hints are an error: %v", err)
	}
	for _, want := range []string{"hint: b.yaml:owner:rego:3:7: input.reviw is never there", "hint: a.rego:2:58: it reads containers"} {
		if !strings.Contains(shorn(&out, dir), want) {
			t.Errorf("%q does not say %q", out.String(), want)
		}
	}
	dir = folder(t, map[string]string{"c.rego": "package c\nvoilation contains \"x\" if input.request\n"})
	out.Reset()
	if err := Lint(&out, []string{dir}); !errors.Is(err, ErrFindings) || !strings.Contains(out.String(), "it has no rule named violation") {
		t.Errorf("%v: %s", err, out.String())
	}
	if err := Lint(&out, []string{t.TempDir()}); err == nil || errors.Is(err, ErrFindings) {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestAnObjectWithAFieldThatThereIsNotIsRefused(t *testing.T) {
	dir := folder(t, map[string]string{"o.yaml": strings.ReplaceAll(object, "enforcement:", "enforcment:")})
	if _, err := Load([]string{dir}); err == nil || !strings.Contains(err.Error(), "enforcment") {
		t.Errorf("%v", err)
	}
}

func TestConstraintsOfGatekeeperArePolicies(t *testing.T) {
	const (
		template = `
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: k8srequiredlabels}
spec:
  crd: {spec: {names: {kind: K8sRequiredLabels}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: |
      package k8srequiredlabels
      import data.lib.labels
      violation[{"msg": msg}] {
        required := input.parameters.labels[_]
        not labels.of(input.review.object)[required]
        msg := sprintf("no label %v", [required])
      }
    libs:
    - |
      package lib.labels
      of(o) = object.get(o.metadata, "labels", {})
`
		constraint = `
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sRequiredLabels
metadata: {name: owner}
spec: {match: {kinds: [{apiGroups: [batch], kinds: [Job]}]}, parameters: {labels: [owner]}}
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sRequiredLabels
metadata: {name: team}
spec: {enforcementAction: warn, match: {excludedNamespaces: [b]}, parameters: {labels: [team]}}
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sRequiredLabels
metadata: {name: pods}
spec: {match: {kinds: [{apiGroups: [""], kinds: [Pod]}]}, parameters: {labels: [pod]}}
`
	)
	dir := folder(t, map[string]string{"t/template.yaml": template, "c/constraint.yaml": constraint, "jobs.yaml": jobs})
	at := func(name string) string { return filepath.Join(dir, name) }
	var out bytes.Buffer
	err := Eval(context.Background(), &out, []string{at("c"), at("t")}, Request{Objects: []string{at("jobs.yaml")}})
	want := "Job a/large: denied\n  deny   [owner] no label owner\n  warn   [team] no label team\nJob a/small: allowed\n  warn   [team] no label team"
	if diff := cmp.Diff(want, shorn(&out, dir)); diff != "" || !errors.Is(err, ErrFindings) {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := Load([]string{at("c")}); err == nil || !strings.Contains(err.Error(), "has no ConstraintTemplate") {
		t.Errorf("constraints without a template: %v", err)
	}
	if files, err := Load([]string{at("t")}); err != nil || len(files.Policies) != 1 || len(files.Modules) != 2 {
		t.Errorf("a template alone: %+v, %v", files, err)
	}
}
