package policy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	testclock "k8s.io/utils/clock/testing"
)

const refuses = "package p\ndeny contains \"no\" if input.request.object.spec.bad\n"

func TestAPolicyIsAskedOnlyAboutWhatItMatches(t *testing.T) {
	tests := []struct {
		name   string
		match  Match
		exempt Exemptions
		change func(*admissionv1.AdmissionRequest)
		denied bool
	}{
		{name: "everything that is created, if nothing is said", denied: true},
		{name: "nothing that is deleted, if nothing is said", change: func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete }},
		{name: "its kind", match: Match{Kinds: []Kinds{{APIGroups: []string{""}, Kinds: []string{"Pod"}}}}, denied: true},
		{name: "its kind in any group", match: Match{Kinds: []Kinds{{APIGroups: []string{"*"}, Kinds: []string{"Pod"}}}}, denied: true},
		{name: "no kind of another group", match: Match{Kinds: []Kinds{{APIGroups: []string{"batch"}, Kinds: []string{"Pod"}}}}},
		{name: "its namespaces", match: Match{Namespaces: []string{"team-*"}}, denied: true},
		{name: "no other namespaces", match: Match{Namespaces: []string{"team"}}},
		{name: "no namespace that is excluded", match: Match{ExcludedNamespaces: []string{"team-a"}}},
		{name: "no object without a namespace, where namespaces are named", match: Match{Namespaces: []string{"*"}}, change: func(r *admissionv1.AdmissionRequest) { r.Namespace = "" }},
		{name: "an object without a namespace, whatever is excluded", match: Match{ExcludedNamespaces: []string{"*"}}, change: func(r *admissionv1.AdmissionRequest) { r.Namespace = "" }, denied: true},
		{name: "no exempt namespace", exempt: Exemptions{Namespaces: []string{"team-a"}}},
		{name: "no exempt user", exempt: Exemptions{Users: []string{"ann"}}},
		{name: "no exempt group", exempt: Exemptions{Groups: []string{"users"}}},
		{name: "others than the exempt", exempt: Exemptions{Namespaces: []string{"team-b"}, Users: []string{"bob"}, Groups: []string{"admins"}}, denied: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := one("p", refuses)
			p.Match, p.Exempt = tt.match, tt.exempt
			r := create(t, object(nil, map[string]any{"bad": true}))
			if tt.change != nil {
				tt.change(r)
			}
			if d := review(t, engine(p), r); d.Allowed == tt.denied {
				t.Errorf("allowed is %v", d.Allowed)
			}
		})
	}
}

func TestWhatAViolationDoes(t *testing.T) {
	tests := []struct {
		name, rule            string
		enforcement           Enforcement
		allowed               bool
		message               string
		warnings              []string
		recorded              int
		denied, warned, noted int64
	}{
		{name: "deny refuses", rule: "deny", enforcement: Deny, message: "[p] no", denied: 1},
		{name: "nothing said refuses", rule: "violation", message: "[p] no", denied: 1},
		{name: "warn tells", rule: "deny", enforcement: Warn, allowed: true, warnings: []string{"[p] no"}, warned: 1},
		{name: "dryrun records", rule: "deny", enforcement: DryRun, allowed: true, recorded: 1, noted: 1},
		{name: "a rule named warn never refuses", rule: "warn_x", enforcement: Deny, allowed: true, warnings: []string{"[p] no"}, warned: 1},
		{name: "a rule named warn is recorded in dryrun", rule: "warn", enforcement: DryRun, allowed: true, recorded: 1, noted: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := one("p", fmt.Sprintf("package p\n%s contains {\"msg\": \"no\"} if input.request", tt.rule))
			p.Enforcement = tt.enforcement
			e := engine(p)
			d := review(t, e, create(t, object(nil, nil)))
			if d.Allowed != tt.allowed || d.Message() != tt.message || len(d.Recorded) != tt.recorded {
				t.Errorf("%+v", d)
			}
			if diff := cmp.Diff(tt.warnings, d.WarningLines()); diff != "" {
				t.Error(diff)
			}
			s := e.Statuses()[0]
			want := Counts{Reviews: 1, Denied: tt.denied, Warned: tt.warned, DryRun: tt.noted}
			if diff := cmp.Diff(want, s.Counts); diff != "" {
				t.Error(diff)
			}
			if len(s.Last) != 1 || s.Last[0].Kind != "Pod" || s.Last[0].Name != "p" || !s.Last[0].At.Equal(noon) {
				t.Errorf("%+v", s.Last)
			}
		})
	}
}

// divides has a built-in function that fails for a size of 0, after a comment line.
const divides = "package p\n# It divides.\ndeny contains msg if {\n\t100 / input.request.object.spec.size > 20\n\tmsg := \"too small\"\n}\n"

func TestTheLastGoodVersionServesForOneThatFails(t *testing.T) {
	ctx := context.Background()
	good := one("p", refuses)
	good.Generation = 1
	bad := create(t, object(nil, map[string]any{"bad": true, "size": 0}))
	fine := create(t, object(nil, map[string]any{"size": 0}))

	for name, rego := range map[string]string{
		"a syntax error": "package p\ndeny contains msg if {\n",
		"a division":     divides,
		"a conflict":     "package p\ndeny contains \"x\" if y == 3\ny := 1 if input.request\ny := 2 if input.request\n",
		"no set":         "package p\ndeny := true if input.request\n",
	} {
		t.Run(name, func(t *testing.T) {
			e := engine(good)
			review(t, e, fine)
			next := one("p", rego)
			next.Generation = 2
			e.SetPolicies(ctx, []Policy{next})
			if d := review(t, e, fine); !d.Allowed {
				t.Errorf("denied: %s", d.Message())
			}
			if d := review(t, e, bad); d.Allowed || d.Message() != "[p] no" {
				t.Errorf("not what the last good version says: %+v", d)
			}
			s := e.Statuses()[0]
			if len(s.Errors) == 0 || s.Errors[0].Row == 0 {
				t.Errorf("the status does not say where: %+v", s)
			}
			another := one("p", strings.ReplaceAll(divides, "20", "30"))
			another.Generation = 3
			e.SetPolicies(ctx, []Policy{another})
			if d := review(t, e, bad); d.Message() != "[p] no" {
				t.Errorf("a version that failed serves for the next one: %+v", d)
			}
			again := one("p", strings.ReplaceAll(refuses, "no", "no more"))
			again.Generation = 4
			e.SetPolicies(ctx, []Policy{again})
			if d := review(t, e, bad); d.Message() != "[p] no more" {
				t.Errorf("not what the mended version says: %+v", d)
			}
			if s := e.Statuses()[0]; len(s.Errors) > 0 || !s.Compiled || *s.Serving != 4 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestAPolicyWithoutAGoodVersionFailsAsItsModeSays(t *testing.T) {
	const says = "[p] the policy could not be evaluated: p.rego:4:2: div: divide by zero"
	tests := []struct {
		name                 string
		enforcement, onError Enforcement
		rego                 string
		message, warning     string
	}{
		{name: "deny refuses", enforcement: Deny, rego: divides, message: says},
		{name: "deny that is to warn of errors", enforcement: Deny, onError: Warn, rego: divides, warning: says},
		{name: "deny that is to hide errors", enforcement: Deny, onError: DryRun, rego: divides},
		{name: "warn never refuses", enforcement: Warn, onError: Deny, rego: divides, warning: says},
		{name: "dryrun never tells", enforcement: DryRun, onError: Deny, rego: divides},
		{name: "one that never compiled warns", enforcement: Deny, rego: "package p\ndeny := :=\n", warning: "[p] the policy could not be evaluated: p.rego:2:9: unexpected assign token"},
		{name: "one that never compiled and is to refuse", enforcement: Deny, onError: Deny, rego: "package p\ndeny := :=\n", message: "[p] the policy could not be evaluated: p.rego:2:9: unexpected assign token"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := one("p", tt.rego)
			p.Enforcement, p.OnError = tt.enforcement, tt.onError
			d := review(t, engine(p), create(t, object(nil, map[string]any{"size": 0})))
			if d.Allowed != (tt.message == "") || !strings.HasPrefix(d.Message(), tt.message) {
				t.Errorf("%v: %s", d.Allowed, d.Message())
			}
			if got := strings.Join(d.WarningLines(), "\n"); !strings.HasPrefix(got, tt.warning) || (tt.warning == "" && got != "") {
				t.Errorf("warns of %q", got)
			}
		})
	}
}

// endless has no result within any time that anybody waits.
const endless = `package p
deny contains "x" if {
	n := [0,1,2,3,4,5,6,7,8,9]
	count([1 | n[a]; n[b]; n[c]; n[d]; n[e]; n[f]; n[g]; n[h]; n[i]; n[j]; a + b + c + d + e + f + g + h + i + j == 1000]) > 0
	input.request
}
`

func TestARunawayPolicyIsStoppedAndThenNotAsked(t *testing.T) {
	clock := testclock.NewFakeClock(noon)
	e := New(Options{Clock: clock, PolicyTime: 20 * time.Millisecond, ReviewTime: time.Minute})
	good := one("p", refuses)
	good.Generation = 1
	other := one("q", strings.ReplaceAll(refuses, "no", "neither"))
	e.SetPolicies(context.Background(), []Policy{good, other})
	runaway := one("p", endless)
	runaway.Generation = 2
	runaway.Match.Kinds = []Kinds{{Kinds: []string{"Pod"}}}
	e.SetPolicies(context.Background(), []Policy{runaway, other})

	bad := create(t, object(nil, map[string]any{"bad": true}))
	for range 5 {
		if d := review(t, e, bad); d.Message() != "[p] no\n[q] neither" {
			t.Fatalf("%+v", d)
		}
	}
	s := e.Statuses()[0]
	if s.Quarantined.IsZero() || len(s.Errors) == 0 {
		t.Errorf("%+v", s)
	}
	asked := (*e.serving.Load())[0].current
	if n := asked.tooLong.Load(); n != runaways-1 {
		t.Errorf("it was asked while in quarantine: %d", n)
	}
	clock.Step(quarantine + time.Second)
	review(t, e, bad)
	if until := asked.until.Load(); until <= clock.Now().UnixNano() {
		t.Error("it was not asked once more, and stopped again")
	}
}

func TestAnUpdateIsRefusedOnlyForWhatIsNew(t *testing.T) {
	p := one("p", `package p
deny contains {"msg": sprintf("asks for %v GPUs, and may for 1", [n]), "details": {"key": "gpus", "value": n}} if {
	n := input.request.object.spec.gpus
	n > 1
}
deny contains sprintf("image %s", [i]) if some i in input.request.object.spec.images
`)
	of := func(gpus int, label string, images ...any) map[string]any {
		return object(map[string]any{"l": label}, map[string]any{"gpus": gpus, "images": images})
	}
	tests := []struct {
		name          string
		before, after map[string]any
		message       string
		warnings      []string
	}{
		{"a label of an object that is wrong", of(4, "a"), of(4, "b"), "", []string{"[p] asks for 4 GPUs, and may for 1 (it was so before this change)"}},
		{"more GPUs", of(4, "a"), of(8, "a"), "[p] asks for 8 GPUs, and may for 1", nil},
		{"fewer GPUs, which are still too many", of(4, "a"), of(2, "a"), "", []string{"[p] asks for 2 GPUs, and may for 1 (it was so before this change)"}},
		{"an image beside one that was there", of(1, "a", "x"), of(1, "a", "x", "y"), "[p] image y", []string{"[p] image x (it was so before this change)"}},
		{"a good object made wrong", of(1, "a"), of(2, "a"), "[p] asks for 2 GPUs, and may for 1", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := review(t, engine(p), update(t, tt.before, tt.after))
			if d.Message() != tt.message || d.Allowed != (tt.message == "") {
				t.Errorf("%v: %s", d.Allowed, d.Message())
			}
			if diff := cmp.Diff(tt.warnings, d.WarningLines()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnUpdateOfNothingThatMattersIsNotAsked(t *testing.T) {
	p := one("p", "package p\ndeny contains sprintf(\"no %s\", [input.request.object.metadata.resourceVersion]) if true\n")
	before := object(nil, map[string]any{"a": 1})
	before["metadata"].(map[string]any)["finalizers"] = []any{"x"}
	after := object(nil, map[string]any{"a": 1})
	after["metadata"].(map[string]any)["resourceVersion"] = "2"
	after["status"] = map[string]any{"phase": "Failed"}
	e := engine(p)
	if d := review(t, e, update(t, before, after)); !d.Allowed || e.Statuses()[0].Counts.Reviews != 0 {
		t.Errorf("a finalizer cannot go: %s", d.Message())
	}
	after["spec"] = map[string]any{"a": 2}
	if d := review(t, e, update(t, before, after)); d.Allowed {
		t.Error("a change of the spec is not looked at")
	}
}

func TestPoliciesReadTheInventoryOfTheMoment(t *testing.T) {
	e := engine(one("p", "package p\ndeny contains msg if { q := data.inventory.queues[input.request.namespace].main; msg := sprintf(\"%v left of %v\", [q.left, q.of[1]]) }\n"))
	r := create(t, object(nil, nil))
	if d := review(t, e, r); !d.Allowed {
		t.Errorf("without an inventory: %s", d.Message())
	}
	for _, left := range []int{3, 2} {
		inventory := map[string]any{"queues": map[string]any{"team-a": map[string]any{"main": map[string]any{"left": left, "of": []int{7, 8}}}}}
		if err := e.SetInventory(inventory); err != nil {
			t.Fatal(err)
		}
		if d := review(t, e, r); d.Message() != fmt.Sprintf("[p] %d left of 8", left) {
			t.Error(d.Message())
		}
	}
}

func TestAPolicyThatOnlyRefusesNowIsServedAsItsNewestGeneration(t *testing.T) {
	p := one("p", refuses)
	p.Generation, p.Enforcement = 1, Warn
	e := engine(p)
	p.Generation, p.Enforcement = 2, Deny
	e.SetPolicies(context.Background(), []Policy{p})
	if s := e.Statuses()[0]; s.Serving == nil || *s.Serving != 2 || !s.Compiled {
		t.Errorf("%+v", s)
	}
}

func TestEnforcementChangesAtOnceThoughTheSourceIsWrong(t *testing.T) {
	e := engine(one("p", refuses))
	broken := one("p", "package p\nnonsense")
	broken.Enforcement = DryRun
	e.SetPolicies(context.Background(), []Policy{broken})
	if d := review(t, e, create(t, object(nil, map[string]any{"bad": true}))); !d.Allowed || len(d.Recorded) != 1 {
		t.Errorf("%+v", d)
	}
	e.SetPolicies(context.Background(), nil)
	if d := review(t, e, create(t, object(nil, map[string]any{"bad": true}))); len(d.Recorded) != 0 {
		t.Errorf("a deleted policy goes on: %+v", d)
	}
}

func TestParametersChangeWithoutTheSource(t *testing.T) {
	p := one("p", "package p\nviolation contains {\"msg\": sprintf(\"at most %v\", [input.parameters.max])} if input.review.object.spec.n > input.parameters.max\n")
	p.Parameters = map[string]any{"max": 1}
	e := engine(p)
	r := create(t, object(nil, map[string]any{"n": 5}))
	if d := review(t, e, r); d.Message() != "[p] at most 1" {
		t.Errorf("%+v", d)
	}
	compiled := (*e.serving.Load())[0].current.program
	p.Parameters = map[string]any{"max": 3}
	e.SetPolicies(context.Background(), []Policy{p})
	if d := review(t, e, r); d.Message() != "[p] at most 3" {
		t.Errorf("%+v", d)
	}
	if (*e.serving.Load())[0].current.program != compiled {
		t.Error("the same source was compiled again")
	}
}

func TestWhoCannotBeReviewedInTimeIsNotDecidedOn(t *testing.T) {
	e := New(Options{Reviews: 1})
	e.SetPolicies(context.Background(), []Policy{one("p", refuses)})
	e.slots <- struct{}{}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := e.Review(ctx, create(t, object(nil, nil))); err == nil {
		t.Error("it was decided")
	}
	broken := create(t, nil)
	broken.Object.Raw = []byte("{")
	<-e.slots
	if _, err := e.Review(context.Background(), broken); err == nil {
		t.Error("an object that is no JSON was decided on")
	}
}

// describer describes with a function.
type describer func(object map[string]any) any

func (d describer) Describe(_ context.Context, _ *admissionv1.AdmissionRequest, object map[string]any) any {
	return d(object)
}

// patient describes once nobody waits for it any more.
type patient struct{}

func (patient) Describe(ctx context.Context, _ *admissionv1.AdmissionRequest, _ map[string]any) any {
	<-ctx.Done()
	return nil
}

func TestPoliciesAreNotBlamedForTimeThatOthersTook(t *testing.T) {
	t.Run("the review is over before the policy's own time", func(t *testing.T) {
		e := New(Options{PolicyTime: time.Minute, ReviewTime: 20 * time.Millisecond})
		e.SetPolicies(context.Background(), []Policy{one("p", endless)})
		for range runaways {
			if d := review(t, e, create(t, object(nil, nil))); d.Allowed {
				t.Fatalf("%+v", d)
			}
		}
		if s := e.Statuses()[0]; !s.Quarantined.IsZero() {
			t.Errorf("it is in quarantine: %+v", s)
		}
	})
	t.Run("what is around an object cannot be read", func(t *testing.T) {
		e := New(Options{PolicyTime: 20 * time.Millisecond, ReviewTime: 2 * time.Second, Describer: patient{}})
		e.SetPolicies(context.Background(), []Policy{one("p", endless)})
		for range runaways {
			review(t, e, create(t, object(nil, nil)))
		}
		if s := e.Statuses()[0]; s.Quarantined.IsZero() {
			t.Error("there was no time left for the policy: one that is endless is not in quarantine")
		}
	})
}

func TestAReviewThatDoesNotComeBackIsDecidedWithoutIt(t *testing.T) {
	before, after := object(nil, map[string]any{"bad": false}), object(nil, map[string]any{"bad": true})
	release := make(chan struct{})
	defer close(release)
	e := New(Options{ReviewTime: 50 * time.Millisecond, Describer: describer(func(object map[string]any) any {
		if object["spec"].(map[string]any)["bad"] == false {
			<-release
		}
		return nil
	})})
	late := one("q", refuses)
	late.OnError = Warn
	e.SetPolicies(context.Background(), []Policy{one("p", refuses), late})
	d := review(t, e, update(t, before, after))
	if d.Allowed || d.Message() != "[p] the policy could not be evaluated: it did not end in time" {
		t.Errorf("%v: %s", d.Allowed, d.Message())
	}
	if diff := cmp.Diff([]string{"[q] the policy could not be evaluated: there was no time left for it"}, d.WarningLines()); diff != "" {
		t.Error(diff)
	}
	if e.Statuses()[0].Quarantined.IsZero() {
		t.Error("it would be asked again")
	}
}

func TestAnObjectThatCannotBeDescribedIsNotDecidedOn(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for name, tt := range map[string]struct {
		describe describer
		says     string
	}{
		"it fails":              {func(map[string]any) any { panic("no") }, "reviewing p: no"},
		"it does not come back": {func(map[string]any) any { <-release; return nil }, "describing p took too long"},
		"it has no JSON form":   {func(map[string]any) any { return &struct{ C chan int }{} }, "describing the object: "},
	} {
		t.Run(name, func(t *testing.T) {
			e := New(Options{ReviewTime: 20 * time.Millisecond, Describer: tt.describe})
			e.SetPolicies(context.Background(), []Policy{one("p", refuses)})
			if d, err := e.Review(context.Background(), create(t, object(nil, nil))); err == nil || !strings.HasPrefix(err.Error(), tt.says) {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
}

func TestReviewsGoOnWhilePoliciesAndDataChange(t *testing.T) {
	e := New(Options{PolicyTime: time.Minute, ReviewTime: time.Minute})
	const says = "package p\ndeny contains msg if { data.inventory.now == data.inventory.same; msg := \"v%d\" }\n"
	set := func(n int) {
		e.SetPolicies(context.Background(), []Policy{one("a", fmt.Sprintf(says, n)), one("b", fmt.Sprintf(says, n))})
		if err := e.SetInventory(map[string]int{"now": n, "same": n}); err != nil {
			t.Error(err)
		}
	}
	set(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
				set(n)
			}
		}
	}()
	r := create(t, object(nil, nil))
	for range 300 {
		d := review(t, e, r)
		if len(d.Denials) != 2 || d.Denials[0].Message != d.Denials[1].Message {
			t.Fatalf("a review saw two revisions: %+v", d)
		}
	}
	close(stop)
	<-done
}
