package bench

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// job is one job of the load, as the driver knows it.
type job struct {
	key   types.NamespacedName
	class *class
	// created is when its creation began, admitted when its Workload was first
	// seen to be admitted, resumed when it was seen to run first, over when its end
	// was written, and told when its Workload was seen to say so.
	created, admitted, resumed, over, told time.Time
	// said is what its Workload says.
	said sayings
	// version is that of the Job as it was seen last. It runs for the run-th time,
	// or has.
	version string
	running bool
	run     int
	ended   bool
}

// turn is the run-th run of a job, whose time is up.
type turn struct {
	*job
	run int
}

// driver submits the jobs of a shape and plays the part of those who run them: a
// job that is resumed runs for the time of its class, and then it has ended; one
// that is suspended meanwhile begins anew.
type driver struct {
	cluster *cluster
	shape   shape
	due     chan turn

	mu      sync.Mutex
	jobs    map[types.NamespacedName]*job
	history history
	// unended jobs have not ended, the Workloads of unfinished ones do not say so.
	unended, unfinished int
	done                chan struct{}

	began, submitted, lastEnd time.Time
	// said counts the writes of Workloads by what they say newly.
	said    map[saying]int
	stopped int
}

func newDriver(c *cluster, s shape) *driver {
	n := s.jobs()
	d := &driver{
		cluster: c, shape: s, due: make(chan turn, n), history: history{shape: s},
		jobs: make(map[types.NamespacedName]*job, n), unended: n, unfinished: n, done: make(chan struct{}),
		said: map[saying]int{},
	}
	for queue := range s.queueNames() {
		for i := range s.classes {
			for x := range s.classes[i].perQueue {
				j := &job{key: client.ObjectKeyFromObject(s.classes[i].job(queue, x)), class: &s.classes[i]}
				d.jobs[j.key] = j
			}
		}
	}
	return d
}

// drive submits all jobs and returns when all have ended, and their Workloads say
// so.
func (d *driver) drive(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	working, stop := context.WithCancel(groupCtx)
	defer stop()
	if err := follow(working, group, d.cluster, &kueue.WorkloadList{}, d.seeWorkload); err != nil {
		return err
	}
	if err := follow(working, group, d.cluster, &batchv1.JobList{}, d.seeJob); err != nil {
		return err
	}
	const enders = 16
	for range enders {
		group.Go(func() error { return d.endJobs(working) })
	}
	d.began = time.Now()
	for queue := range d.shape.queueNames() {
		for i := range d.shape.classes {
			group.Go(func() error { return d.submit(working, queue, &d.shape.classes[i]) })
		}
	}
	select {
	case <-d.done:
		stop()
		return group.Wait()
	case <-groupCtx.Done():
		err := cmp.Or(group.Wait(), context.Cause(ctx))
		d.mu.Lock()
		defer d.mu.Unlock()
		return fmt.Errorf("%d of %d jobs have not ended, the Workloads of %d do not say so: %w", d.unended, len(d.jobs), d.unfinished, err)
	}
}

// submit creates the jobs of a class for a queue at their pace, or as fast as the
// API server takes them.
func (d *driver) submit(ctx context.Context, queue string, c *class) error {
	for x := range c.perQueue {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(d.began.Add(time.Duration(x+1) * c.every))):
		}
		o := c.job(queue, x)
		d.mu.Lock()
		d.jobs[client.ObjectKeyFromObject(o)].created = time.Now()
		d.mu.Unlock()
		if err := create(ctx, d.cluster, o); err != nil && ctx.Err() == nil {
			return err
		}
		d.mu.Lock()
		d.submitted = time.Now()
		d.mu.Unlock()
	}
	return nil
}

// checkDone ends the drive when nothing is left to come. It is called with the
// lock held.
func (d *driver) checkDone() {
	if d.unended == 0 && d.unfinished == 0 {
		close(d.done)
	}
}
