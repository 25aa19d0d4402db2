package integration

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/testcluster"
)

// elected has the environment's schedulers elect a leader, who has some seconds
// between giving up and being followed.
func (e *env) elected() {
	l := &e.config.LeaderElection
	l.LeaderElect = true
	l.LeaseDuration.Duration, l.RenewDeadline.Duration, l.RetryPeriod.Duration = 8*time.Second, 4*time.Second, 500*time.Millisecond
}

// leader waits until someone other than not leads, and returns the Lease.
func (e *env) leader(t *testing.T, not string) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{}
	testcluster.Eventually(t, "a leader", func(ctx context.Context) error {
		key := client.ObjectKey{Namespace: e.namespace, Name: e.config.LeaderElection.ResourceName}
		if err := e.Client.Get(ctx, key, lease); err != nil {
			return err
		}
		if h := lease.Spec.HolderIdentity; h == nil || *h == "" || *h == not {
			return fmt.Errorf("the Lease is %+v", lease.Spec)
		}
		return nil
	})
	return lease
}

// watchman is a fault function that lets all pass and remembers some of it.
type watchman struct {
	mu sync.Mutex
	// asked are the resources that were asked for, by verb.
	asked map[string]bool
	// lastChange is when a change last came, other than of Leases and events.
	lastChange time.Time
	change     testcluster.Request
}

func (w *watchman) see(r testcluster.Request) testcluster.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked == nil {
		w.asked = map[string]bool{}
	}
	w.asked[r.Verb+" "+r.Resource] = true
	if r.Changes() && r.Resource != "leases" && r.Resource != "events" {
		w.lastChange, w.change = time.Now(), r
	}
	return testcluster.Fault{}
}

// saw waits until something was asked for.
func (w *watchman) saw(t *testing.T, request string) {
	t.Helper()
	testcluster.Eventually(t, request, func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.asked[request] {
			return fmt.Errorf("asked for was %v", w.asked)
		}
		return nil
	})
}

// handOvers has one scheduler follow another in the middle of a stream of
// jobs. Each job runs, once, and nothing stays charged.
func handOvers(t *testing.T, s *stages) {
	for _, tc := range []struct {
		name string
		// end ends the leading of the first scheduler.
		end func(t *testing.T, first *process, proxy *testcluster.Proxy, seen *watchman)
	}{
		{name: "the leader is killed", end: func(_ *testing.T, first *process, _ *testcluster.Proxy, _ *watchman) { first.kill() }},
		{name: "the leader is cut off", end: func(t *testing.T, first *process, proxy *testcluster.Proxy, _ *watchman) {
			proxy.Cut()
			first.gone(t)
		}},
		{name: "the leader cannot renew its lease, and could do all else", end: func(t *testing.T, first *process, proxy *testcluster.Proxy, seen *watchman) {
			proxy.Faults(func(r testcluster.Request) testcluster.Fault {
				if r.Resource == "leases" && r.Changes() {
					return testcluster.Fault{Status: http.StatusInternalServerError}
				}
				return seen.see(r)
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := s.next(t)
			e.elected()
			e.Node(t, "node-0", 8)
			e.Node(t, "node-1", 8)
			e.Queue(t, e.namespace, "team", 12)
			proxy, seen := e.Proxy(t), &watchman{}
			proxy.Faults(seen.see)
			first := e.spawn(t, "first", proxy.Kubeconfig)
			led := *e.leader(t, "").Spec.HolderIdentity
			e.spawn(t, "second", e.Kubeconfig)

			f := &flow{env: e}
			f.create(t, 6)
			f.advance(t, 3)
			tc.end(t, first, proxy, seen)
			f.create(t, 6)
			followed := e.leader(t, led)
			f.advance(t, 12)
			first.gone(t)
			seen.mu.Lock()
			defer seen.mu.Unlock()
			if since := followed.Spec.AcquireTime.Time; seen.lastChange.After(since) {
				t.Errorf("the first scheduler sent %s at %s, when the second led since %s", seen.change, seen.lastChange, since)
			}
			e.usage(t, "team", 0, 0, 0)
		})
	}
}

// flow is jobs of mixed sizes, more than fit together, that finish some time
// after they run.
type flow struct {
	*env
	jobs     []*jobset.JobSet
	finished map[string]bool
}

// create adds n jobs.
func (f *flow) create(t *testing.T, n int) {
	t.Helper()
	for range n {
		i := len(f.jobs)
		js := f.job(fmt.Sprintf("job-%d", i), "team", int32(1+i%3), int64(1+i%4))
		f.Create(t, js)
		f.jobs = append(f.jobs, js)
	}
}

// advance finishes jobs that run until n have finished, of all.
func (f *flow) advance(t *testing.T, n int) {
	t.Helper()
	if f.finished == nil {
		f.finished = map[string]bool{}
	}
	for len(f.finished) < n {
		var runs *jobset.JobSet
		testcluster.Eventually(t, fmt.Sprintf("one of %d jobs to run, after %d", len(f.jobs), len(f.finished)), func(ctx context.Context) error {
			for i, js := range f.jobs {
				if !f.finished[js.Name] && f.Bound(ctx, js, 1+i%3) == nil {
					runs = js
					return nil
				}
			}
			return fmt.Errorf("none does")
		})
		f.resumed(t, runs, 1)
		f.finish(t, runs)
		f.finished[runs.Name] = true
	}
}

// standbys makes a scheduler lead whose watch of one kind is behind, and
// sees that it admits nothing by what is so no more.
func standbys(t *testing.T, s *stages) {
	for _, tc := range []struct {
		name string
		// behind is the resource of which the standby does not hear.
		behind string
		// change is what it does not hear: that a job does not fit.
		change func(t *testing.T, e *env)
		// why is the reason for which the job waits.
		why, part string
	}{
		{name: "a pod that the leader bound last has its room", behind: "pods", why: "NoPlacement", part: "0 GPUs are free", change: func(t *testing.T, e *env) {
			hog := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "hog"},
				Spec: corev1.PodSpec{SchedulerName: "muster", Containers: []corev1.Container{{
					Name: "c", Image: "example.com/x", Resources: corev1.ResourceRequirements{Limits: gpus(8)},
				}}},
			}
			e.Create(t, hog)
			testcluster.Eventually(t, "the pod to be bound", func(ctx context.Context) error {
				if err := e.Client.Get(ctx, client.ObjectKeyFromObject(hog), hog); err != nil {
					return err
				}
				if hog.Spec.NodeName == "" {
					return fmt.Errorf("it is not")
				}
				return nil
			})
		}},
		{name: "quota that was taken away last is gone", behind: "clusterqueues", why: "ExceedsMaxQuota", part: "", change: func(t *testing.T, e *env) {
			testcluster.Eventually(t, "the quota to be lowered", func(ctx context.Context) error {
				cq := &kueue.ClusterQueue{}
				if err := e.Client.Get(ctx, client.ObjectKey{Name: e.namespace + "-team"}, cq); err != nil {
					return err
				}
				cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = gpus(4)[testcluster.GPU]
				return e.Client.Update(ctx, cq)
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := s.next(t)
			e.elected()
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			first := e.spawn(t, "first", e.Kubeconfig)
			led := *e.leader(t, "").Spec.HolderIdentity
			proxy, seen := e.Proxy(t), &watchman{}
			proxy.Faults(seen.see)
			e.spawn(t, "second", proxy.Kubeconfig)
			testcluster.Eventually(t, "the standby to know how things stand", func(context.Context) error {
				if !proxy.Listed("pods") || !proxy.Listed(tc.behind) {
					return fmt.Errorf("it does not know the %s", tc.behind)
				}
				return nil
			})
			// It asks for the Lease once it has read the nodes and the pods.
			seen.saw(t, "get leases")
			proxy.Hold(tc.behind)
			tc.change(t, e)
			first.kill()
			js := e.job("gang", "team", 1, 8)
			e.Create(t, js)
			e.leader(t, led)
			seen.saw(t, "list "+tc.behind)
			// Long enough for one who does not wait to start the job.
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				if wl, err := e.workload(t.Context(), js); err == nil && isTrue(wl, kueue.WorkloadAdmitted) {
					t.Fatal("the job is admitted by what is so no more")
				}
			}
			proxy.Release(tc.behind)
			e.pending(t, js, tc.why, tc.part)
		})
	}
}
