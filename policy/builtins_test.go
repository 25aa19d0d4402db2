package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

func TestPoliciesCallNoBuiltInThatReadsTheWorldOrHasNoBounds(t *testing.T) {
	for kind, names := range map[string][]string{
		"reads a network":            {"http.send", "net.lookup_ip_addr", "json.match_schema", "json.verify_schema", "providers.aws.sign_req"},
		"reads what runs it":         {"opa.runtime", "rego.parse_module"},
		"answers each time anew":     {"rand.intn", "uuid.rfc4122", "io.jwt.encode_sign", "io.jwt.decode_verify"},
		"makes much of little":       {"bits.lsh", "numbers.range", "numbers.range_step", "net.cidr_expand", "yaml.unmarshal", "strings.render_template", "graph.reachable_paths"},
		"checks what others sign":    {"crypto.x509.parse_certificates", "io.jwt.verify_rs256"},
		"reads a program's language": {"graphql.parse", "graphql.is_valid"},
	} {
		for _, name := range names {
			t.Run(name+", which "+kind, func(t *testing.T) {
				if ast.BuiltinMap[name] == nil {
					t.Fatal("there is none of this name")
				}
				for version, rule := range map[string]string{versionV0: "deny[\"x\"] { %s(1) }", versionV1: "deny contains \"x\" if %s(1)"} {
					p := one("p", "package p\n\n"+fmt.Sprintf(rule, name)+"\n")
					p.Version = version
					s := engine(p).Statuses()[0]
					if want := "the built-in function " + name + " is not allowed in policies"; s.Compiled || s.Errors[0].Message != want || s.Errors[0].Row != 3 {
						t.Errorf("in %s it compiles: %v, and its errors are %v, want %s", version, s.Compiled, s.Errors, want)
					}
				}
			})
		}
	}
}

func TestOfBuiltInsThatAnswerDifferentlyOnlyTheClockIsAllowed(t *testing.T) {
	var differ []string
	for _, b := range ast.CapabilitiesForThisVersion().Builtins {
		if b.Nondeterministic && slices.Contains(allowed, b.Name) {
			differ = append(differ, b.Name)
		}
	}
	if !slices.Equal(differ, []string{"time.now_ns"}) {
		t.Errorf("%v are allowed", differ)
	}
	for _, name := range allowed {
		if ast.BuiltinMap[name] == nil {
			t.Errorf("%s is allowed, and there is none of this name", name)
		}
	}
}

func TestTheClockOfPoliciesIsTheEngines(t *testing.T) {
	e := engine(one("p", "package p\ndeny contains time.format(time.now_ns()) if true\n"))
	if d := review(t, e, create(t, object(nil, nil))); d.Message() != "[p] "+noon.Format(time.RFC3339) {
		t.Errorf("it is %s", d.Message())
	}
}

func TestABuiltInThatIsAskedForTooMuchIsThePolicysFailure(t *testing.T) {
	for name, tt := range map[string]struct{ rego, says string }{
		"a regular expression that repeats what repeats": {`regex.match("((a{100}){100}){100}", "a")`, "regex.match: error parsing regexp: invalid repeat count: `{100}`"},
		"an amount beyond all bounds":                    {`units.parse("1e1000000000") > 1`, "units.parse: units.parse: exponent too large"},
		"a number beyond all bounds":                     {`floor(to_number("1e1000000000")) > 1`, `to_number: strconv.ParseFloat: parsing "1e1000000000": value out of range`},
		"JSON with such a number":                        {`floor(json.unmarshal("1e1000000000")) > 1`, "json.unmarshal: invalid number: number too big"},
	} {
		t.Run(name, func(t *testing.T) {
			d := review(t, engine(one("p", "package p\ndeny contains \"x\" if "+tt.rego+"\n")), create(t, object(nil, nil)))
			if len(d.Failures) != 1 || d.Failures[0].Errors[0].Message != tt.says || d.Allowed {
				t.Errorf("%+v, want the failure %q", d, tt.says)
			}
		})
	}
}
