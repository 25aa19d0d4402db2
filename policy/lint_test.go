package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHintsAboutWhatLetsObjectsThrough(t *testing.T) {
	tests := []struct {
		name, rego string
		want       []string
	}{
		{"a policy that reads all containers", "deny contains \"x\" if input.workload.containers[_].image == \"x\"", nil},
		{"a field of input that is never there", "deny contains \"x\" if input.reviews.object.a == input.request.b",
			[]string{"p.rego:2:22: input.reviews is never there"}},
		{"conftest, which knows all fields", "deny contains \"x\" if input.replicas > 3", nil},
		{"a rule that is always true", "deny contains \"x\" if true", []string{"p.rego:2:1: the rule deny depends on nothing"}},
		{"a rule that reads another one", "deny contains \"x\" if wrong\nwrong if input.request.x", nil},
		{"one kind of containers", "deny contains c.name if some c in input.request.object.spec.containers",
			[]string{"p.rego:2:61: it reads containers and not initContainers and ephemeralContainers"}},
		{"two kinds of containers", "deny contains c.name if { some k in [\"containers\", \"initContainers\"]; some c in input.request.object.spec[k] }",
			[]string{"p.rego:2:38: it reads containers and not ephemeralContainers"}},
		{"all kinds of containers", "deny contains c.name if { some k in [\"containers\", \"initContainers\", \"ephemeralContainers\"]; some c in input.request.object.spec[k] }", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := one("p", "package p\n"+tt.rego)
			hints, err := Lint(&p)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, h := range hints {
				text := h.Error()
				if i < len(tt.want) && strings.HasPrefix(text, tt.want[i]) {
					text = tt.want[i]
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	broken := one("p", "package p\nnonsense")
	if _, err := Lint(&broken); err == nil {
		t.Error("what does not compile is linted")
	}
}
