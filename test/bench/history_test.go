package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// change is what a job is charged from a resource version on.
type change struct {
	version uint64
	job     types.NamespacedName
	// milli are thousandths of a core, charged to queue.
	milli int64
	queue string
	// ended: the job has ended, so that nothing is charged any more.
	ended bool
}

// history is what jobs are charged at every resource version.
type history struct {
	shape   shape
	changes []change
}

// workload records a version of a job's Workload. What it is charged is what its
// status reserves, until it has finished.
func (h *history) workload(j *job, wl *kueue.Workload) error {
	version, err := versionOf(wl.ResourceVersion)
	if err != nil {
		return err
	}
	c := change{version: version, job: j.key}
	holds := apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved) &&
		!apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)
	if a := wl.Status.Admission; a != nil && holds {
		c.queue = string(a.ClusterQueue)
		for i := range a.PodSetAssignments {
			c.milli += a.PodSetAssignments[i].ResourceUsage.Cpu().MilliValue()
		}
	}
	h.changes = append(h.changes, c)
	return nil
}

// end records that a job has ended.
func (h *history) end(j *job, version string) error {
	v, err := versionOf(version)
	if err == nil {
		h.changes = append(h.changes, change{version: v, job: j.key, ended: true})
	}
	return err
}

func versionOf(s string) (uint64, error) {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading a resource version: %w", err)
	}
	return v, nil
}

// peaks is the most that was charged to any cohort, in thousandths of a core, and
// every version at which more than its quota was charged to one, or to a queue
// more than it may borrow.
func (h *history) peaks() (peak int64, over []string) {
	changes := slices.Clone(h.changes)
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	cohorts := h.shape.queueNames()
	now := map[types.NamespacedName]change{}
	used := map[string]int64{}
	for _, c := range changes {
		was := now[c.job]
		if was.ended {
			continue
		}
		used[was.queue] -= was.milli
		used[cohorts[was.queue]] -= was.milli
		used[c.queue] += c.milli
		used[cohorts[c.queue]] += c.milli
		now[c.job] = c
		if c.milli == 0 {
			continue
		}
		peak = max(peak, used[cohorts[c.queue]])
		for _, of := range []struct {
			name  string
			cores int64
		}{{cohorts[c.queue], h.shape.ofCohort()}, {c.queue, h.shape.ofQueue()}} {
			if used[of.name] > 1000*of.cores {
				over = append(over, fmt.Sprintf("version %d: %d of %d thousandths of a core are charged to %s", c.version, used[of.name], 1000*of.cores, of.name))
			}
		}
	}
	return peak, over
}

func TestPeaks(t *testing.T) {
	s := shape{cohorts: 1, queues: 2, nominal: 10, borrowing: 5}
	a, b := queueName(0, 0), queueName(0, 1)
	name := func(n string) *job { return &job{key: types.NamespacedName{Name: n}} }
	reserved := func(version, queue, cores string, more ...string) *kueue.Workload {
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
		for _, c := range append(more, kueue.WorkloadQuotaReserved) {
			apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
		}
		wl.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue), PodSetAssignments: []kueue.PodSetAssignment{{
			ResourceUsage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cores)},
		}}}
		return wl
	}
	for _, test := range []struct {
		name   string
		record func(h *history) []error
		peak   int64
		over   []string
	}{
		{
			name: "two queues fill their cohort", peak: 20000,
			record: func(h *history) []error {
				return []error{h.workload(name("x"), reserved("1", a, "12")), h.workload(name("y"), reserved("2", b, "8"))}
			},
		},
		{
			name: "what has ended is free, though it is heard of late", peak: 15000,
			record: func(h *history) []error {
				return []error{
					h.workload(name("x"), reserved("1", a, "15")), h.workload(name("y"), reserved("4", b, "15")),
					h.end(name("x"), "3"), h.workload(name("x"), reserved("5", a, "15", kueue.WorkloadFinished)),
				}
			},
		},
		{
			name: "one job more than the cohort has", peak: 21000,
			over: []string{"version 2: 21000 of 20000 thousandths of a core are charged to cohort-0"},
			record: func(h *history) []error {
				return []error{h.workload(name("x"), reserved("1", a, "12")), h.workload(name("y"), reserved("2", b, "9")), h.end(name("x"), "3")}
			},
		},
		{
			name: "more than a queue may borrow", peak: 16000,
			over: []string{"version 1: 16000 of 15000 thousandths of a core are charged to " + a},
			record: func(h *history) []error {
				return []error{h.workload(name("x"), reserved("1", a, "16"))}
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &history{shape: s}
			for _, err := range test.record(h) {
				if err != nil {
					t.Fatal(err)
				}
			}
			peak, over := h.peaks()
			if peak != test.peak {
				t.Errorf("the peak is %d, want %d", peak, test.peak)
			}
			if diff := gocmp.Diff(test.over, over); diff != "" {
				t.Errorf("overshot (-want +got):\n%s", diff)
			}
		})
	}
}
