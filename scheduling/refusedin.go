package scheduling

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/api/reason"
)

// mostNamed bounds of how many choices of flavors a sentence tells.
const mostNamed = 3

// reason is why a job was not started, in all choices of flavors that were tried.
func (t *attempt) reason(first *option) *reason.Reason {
	placeless := t.placeless()
	if len(placeless) == 0 {
		if first.quota == nil {
			return t.b.unworded()
		}
		return first.quota.And(t.b.inVain().words())
	}
	var short *reason.Reason
	if t.detours != nil {
		short = t.detours.short
	}
	if len(t.options) == 1 && short == nil {
		return first.why.And(t.b.inVain().of(first))
	}
	class, parts := placeless[0].why.Class, []string(nil)
	for i, o := range placeless {
		class = graver(class, o.why.Class)
		switch {
		case i < mostNamed:
			parts = append(parts, o.name+": "+o.why.Message+t.b.inVain().of(o))
		case i == mostNamed:
			parts = append(parts, fmt.Sprintf("and no place in %d more choices of flavors", len(placeless)-i))
		}
	}
	var vain string
	for _, o := range t.options {
		if o.why != nil {
			continue
		}
		if short == nil || len(vain) == 0 {
			short = o.quota
		}
		vain += t.b.inVain().told(o)
	}
	if short != nil {
		class = graver(class, short.Class)
		parts = append(parts, short.Message+vain)
	}
	return &reason.Reason{Class: class, Message: strings.Join(parts, "; ")}
}

// graver is of two classes the one that tells what would let a job start.
func graver(a, b reason.Class) reason.Class {
	for _, class := range []reason.Class{reason.NoPlacement, reason.WaitingForQuota} {
		if a == class || b == class {
			return class
		}
	}
	return a
}

// vain is what came of the last searches for victims, by the choices of flavors that
// they were made for.
type vain []inVain

type inVain struct{ name, words string }

// inVain is what came of the last searches for the jobs of a bucket.
func (b *bucket) inVain() vain {
	if b.efforts == nil {
		return nil
	}
	return b.efforts.vain
}

// noteVain notes what came of a search.
func (b *bucket) noteVain(o *option, words string) {
	if words == "" && b.efforts == nil {
		return
	}
	v := slices.DeleteFunc(b.effort().vain, func(i inVain) bool { return i.name == o.name })
	if words != "" {
		v = append(v, inVain{o.name, words})
	}
	b.efforts.vain = v
}

// keepVain forgets what came of searches for other choices than these.
func (b *bucket) keepVain(options []*option) {
	if b.efforts == nil {
		return
	}
	b.efforts.vain = slices.DeleteFunc(b.efforts.vain, func(i inVain) bool {
		return !slices.ContainsFunc(options, func(o *option) bool { return o.name == i.name })
	})
}

// of is what came of the search for a choice, as the end of a sentence about it.
func (v vain) of(o *option) string {
	for _, i := range v {
		if i.name == o.name {
			return "; " + i.words
		}
	}
	return ""
}

// told is the same as the end of a sentence that is not about the choice alone.
func (v vain) told(o *option) string {
	words := v.of(o)
	if words == "" || o.name == "" {
		return words
	}
	return "; in " + o.name + " " + strings.TrimPrefix(words, "; ")
}

// words is what came of all searches.
func (v vain) words() string {
	var out string
	for _, i := range v {
		out += v.told(&option{name: i.name})
	}
	return out
}
