package scheduling

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// urgentInARow is how many urgent items are worked off before one that is not.
const urgentInARow = 8

// byUrgency is what waits in a work queue: what is urgent goes first. Of what is
// equally urgent, the first to come is the first to go. So that the others do
// not starve, one of them goes after some urgent ones.
//
// The work queue calls it under a lock of its own.
type byUrgency[T comparable] struct {
	// isUrgent is asked when an item comes, and when it comes once more.
	isUrgent func(T) bool
	urgent   []T
	// others may hold items that have become urgent since; late is who is
	// really among them.
	others []T
	late   map[T]struct{}
	inARow int
}

var _ workqueue.Queue[JobKey] = &byUrgency[JobKey]{}

func newByUrgency[T comparable](isUrgent func(T) bool) *byUrgency[T] {
	return &byUrgency[T]{isUrgent: isUrgent, late: map[T]struct{}{}}
}

// Push implements workqueue.Queue.
func (q *byUrgency[T]) Push(item T) {
	if q.isUrgent(item) {
		q.urgent = append(q.urgent, item)
		return
	}
	q.others = append(q.others, item)
	q.late[item] = struct{}{}
}

// Touch implements workqueue.Queue: an item that waits is urgent by now.
func (q *byUrgency[T]) Touch(item T) {
	if _, waits := q.late[item]; waits && q.isUrgent(item) {
		delete(q.late, item)
		q.urgent = append(q.urgent, item)
	}
}

// Len implements workqueue.Queue.
func (q *byUrgency[T]) Len() int { return len(q.urgent) + len(q.late) }

// Pop implements workqueue.Queue.
func (q *byUrgency[T]) Pop() T {
	if len(q.urgent) > 0 && (len(q.late) == 0 || q.inARow < urgentInARow) {
		q.inARow++
		return pop(&q.urgent)
	}
	q.inARow = 0
	for {
		item := pop(&q.others)
		if _, waits := q.late[item]; waits {
			delete(q.late, item)
			return item
		}
	}
}

// pop takes the first item off a list, which keeps no reference to it.
func pop[T any](list *[]T) T {
	var none T
	item := (*list)[0]
	(*list)[0] = none
	*list = (*list)[1:]
	return item
}

// holders are the jobs that hold capacity. What is to be done for them comes
// first: to start them, to stop them, to say that they have ended. Until then
// what they hold is of no use to anyone, while a job that waits loses nothing if
// it is read a little later.
type holders struct {
	mu   sync.Mutex
	jobs map[types.UID]struct{}
}

func (h *holders) set(job types.UID, holds bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if holds {
		h.jobs[job] = struct{}{}
	} else {
		delete(h.jobs, job)
	}
}

func (h *holders) has(key JobKey) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, holds := h.jobs[key.UID]
	return holds
}
