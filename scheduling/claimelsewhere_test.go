package scheduling

import (
	"testing"
	"time"
)

// Whose victims have left does not wait for others that leave slowly, if there is
// another place.
func TestAClaimComesTrueElsewhereBeforeStrangersHaveLeft(t *testing.T) {
	for name, tc := range map[string]struct{ filled bool }{
		"a node is idle all the time":   {false},
		"a node becomes idle meanwhile": {true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContest(t, 8, 8)
			for _, q := range []string{"slow", "fast"} {
				c.policy(q, "", 4, lowerPriority)
			}
			c.policy("filler", "", 8, lowerPriority)
			c.runs(one("slow-low", 4, in("slow")), 0)
			c.runs(one("fast-low", 4, in("fast")), 0)
			fills := one("fills", 8, in("filler"))
			if tc.filled {
				c.runs(fills, 0)
			}
			slow, fast := one("slow-high", 4, in("slow")), one("fast-high", 4, in("fast"))
			c.submit(slow, 1)
			c.pass()
			c.wantLeaving("slow-low")
			c.submit(fast, 1)
			c.pass()
			c.wantLeaving("fast-low", "slow-low")
			c.left("fast-low-uid")
			c.pass()
			if tc.filled {
				c.wantState(fast, Claimed)
				c.ownerGone(fills.Owner.UID)
				c.left(fills.Owner.UID)
				c.clock.Step(2 * time.Second)
				c.tick(Timing{StartTimeout: time.Hour})
				c.pass()
			}
			c.wantState(fast, Admitting)
			c.wantState(slow, Claimed)
			c.left("slow-low-uid")
			c.pass()
			c.wantState(slow, Admitting)
			c.wantNoPhantoms()
		})
	}
}
