package scheduling

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The candidates weigh something; those that are let off may weigh no more than
// a bound in all, as pods on a node may.
func TestReprieveLetsOffWhomOneByOneWouldAndAsksLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 200).Draw(t, "weights")
		bound := rapid.IntRange(0, 300).Draw(t, "bound")
		var ids, want []int
		left := bound
		for i, w := range weights {
			ids = append(ids, i)
			if w > left {
				want = append(want, i)
				continue
			}
			left -= w
		}
		left, asked := bound, 0
		got, err := reprieve(ids, func(some []int) (bool, error) {
			asked++
			sum := 0
			for _, i := range some {
				sum += weights[i]
			}
			if sum > left {
				return false, nil
			}
			left -= sum
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("not let off (-one by one +in halves):\n%s", diff)
		}
		if most := 1 + 2*len(want)*(1+bits.Len(uint(len(ids)))); asked > most {
			t.Fatalf("asked %d times about %d victims of %d, want at most %d", asked, len(want), len(ids), most)
		}
	})
}

func TestReprieveKeepsItsArgument(t *testing.T) {
	all := []int{1, 2, 3, 4}
	given := slices.Clone(all)
	if _, err := reprieve(given, func(some []int) (bool, error) { return slices.Contains(some, 2) == false && len(some) < 2, nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, given); diff != "" {
		t.Errorf("the candidates have changed:\n%s", diff)
	}
}
