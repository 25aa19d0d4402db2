package scheduling

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestAPileGivesWhatIsWantedMost(t *testing.T) {
	type item struct{ value, at int }
	rapid.Check(t, func(t *rapid.T) {
		p := &pile[*item]{compare: func(a, b *item) int { return cmp.Compare(a.value, b.value) }, at: func(i *item) *int { return &i.at }}
		var there []*item
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(there) > 0 && rapid.IntRange(0, 2).Draw(t, "remove") == 0 {
				i := rapid.IntRange(0, len(there)-1).Draw(t, "which")
				p.remove(there[i])
				there = slices.Delete(there, i, i+1)
			} else {
				x := &item{value: rapid.IntRange(0, 20).Draw(t, "value")}
				p.insert(x)
				there = append(there, x)
			}
			if len(p.items) != len(there) {
				t.Fatalf("%d items are left of %d", len(p.items), len(there))
			}
			if len(there) == 0 {
				continue
			}
			least := slices.MinFunc(there, p.compare)
			if p.items[0].value != least.value {
				t.Fatalf("the first is %d, want %d", p.items[0].value, least.value)
			}
			for i, x := range p.items {
				if x.at != i {
					t.Fatalf("item %d thinks that it is at %d", i, x.at)
				}
			}
		}
	})
}
