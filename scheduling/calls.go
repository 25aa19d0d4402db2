package scheduling

import "k8s.io/apimachinery/pkg/types"

// Jobs are called to be looked at again when something has changed on which they depend.
// One that is read meanwhile is not in the Ledger yet, or not as it will be, and may have
// been read as things were before: it is read again if the call was for such as it.

// reading is a job that is being read, and which jobs were called meanwhile: all of them,
// those that cannot be read, and those of its namespace that wait.
type reading struct {
	namespace             string
	all, blocked, waiting bool
}

// syncWaiting has the jobs that wait in a namespace, or in all with an empty
// name, looked at again: their pods will be others now.
func (l *Ledger) syncWaiting(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.readings {
		r.waiting = r.waiting || namespace == "" || namespace == r.namespace
	}
	l.sync(func(e *entry) bool {
		return e.spot.waits && (namespace == "" || namespace == e.job.Owner.Namespace)
	})
}

// syncBlocked has every job that cannot be read looked at again.
func (l *Ledger) syncBlocked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.readings {
		r.blocked = true
	}
	l.sync(func(e *entry) bool { return e.blocked != nil })
}

// syncAll has every job looked at again.
func (l *Ledger) syncAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.readings {
		r.all = true
	}
	l.sync(func(*entry) bool { return true })
}

func (l *Ledger) sync(are func(*entry) bool) {
	for _, e := range l.jobs {
		if are(e) {
			l.effects.Sync(keyOf(e.job.Owner))
		}
	}
}

// reads notes that a job of a namespace is being read, until over is called.
func (l *Ledger) reads(namespace string) (r *reading, over func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r = &reading{namespace: namespace}
	l.readings[r] = struct{}{}
	return r, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.readings, r)
	}
}

// syncIfCalled has a job looked at again if such as it were called while it was read.
func (l *Ledger) syncIfCalled(uid types.UID, r *reading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil {
		return
	}
	if r.all || (e.blocked != nil && r.blocked) || (e.spot.waits && r.waiting) {
		l.effects.Sync(keyOf(e.job.Owner))
	}
}
