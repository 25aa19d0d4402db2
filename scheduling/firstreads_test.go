package scheduling

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-gpu/muster/workload"
)

func TestNothingIsAdmittedBeforeTheJobsThatWaitAreRead(t *testing.T) {
	s := newStage(t.Context(), t)
	s.queue("q", false, []string{"gpu"}, 8)
	s.watched.AddNode(s.logger, flavored("node-0", "gpu", 8))
	s.reading()
	s.Restored()
	low, high := one("low", 8, in("q")), one("high", 8, in("q"))
	s.submit(low, 0)
	if got := s.pass(); len(got) > 0 {
		t.Fatalf("%v was admitted", got)
	}
	s.submit(high, 10)
	if got := s.pass(); len(got) > 0 {
		t.Fatalf("%v was admitted", got)
	}
	admits := s.wishes.admits
	s.allRead()
	if s.wishes.admits == admits {
		t.Error("nobody has asked for a pass")
	}
	if diff := cmp.Diff([]string{"high"}, s.pass()); diff != "" {
		t.Errorf("once all are read (-want +got):\n%s", diff)
	}
}

// readings drives the wait for two owners with a clock of its own.
type readings struct {
	*firstReads
	clock *testclock.FakeClock
	over  chan struct{}
}

func keyNamed(name string) JobKey {
	return JobKey{Kind: "Job", NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func newReadings(ctx context.Context, owners ...string) *readings {
	r := &readings{newFirstReads(), testclock.NewFakeClock(epoch0), make(chan struct{})}
	for _, name := range owners {
		r.told(keyNamed(name))
	}
	r.begin(r.clock.Now())
	go func() {
		defer close(r.over)
		r.wait(ctx, r.clock)
	}()
	return r
}

// step lets some time pass, once the wait has a timer.
func (r *readings) step(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !r.clock.HasWaiters(); {
		if r.isOver() || time.Now().After(end) {
			t.Fatal("nobody waits")
		}
		time.Sleep(time.Millisecond)
	}
	r.clock.Step(d)
}

func (r *readings) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

func (r *readings) wantOver(t *testing.T) {
	t.Helper()
	select {
	case <-r.over:
	case <-time.After(time.Minute):
		t.Fatal("it waits on")
	}
}

func TestTheWaitForTheFirstReadingsEnds(t *testing.T) {
	t.Run("when all owners were read", func(t *testing.T) {
		r := newReadings(t.Context(), "a", "b")
		r.read(keyNamed("a"), r.clock.Now())
		if r.isOver() {
			t.Fatal("it did not wait for the second")
		}
		r.read(keyNamed("b"), r.clock.Now())
		r.wantOver(t)
	})
	t.Run("at once where there are none", func(t *testing.T) {
		newReadings(t.Context()).wantOver(t)
	})
	t.Run("for owners that are told of later it is not begun", func(t *testing.T) {
		r := newReadings(t.Context(), "a")
		r.told(keyNamed("b"))
		r.read(keyNamed("a"), r.clock.Now())
		r.wantOver(t)
	})
	t.Run("when no more owners are read, because one cannot be", func(t *testing.T) {
		r := newReadings(t.Context(), "a", "broken")
		r.step(t, unreadPatience-time.Second)
		r.read(keyNamed("a"), r.clock.Now())
		r.step(t, unreadPatience-time.Second)
		if n, _ := r.left(); n != 1 || r.isOver() {
			t.Fatal("it gave up early")
		}
		r.step(t, time.Second)
		r.wantOver(t)
	})
	t.Run("after a time, however slowly owners are read", func(t *testing.T) {
		r := newReadings(t.Context(), "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u")
		for name := 'a'; !r.isOver(); name++ {
			if name > 'u' {
				t.Fatal("all were read first")
			}
			if r.clock.Since(epoch0) >= unreadBound {
				r.wantOver(t)
				break
			}
			r.step(t, unreadPatience-time.Second)
			r.read(keyNamed(string(name)), r.clock.Now())
		}
	})
	t.Run("when the process leads no more", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := newReadings(ctx, "a")
		cancel()
		r.wantOver(t)
	})
}

func TestAnOwnerCountsAsReadOnceTheLedgerHasIt(t *testing.T) {
	s := testScene(t, 8, 8)
	of := job("a", set("node", 0, 1, 8))
	away := errors.New("the API is away")
	fails := true
	j := s.jobsOn(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if fails {
			return away
		}
		return c.Get(ctx, key, o, opts...)
	}}, jobSetOf(of))
	key := keyOf(workload.Owner{GroupVersionKind: of.Owner.GroupVersionKind, NamespacedName: of.Owner.NamespacedName, UID: of.Owner.UID})
	j.effects.Sync(key)
	j.effects.first.begin(s.clock.Now())
	left := func() int {
		n, _ := j.effects.first.left()
		return n
	}

	if err := j.readFirst(t.Context(), key); !errors.Is(err, away) || left() != 1 {
		t.Errorf("the error is %v, and %d are left", err, left())
	}
	fails = false
	s.restored = false
	if err := j.readFirst(t.Context(), key); err != nil || left() != 1 {
		t.Errorf("before the admitted jobs are known: the error is %v, and %d are left", err, left())
	}
	s.restored = true
	if err := j.readFirst(t.Context(), key); err != nil || left() != 0 {
		t.Errorf("the error is %v, and %d are left", err, left())
	}
	if s.entry(of) == nil {
		t.Error("the Ledger does not know it")
	}
}

// What is not queued is read once, and that may be before the admitted jobs are
// known. Nobody waits for it then.
func TestAnOwnerThatIsNotQueuedIsNotWaitedForAgain(t *testing.T) {
	s := testScene(t, 8, 8)
	of := job("a", set("node", 0, 1, 8))
	js := jobSetOf(of)
	js.Labels = nil
	j := s.jobsOn(t, interceptor.Funcs{}, js)
	key := keyOf(of.Owner)
	j.effects.Sync(key)
	s.restored = false
	if err := j.readFirst(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	j.effects.first.begin(s.clock.Now())
	if n, _ := j.effects.first.left(); n != 0 {
		t.Errorf("%d are left", n)
	}
}
