package library

import (
	"context"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-gpu/muster/policy"
)

func TestEveryPolicyHasTestsAndPassesThem(t *testing.T) {
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("the library is empty")
	}
	for _, info := range all {
		t.Run(info.Name, func(t *testing.T) {
			tests, err := fs.ReadFile(sources, info.Name+"_test.rego")
			if err != nil {
				t.Fatal(err)
			}
			results, err := policy.Test(context.Background(), []policy.File{
				{Name: info.Name + ".rego", Rego: info.rego}, {Name: info.Name + "_test.rego", Rego: string(tests)},
			}, "v1")
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if r.Failed || r.Skipped {
					t.Errorf("%s:%d: %s is not true: %v %s", r.File, r.Row, r.Name, r.Err, r.Output)
				}
			}
		})
	}
}

func TestEveryPolicyCompilesAsItIsConfigured(t *testing.T) {
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]Setting{}
	for _, info := range all {
		if info.Title == "" || info.Description == "" || len(info.Match.Kinds) == 0 {
			t.Errorf("%s: its metadata lacks a title, a description or kinds: %+v", info.Name, info)
		}
		settings[info.Name] = Setting{Level: Deny}
	}
	policies, err := Policies(settings)
	if err != nil {
		t.Fatal(err)
	}
	e := policy.New(policy.Options{})
	e.SetPolicies(context.Background(), policies)
	if got := len(e.Statuses()); got != len(all) {
		t.Errorf("%d policies of %d", got, len(all))
	}
	for _, s := range e.Statuses() {
		if !s.Compiled || s.Input != "admission" {
			t.Errorf("%s: %v, %s", s.Name, s.Errors, s.Input)
		}
	}
}

func TestSettings(t *testing.T) {
	tests := []struct {
		name     string
		settings map[string]Setting
		// levels are those of three policies: one that warns, one that refuses and one that
		// is off unless something is said.
		want, err string
	}{
		{name: "nothing is said", want: "warn deny off"},
		{name: "other levels", settings: map[string]Setting{"queue-label": {Level: Deny}, "gpu-limits": {Level: Off}, "v1-kinds": {Level: Warn}}, want: "deny off warn"},
		{name: "a policy that there is not", settings: map[string]Setting{"nonsense": {}}, err: `there is no policy "nonsense" in the library`},
		{name: "a level that there is not", settings: map[string]Setting{"gpu-limits": {Level: "no"}}, err: `policy gpu-limits: level is "no", which is none of off, warn, deny`},
		{name: "a parameter that there is not", settings: map[string]Setting{"notebook-gpus": {Parameters: map[string]any{"maximum": 2}}}, err: `policy notebook-gpus has no parameter "maximum"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			policies, err := Policies(tt.settings)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var levels []string
			for _, name := range []string{"queue-label", "gpu-limits", "v1-kinds"} {
				level := "off"
				for _, p := range policies {
					if p.Name == Prefix+name {
						level = string(p.Enforcement)
					}
				}
				levels = append(levels, level)
			}
			if diff := cmp.Diff(tt.want, strings.Join(levels, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParametersOfASettingReplaceTheirDefaults(t *testing.T) {
	policies, err := Policies(map[string]Setting{"pinned-images": {Parameters: map[string]any{"require": "tag"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range policies {
		if p.Name == Prefix+"pinned-images" && (p.Parameters["require"] != "tag" || p.Parameters["exemptImages"] == nil) {
			t.Errorf("%v", p.Parameters)
		}
	}
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range all {
		if info.Name == "pinned-images" && info.Parameters["require"] != "digest" {
			t.Error("the default was changed")
		}
	}
}
