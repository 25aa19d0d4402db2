package scheduling

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// keyed is the key of a job of which only the UID matters.
func keyed(uid types.UID) JobKey { return JobKey{Kind: "Job", UID: uid} }

// next takes n jobs off the queue, and has done with them.
func (a *asyncEffects) next(n int) []types.UID {
	var out []types.UID
	for range n {
		key, _ := a.jobs.Get()
		out = append(out, key.UID)
		a.jobs.Done(key)
	}
	return out
}

func TestJobsThatHoldCapacityAreReadFirst(t *testing.T) {
	const a, b, c, d = types.UID("a"), types.UID("b"), types.UID("c"), types.UID("d")
	for name, test := range map[string]struct {
		do   func(e *asyncEffects)
		want []types.UID
	}{
		"of jobs that wait, the first to come": {
			func(e *asyncEffects) { ask(e, a, b, c) }, []types.UID{a, b, c},
		},
		"one that is to be resumed does not wait for those that were created before": {
			func(e *asyncEffects) { ask(e, a, b); e.Holds(c, true); ask(e, c) }, []types.UID{c, a, b},
		},
		"of several, the first to come": {
			func(e *asyncEffects) { e.Holds(d, true); e.Holds(c, true); ask(e, a, d, b, c) }, []types.UID{d, c, a, b},
		},
		"one that waits already is admitted meanwhile": {
			func(e *asyncEffects) { ask(e, a, b, c); e.Holds(b, true); ask(e, b) }, []types.UID{b, a, c},
		},
		"one that holds nothing any more waits like others": {
			func(e *asyncEffects) { e.Holds(b, true); e.Holds(b, false); ask(e, a, b) }, []types.UID{a, b},
		},
		"one is done once, however often it is asked for": {
			func(e *asyncEffects) { ask(e, a, b, a); e.Holds(a, true); ask(e, a, a, b) }, []types.UID{a, b},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEffects()
			defer e.jobs.ShutDown()
			test.do(e)
			if n := e.jobs.Len(); n != len(test.want) {
				t.Fatalf("%d jobs are to be read, want %d", n, len(test.want))
			}
			if diff := cmp.Diff(test.want, e.next(len(test.want))); diff != "" {
				t.Errorf("jobs in the order in which they are read (-want +got):\n%s", diff)
			}
		})
	}
}

// ask asks for jobs.
func ask(e *asyncEffects, jobs ...types.UID) {
	for _, uid := range jobs {
		e.Sync(keyed(uid))
	}
}

func TestUrgentWorkStarvesNobody(t *testing.T) {
	e := newEffects()
	defer e.jobs.ShutDown()
	e.Holds("runs", true)
	ask(e, "new")
	for i := range urgentInARow + 1 {
		// It is urgent again as soon as it was done.
		ask(e, "runs")
		if slices.Contains(e.next(1), "new") {
			if i != urgentInARow {
				t.Errorf("a job that can wait is done after %d that cannot, want %d", i, urgentInARow)
			}
			return
		}
	}
	t.Errorf("a job that can wait is not done after %d that cannot", urgentInARow+1)
}

func TestEveryJobThatIsAskedForIsReadOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := newEffects()
		defer e.jobs.ShutDown()
		job := rapid.SampledFrom([]types.UID{"a", "b", "c", "d", "e"})
		asked := map[types.UID]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				uid := job.Draw(t, "job")
				asked[uid] = true
				ask(e, uid)
			},
			"hold": func(t *rapid.T) { e.Holds(job.Draw(t, "job"), rapid.Bool().Draw(t, "holds")) },
			"read": func(t *rapid.T) {
				if len(asked) == 0 {
					t.Skip("nobody is asked for")
				}
				got := e.next(1)[0]
				if !asked[got] {
					t.Fatalf("%s is read, which nobody has asked for", got)
				}
				delete(asked, got)
			},
			"": func(t *rapid.T) {
				if n := e.jobs.Len(); n != len(asked) {
					t.Fatalf("%d jobs are to be read, want %d", n, len(asked))
				}
			},
		})
	})
}
