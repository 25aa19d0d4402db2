package scheduling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAJobChangesItsStateOnlyInTheseWays(t *testing.T) {
	type step struct {
		from State
		ev   event
	}
	want := map[step]State{
		{Pending, evPlanned}:       Admitting,
		{Pending, evRestored}:      Admitted,
		{Pending, evEnd}:           Gone,
		{Admitting, evWritten}:     Admitted,
		{Admitting, evRefused}:     Pending,
		{Admitting, evEvict}:       Leaving,
		{Admitting, evEnd}:         Leaving,
		{Admitted, evEvict}:        Leaving,
		{Admitted, evEnd}:          Leaving,
		{Leaving, evWritten}:       Leaving,
		{Leaving, evRefused}:       Leaving,
		{Leaving, evEvict}:         Leaving,
		{Leaving, evEnd}:           Leaving,
		{Leaving, evReleased}:      Pending,
		{Leaving, evReleasedEnded}: Gone,
	}
	got := map[step]State{}
	for _, from := range []State{Pending, Admitting, Admitted, Leaving, Gone} {
		for _, ev := range []event{evPlanned, evWritten, evRefused, evRestored, evEvict, evEnd, evReleased, evReleasedEnded} {
			e := &entry{state: from}
			if e.move(ev) {
				got[step{from, ev}] = e.state
			} else if e.state != from || e.version != 0 {
				t.Errorf("%s in %s is refused and still changes the job to %s, version %d", ev, from, e.state, e.version)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

func TestAStepMakesPlansForTheJobStale(t *testing.T) {
	e := &entry{state: Pending, version: 7}
	e.move(evPlanned)
	if e.version != 8 {
		t.Errorf("the version is %d, want 8", e.version)
	}
}
