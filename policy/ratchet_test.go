package policy

import (
	"testing"

	"pgregory.net/rapid"
)

// violations draws what a policy may say: of a few things, by a few numbers.
func violations(t *rapid.T, name string) []Violation {
	draw := rapid.Custom(func(t *rapid.T) Violation {
		v := Violation{Rule: rapid.SampledFrom([]string{"deny", "violation"}).Draw(t, "rule"), Message: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "message")}
		if rapid.Bool().Draw(t, "keyed") {
			v.Key = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "key")
			if rapid.Bool().Draw(t, "valued") {
				n := float64(rapid.IntRange(0, 3).Draw(t, "value"))
				v.Value = &n
			}
		}
		return v
	})
	return rapid.SliceOfN(draw, 0, 5).Draw(t, name)
}

func TestWhatAnUpdateDoesNotMakeWorseStands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := violations(t, "before"), violations(t, "after")
		// What is there twice counts by the larger number.
		had := func(v *Violation) (found bool, most *float64) {
			for i := range before {
				b := &before[i]
				if b.identity() != v.identity() {
					continue
				}
				if !found || (most != nil && (b.Value == nil || *b.Value > *most)) {
					most = b.Value
				}
				found = true
			}
			return found, most
		}
		ratchet(after, before)
		for i := range after {
			v := &after[i]
			found, most := had(v)
			worse := found && most != nil && v.Value != nil && *v.Value > *most
			if v.Standing != (found && !worse) {
				t.Fatalf("%+v stands: %v, of %+v", v, v.Standing, before)
			}
		}
		same := append([]Violation{}, before...)
		ratchet(same, before)
		for i := range same {
			if !same[i].Standing {
				t.Fatalf("%+v is new in the same object", same[i])
			}
		}
	})
}
