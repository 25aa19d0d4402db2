package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Violation is one thing that a policy says is wrong.
type Violation struct {
	Policy string
	// Rule is the rule's name: violation, deny, warn, or one of these with more.
	Rule    string
	Message string
	// Key says what the violation is about, where the rule gives details with a key;
	// Value, by how much, where it also gives a number. Two violations of one key are
	// the same whatever their message, and a smaller value is no new one.
	Key   string
	Value *float64
	// Details is what else the rule gives, as JSON; empty if nothing.
	Details string
	// Standing says that the object had it before it was changed.
	Standing bool

	warns bool
	pkg   string
}

// errTooLong is why a policy that ran into its deadline has no result.
var errTooLong = errors.New("it did not end in time")

// evaluation is one run of a program.
type evaluation struct {
	input ast.Value
	data  *contents
	now   time.Time
}

// run evaluates the program. What it found so far comes with an error, which is
// Errors if the policy is at fault, and errTooLong (wrapped) if the context ended.
func (p *program) run(ctx context.Context, e evaluation) (found []Violation, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = Errors{{Message: fmt.Sprintf("evaluating it failed: %v", r)}}
		}
	}()
	// One for all rules: left to OPA, each would have a goroutine that waits for the context.
	cancel := topdown.NewCancel()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	excepted := map[string][]string{}
	var wrong Errors
	for i := range p.rules {
		rule := &p.rules[i]
		value, failed, err := rule.eval(ctx, cancel, e)
		if err != nil {
			return found, err
		}
		wrong = append(wrong, failed...)
		if rule.exception {
			excepted[rule.pkg] = append(excepted[rule.pkg], exceptions(value)...)
			continue
		}
		violations, err := rule.read(value)
		if err != nil {
			wrong = append(wrong, errorsOf(err)...)
			continue
		}
		found = append(found, violations...)
	}
	found = slices.DeleteFunc(found, func(v Violation) bool {
		return slices.Contains(excepted[v.pkg], suffix(v.Rule))
	})
	if len(wrong) > 0 {
		return found, wrong
	}
	return found, nil
}

// eval is the value of the rule, nil if it is undefined, and what its built-in
// functions could not do: OPA takes that for undefined, which would let an object
// through.
func (r *resultRule) eval(ctx context.Context, cancel topdown.Cancel, e evaluation) (any, Errors, error) {
	var failed []topdown.Error
	results, err := r.query.Eval(ctx, rego.EvalParsedInput(e.input), rego.EvalTransaction(e.data), rego.EvalTime(e.now),
		rego.EvalBuiltinErrorList(&failed), rego.EvalExternalCancel(cancel))
	switch {
	case err != nil && (ctx.Err() != nil || topdown.IsCancel(err)):
		return nil, nil, fmt.Errorf("%w: %s", errTooLong, r.name)
	case err != nil:
		return nil, errorsOf(err), nil
	}
	var wrong Errors
	for i := range failed {
		wrong = append(wrong, at(failed[i].Location, "%s", failed[i].Message))
	}
	if len(results) == 0 || len(results[0].Expressions) == 0 {
		return nil, wrong, nil
	}
	return results[0].Expressions[0].Value, wrong, nil
}

// read turns the rule's value into violations.
func (r *resultRule) read(value any) ([]Violation, error) {
	if value == nil {
		return nil, nil
	}
	list, ok := value.([]any)
	if !ok {
		return nil, Errors{at(r.location, "the rule %s is no set of messages", r.name)}
	}
	out := make([]Violation, 0, len(list))
	for _, item := range list {
		v := Violation{Rule: r.name, warns: r.warns, pkg: r.pkg}
		switch item := item.(type) {
		case string:
			v.Message = item
		case map[string]any:
			message, ok := item["msg"].(string)
			if !ok {
				return out, Errors{at(r.location, "the rule %s gives an object without a msg that is a string", r.name)}
			}
			v.Message = message
			delete(item, "msg")
			v.detail(item)
		default:
			return out, Errors{at(r.location, "the rule %s gives neither strings nor objects with a msg", r.name)}
		}
		out = append(out, v)
	}
	return out, nil
}

// detail reads what a rule gives beside the message.
func (v *Violation) detail(fields map[string]any) {
	if details, ok := fields["details"].(map[string]any); ok {
		fields = details
	}
	if len(fields) == 0 {
		return
	}
	if body, err := json.Marshal(fields); err == nil && string(body) != `{"details":{}}` {
		v.Details = string(body)
	}
	v.Key, _ = fields["key"].(string)
	if n, ok := fields["value"].(json.Number); ok && v.Key != "" {
		if f, err := n.Float64(); err == nil {
			v.Value = &f
		}
	}
}

// exceptions are the names that an exception rule gives: it is a set of lists.
func exceptions(value any) []string {
	var out []string
	lists, _ := value.([]any)
	for _, list := range lists {
		names, _ := list.([]any)
		for _, name := range names {
			if s, ok := name.(string); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

// identity is by what a violation is known again after the object was changed.
func (v *Violation) identity() string {
	if v.Key != "" {
		return strings.Join([]string{v.Rule, "key", v.Key}, "\x00")
	}
	return strings.Join([]string{v.Rule, "message", v.Message, v.Details}, "\x00")
}

// ratchet marks those violations that the old object had too, and no less.
func ratchet(now, before []Violation) {
	had := make(map[string]*Violation, len(before))
	for i := range before {
		v := &before[i]
		if other := had[v.identity()]; other == nil || (other.Value != nil && (v.Value == nil || *v.Value > *other.Value)) {
			had[v.identity()] = v
		}
	}
	for i := range now {
		v := &now[i]
		old := had[v.identity()]
		v.Standing = old != nil && (v.Value == nil || old.Value == nil || *v.Value <= *old.Value)
	}
}
