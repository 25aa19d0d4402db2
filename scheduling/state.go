package scheduling

// State is where a job stands between its creation and its end.
type State string

// The states of a job. Only entry.move changes them.
const (
	// Pending jobs hold nothing and wait for quota and nodes.
	Pending State = "Pending"
	// Claimed jobs hold nothing that is charged. Others are being stopped for
	// them, and what these leave is promised to them (see claimed.go).
	Claimed State = "Claimed"
	// Admitting jobs are charged and held in memory; the write of their
	// Workload is on its way.
	Admitting State = "Admitting"
	// Admitted jobs are charged, held and written; their owner is resumed and
	// their pods fill the slots.
	Admitted State = "Admitted"
	// Leaving jobs are being stopped or have ended; they stay charged until
	// their owner is still and their last pod has left its node.
	Leaving State = "Leaving"
	// Gone jobs are released and forgotten.
	Gone State = "Gone"
)

// event is what can happen to a job.
type event string

const (
	// evPlanned: quota and a node for every pod were found and taken.
	evPlanned event = "planned"
	// evClaimed: what jobs will leave that are being stopped was promised to it.
	evClaimed event = "claimed"
	// evUnclaimed: the promise has ended without an admission.
	evUnclaimed event = "unclaimed"
	// evWritten: the Workload says Admitted in the API.
	evWritten event = "written"
	// evRefused: the Workload could not be written as admitted.
	evRefused event = "refused"
	// evRestored: a Workload that the API says is admitted was read at start.
	evRestored event = "restored"
	// evEvict: the job must stop and may come back.
	evEvict event = "evict"
	// evEnd: the owner has finished or is deleted.
	evEnd event = "end"
	// evReleased: the last pod has left its node, the owner makes no more.
	evReleased event = "released"
	// evReleasedEnded: as evReleased, for an owner that has ended.
	evReleasedEnded event = "released, ended"
)

// transitions is the life of a job. What is not in it cannot happen.
var transitions = map[State]map[event]State{
	Pending: {
		evPlanned:  Admitting,
		evClaimed:  Claimed,
		evRestored: Admitted,
		evEnd:      Gone,
	},
	Claimed: {
		evPlanned:   Admitting,
		evUnclaimed: Pending,
		evEnd:       Gone,
	},
	Admitting: {
		evWritten: Admitted,
		evRefused: Pending,
		evEvict:   Leaving,
		evEnd:     Leaving,
	},
	Admitted: {
		evEvict: Leaving,
		evEnd:   Leaving,
	},
	Leaving: {
		// The write of an admission can still be under way when its job leaves.
		evWritten:       Leaving,
		evRefused:       Leaving,
		evEvict:         Leaving,
		evEnd:           Leaving,
		evReleased:      Pending,
		evReleasedEnded: Gone,
	},
}

// next is the state after ev, and whether ev may happen in s at all.
func (s State) next(ev event) (State, bool) {
	to, ok := transitions[s][ev]
	return to, ok
}
