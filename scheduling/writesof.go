package scheduling

import (
	"hash/maphash"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// turns lets those who write the same Workload do so one after the other. Each of
// them begins with the newest one that is known when it is its turn: side by side,
// all but one would be refused by the API, and an admission that is refused has to
// be decided anew. The zero value is ready to be used.
//
// Jobs share locks, so nobody may take two turns at once.
type turns struct {
	locks [256]sync.Mutex
}

var turnsSeed = maphash.MakeSeed()

// one waits for the turn to write the Workload of a job. It lasts until the
// function is called that is returned.
func (t *turns) one(job types.UID) (done func()) {
	lock := &t.locks[maphash.String(turnsSeed, string(job))%uint64(len(t.locks))]
	lock.Lock()
	return lock.Unlock
}
