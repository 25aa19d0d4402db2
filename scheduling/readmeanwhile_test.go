package scheduling

import (
	"sync"
	"testing"
)

// TestAJobMayBeReadWhileOthersAreStoppedForIt has a job read again, as it is
// whenever anything of it changes, while a pass looks for jobs to stop for it,
// and while its claim is redeemed. What a pass reads without the lock is for the
// race detector to find.
func TestAJobMayBeReadWhileOthersAreStoppedForIt(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("q", "", 16, lowerPriority)
	c.fill(2, 0, in("q"))
	urgent := one("urgent", 8, in("q"))
	c.submit(urgent, 10)
	wl := c.workloadOf(urgent.Owner.UID)
	done := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				again := *urgent
				c.read(&again, wl, nil)
			}
		}
	})
	c.pass()
	c.wantState(urgent, Claimed)
	c.leave()
	c.pass()
	c.wantState(urgent, Admitting)
	close(done)
	reader.Wait()
}
