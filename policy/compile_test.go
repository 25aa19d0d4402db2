package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatIsWrongWithAPolicyIsSaidWithItsPlace(t *testing.T) {
	const head = "package p\n\n"
	tests := []struct {
		name, rego, version string
		want                []string
	}{
		{"a syntax error", head + "deny contains msg if {\n  msg := }\n", "", []string{"p.rego:4:10: unexpected } token"}},
		{"a syntax error in a policy of v0", head + "deny[msg] {\n  x := 1\n  msg = = 2\n}\n", "", []string{"p.rego:5:9: unexpected eq token"}},
		{"a function that is not there", head + "deny contains \"x\" if nonsense(1)\n", "", []string{"p.rego:3:22: undefined function nonsense"}},
		{"a built-in that reads the network", head + "deny contains \"x\" if http.send({\"url\": \"http://x\", \"method\": \"GET\"}).status_code == 200\n", "",
			[]string{"p.rego:3:22: the built-in function http.send is not allowed in policies"}},
		{"a built-in that is put in place of another", head + "deny contains \"x\" if { f(1) with count as http.send }\nf(x) if count([x]) == 1\n", "v1",
			[]string{"p.rego:3:43: var http is unsafe"}},
		{"a shift without bounds", head + "deny contains \"x\" if bits.lsh(1, 99999999999) > 0\n", "", []string{"p.rego:3:22: the built-in function bits.lsh is not allowed in policies"}},
		{"a rule whose name is misspelt", head + "voilation contains {\"msg\": \"x\"} if true\n", "", []string{"it has no rule named violation, deny or warn, so it would let everything through"}},
		{"data that is never there", head + "deny contains \"x\" if data.inventroy.queues\n", "",
			[]string{"p.rego:3:22: data.inventroy.queues is not there: policies read data.inventory and their own packages"}},
		{"a package in place of the inventory", "package inventory\ndeny contains \"x\" if true\n", "",
			[]string{"p.rego:1:1: a package may not be called inventory: that is what policies read of the cluster"}},
		{"a term nested too deeply", head + "x := " + strings.Repeat("[", 600) + strings.Repeat("]", 600), "v1", []string{"p.rego:3:"}},
		{"a file that is too large", head + "# " + strings.Repeat("x", 256<<10), "", []string{"p.rego:0:0: it has 262157 bytes, and may have 262144"}},
		{"an empty file", "# nothing\n", "", []string{"p.rego:"}},
		{"a version that is not known", head + "deny contains \"x\" if true\n", "v7", []string{`policy p: regoVersion is "v7", which is none of v0, v1`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := one("p", tt.rego)
			p.Version = tt.version
			s := engine(p).Statuses()[0]
			if s.Compiled {
				t.Fatal("it compiled")
			}
			got := strings.Split(s.Errors.Error(), "\n")
			for i, want := range tt.want {
				if i >= len(got) || !strings.HasPrefix(got[i], want) {
					t.Errorf("line %d: got %q, want %q", i, s.Errors.Error(), want)
				}
			}
		})
	}
}

func TestPoliciesWithOnePackageNameDoNotClash(t *testing.T) {
	const rego = `package main
deny contains msg if msg := helper
helper := "%"
`
	e := engine(one("a", strings.ReplaceAll(rego, "%", "from a")), one("b", strings.ReplaceAll(rego, "%", "from b")))
	d := review(t, e, create(t, object(nil, nil)))
	if diff := cmp.Diff("[a] from a\n[b] from b", d.Message()); diff != "" {
		t.Error(diff)
	}
}
