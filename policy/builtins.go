package policy

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// allowed are the built-in functions that a policy may call. Left out is what
// reads a network, a file, a clock of its own or a random number, and what can
// take memory or time without bound in one call that nothing interrupts: shifts,
// ranges, paths in graphs, YAML (whose aliases multiply), JWTs and certificates,
// templates, and JSON schemas, which fetch what they refer to.
var allowed = strings.Fields(`
	eq assign equal neq lt lte gt gte plus minus mul div rem abs ceil floor round
	and or internal.member_2 internal.member_3 internal.template_string internal.print print internal.test_case
	all any count max min sum product sort set_diff intersection union
	array.concat array.flatten array.reverse array.slice
	object.filter object.get object.keys object.remove object.subset object.union object.union_n
	concat contains endswith format_int indexof indexof_n lower replace split sprintf startswith
	strings.any_prefix_match strings.any_suffix_match strings.count strings.replace_n strings.reverse strings.split_n
	substring trim trim_left trim_prefix trim_right trim_space trim_suffix upper
	re_match regex.find_all_string_submatch_n regex.find_n regex.globs_match regex.is_valid regex.match regex.replace
	regex.split regex.template_match glob.match glob.quote_meta
	is_array is_boolean is_null is_number is_object is_set is_string type_name
	cast_array cast_boolean cast_null cast_object cast_set cast_string to_number
	bits.and bits.negate bits.or bits.rsh bits.xor
	base64.decode base64.encode base64.is_valid base64url.decode base64url.encode base64url.encode_no_pad
	hex.decode hex.encode crypto.sha256
	json.filter json.is_valid json.marshal json.patch json.remove json.unmarshal
	net.cidr_contains net.cidr_intersects net.cidr_is_valid
	semver.compare semver.is_valid units.parse units.parse_bytes
	time.add_date time.clock time.date time.diff time.format time.now_ns time.parse_duration_ns time.parse_ns
	time.parse_rfc3339_ns time.weekday
	graph.reachable walk rego.metadata.chain rego.metadata.rule trace uri.is_valid uri.parse urlquery.decode urlquery.encode
`)

// capabilities are those of OPA with the allowed built-in functions, and no host
// to fetch schemas from: an empty list is none, and nil would be any.
func capabilities(version ast.RegoVersion) *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion(ast.CapabilitiesRegoVersion(version))
	c.Builtins = slices.DeleteFunc(slices.Clone(c.Builtins), func(b *ast.Builtin) bool { return !slices.Contains(allowed, b.Name) })
	c.AllowNet = []string{}
	return c
}
