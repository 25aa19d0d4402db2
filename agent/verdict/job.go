package verdict

import "time"

// Report is what a node has said last about one unit of a job.
type Report struct {
	Reclaimable bool
	// Heartbeat is when the node said so.
	Heartbeat time.Time
}

// FreshFor is how long a report counts: three heartbeats.
const FreshFor = 180 * time.Second

// Reclaimable says that the GPUs of a whole job could be taken away: each of them has
// been reported, lately, and as reclaimable. The units of one job may be on many
// nodes; devices is how many it holds in all.
func Reclaimable(devices int, reports []Report, now time.Time) bool {
	if devices == 0 || len(reports) < devices {
		return false
	}
	for _, r := range reports {
		// A report of the future is from a clock that is wrong, and may be old.
		if age := now.Sub(r.Heartbeat); !r.Reclaimable || age > FreshFor || age < -FreshFor {
			return false
		}
	}
	return true
}
