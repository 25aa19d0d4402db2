package scheduling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// TestNobodyIsForgottenBetweenClaimsSharesAndReservations lets queues of one
// cohort share fairly or not, reserve nodes, stop jobs for others and be edited
// meanwhile; then all comes to rest. Nobody who could start by then may still
// wait. With fair sharing it need not come to rest: one job may have the right to
// stop another by its share, that one a third by its priority, and the third the
// first by the nominal quota of its ClusterQueue.
func TestNobodyIsForgottenBetweenClaimsSharesAndReservations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		m := &mixed{stage: newStage(ctx, t), jobs: map[string]*workload.Job{}, prio: map[string]int32{}}
		fair := rapid.Bool().Draw(t, "fair")
		if fair {
			m.shareFairly(nil)
		}
		if rapid.Bool().Draw(t, "reserves") {
			m.reserveAfter, m.reserveFor = time.Minute, time.Hour
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
			m.watched.AddNode(m.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", 8))
		}
		for _, q := range mixedQueues {
			m.edit(t, q)
		}
		m.Restored()
		t.Repeat(map[string]func(*rapid.T){
			"submit":         m.submitOne,
			"submit another": m.submitOne,
			"submit a third": m.submitOne,
			"run": func(*rapid.T) {
				m.pass()
				m.writeAll()
				m.pass()
			},
			"run on": func(*rapid.T) {
				m.pass()
				m.writeAll()
				m.later(2 * time.Second)
				m.pass()
			},
			"pass":            func(*rapid.T) { m.pass() },
			"end":             m.endOne,
			"grow":            m.growOne,
			"edit":            func(t *rapid.T) { m.edit(t, rapid.SampledFrom(mixedQueues).Draw(t, "queue")) },
			"change priority": m.rankOne,
			"leave":           m.leaveOne,
			"write":           m.writeOne,
			"wait": func(t *rapid.T) {
				m.later(rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 20 * time.Minute}).Draw(t, "for"))
			},
			"": m.check,
		})
		switch rests := m.settles(); {
		case rests:
			m.check(t)
			m.stalled(t)
		case !fair:
			t.Fatalf("it never comes to rest: %v run, %v wait", m.in(Admitted), m.in(Pending))
		}
		for _, name := range slices.Sorted(maps.Keys(m.jobs)) {
			m.ownerGone(m.jobs[name].Owner.UID)
			m.left(m.jobs[name].Owner.UID)
		}
		m.pass()
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.Ledger.jobs) > 0 || len(m.claims) > 0 || len(m.reserved) > 0 || len(m.waits.buckets) > 0 || len(m.waits.heads) > 0 || len(m.waits.charged) > 0 {
			t.Fatalf("left: %d jobs, %d claims, %d reservations, %d buckets, %d heads", len(m.Ledger.jobs), len(m.claims), len(m.reserved), len(m.waits.buckets), len(m.waits.heads))
		}
		for _, q := range mixedQueues {
			for fr, v := range m.quota.Used(q) {
				if v != 0 {
					t.Fatalf("%v of %v is still used in %s", v, fr, q)
				}
			}
		}
		for name, info := range m.plain.Dump().Nodes {
			if len(info.Pods) > 0 {
				t.Fatalf("%s is still on %s", info.Pods[0].GetPod().Name, name)
			}
		}
	})
}

var mixedQueues = []string{"a", "b", "c"}

type mixed struct {
	*stage
	jobs map[string]*workload.Job
	prio map[string]int32
	born int
}

func (m *mixed) edit(t *rapid.T, name string) {
	policies := []kueue.PreemptionPolicy{kueue.PreemptionPolicyAny, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyNever, kueue.PreemptionPolicyAny}
	within := rapid.SampledFrom([]kueue.PreemptionPolicy{kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyNever}).Draw(t, "within")
	reclaim := rapid.SampledFrom(policies).Draw(t, "reclaim")
	strict := rapid.IntRange(0, 2).Draw(t, "strict") == 0
	limit := rapid.SampledFrom([]int64{-1, -1, 0, 4}).Draw(t, "borrow")
	cohort := rapid.SampledFrom([]string{"all", "all", "all", ""}).Draw(t, "cohort")
	if cohort == "" {
		limit = -1
	}
	cq := inCohort(name, cohort, rapid.SampledFrom([]int64{8, 4, 0}).Draw(t, "nominal"), limit, func(s *kueue.ClusterQueueSpec) {
		s.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: within, ReclaimWithinCohort: reclaim}
		if strict {
			s.QueueingStrategy = kueue.StrictFIFO
		}
	})
	m.set(cq, false)
	if rapid.IntRange(0, 4).Draw(t, "protect") == 0 {
		m.setQueueHints(types.NamespacedName{Name: name}, workload.QueueHints{MinRuntime: new(10 * time.Minute)})
	} else {
		m.setQueueHints(types.NamespacedName{Name: name}, workload.QueueHints{})
	}
}

func (m *mixed) submitOne(t *rapid.T) {
	m.born++
	name := fmt.Sprintf("job-%d", m.born)
	var j *workload.Job
	if rapid.IntRange(0, 3).Draw(t, "elastic") == 0 {
		j = elastic(name, int32(rapid.IntRange(1, 3).Draw(t, "pods")), rapid.SampledFrom([]int64{1, 2, 4}).Draw(t, "gpus"))
	} else {
		j = job(name, set("node", 0, int32(rapid.IntRange(1, 3).Draw(t, "pods")), rapid.SampledFrom([]int64{1, 2, 4, 8}).Draw(t, "gpus")))
	}
	j.Queue = rapid.SampledFrom(mixedQueues).Draw(t, "queue")
	j.Created = epoch0.Add(time.Duration(m.born) * time.Second)
	m.jobs[name], m.prio[name] = j, int32(rapid.IntRange(0, 2).Draw(t, "priority"))
	m.submit(j, m.prio[name])
}

func (m *mixed) in(states ...State) []string {
	var out []string
	for name, j := range m.jobs {
		if slices.Contains(states, m.state(j)) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (m *mixed) endOne(t *rapid.T) {
	if names := m.in(Pending, Claimed, Admitting, Admitted); len(names) > 0 {
		name := rapid.SampledFrom(names).Draw(t, "ends")
		m.ownerGone(m.jobs[name].Owner.UID)
		m.left(m.jobs[name].Owner.UID)
	}
}

func (m *mixed) growOne(t *rapid.T) {
	if names := slices.DeleteFunc(m.in(Admitted), func(n string) bool { return !m.jobs[n].Elastic }); len(names) > 0 {
		name := rapid.SampledFrom(names).Draw(t, "grows")
		m.read(running(asks(m.jobs[name], int32(rapid.IntRange(1, 4).Draw(t, "to")))), m.entry(m.jobs[name]).workload, nil)
	}
}

func (m *mixed) rankOne(t *rapid.T) {
	if names := m.in(Pending, Claimed, Admitted); len(names) > 0 {
		name := rapid.SampledFrom(names).Draw(t, "whose")
		p := int32(rapid.IntRange(0, 2).Draw(t, "priority"))
		m.prio[name] = p
		e := m.entry(m.jobs[name])
		wl := e.workload.DeepCopy()
		m.version++
		wl.ResourceVersion = fmt.Sprint(m.version)
		wl.Spec.Priority = &p
		m.read(e.job, wl, nil)
	}
}

func (m *mixed) leaveOne(t *rapid.T) {
	if names := m.in(Leaving); len(names) > 0 {
		m.leaves(m.jobs[rapid.SampledFrom(names).Draw(t, "leaves")])
	}
}

// later lets time pass.
func (m *mixed) later(d time.Duration) {
	m.clock.Step(d)
	m.tick(Timing{StartTimeout: 10000 * time.Hour})
}

func (m *mixed) leaveAll() {
	for _, name := range m.in(Leaving) {
		m.leaves(m.jobs[name])
	}
}

func (m *mixed) writeOne(t *rapid.T) {
	if names := m.in(Admitting, Admitted); len(names) > 0 {
		m.writes(rapid.SampledFrom(names).Draw(t, "written"))
	}
}

func (m *mixed) writeAll() {
	for _, name := range m.in(Admitting, Admitted) {
		m.writes(name)
	}
}

func (m *mixed) writes(name string) {
	j, p := m.jobs[name], m.prio[name]
	now := metav1.NewTime(m.clock.Now())
	e := m.entry(j)
	wl := m.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), isTrue(kueue.WorkloadQuotaReserved), m.admissionWritten(j), func(wl *kueue.Workload) {
		wl.Spec.Priority = &p
		for i := range wl.Status.Conditions {
			wl.Status.Conditions[i].LastTransitionTime = now
		}
	})
	m.written(j.Owner.UID, e.replanned, wl, wrote, nil)
}

// settles lets all be done that follows of itself, and reports whether it comes
// to rest.
func (m *mixed) settles() bool {
	const long = 300
	quiet := 0
	for round := range long {
		before := fmt.Sprint(m.in(Admitted), m.in(Pending))
		admitted := len(m.pass())
		m.writeAll()
		stopped := len(m.in(Leaving))
		m.leaveAll()
		step := 2 * time.Second
		if round > 20 {
			step = 3 * time.Minute
		}
		m.later(step)
		quiet++
		if admitted > 0 || stopped > 0 || len(m.claims) > 0 || before != fmt.Sprint(m.in(Admitted), m.in(Pending)) {
			quiet = 0
		}
		if quiet > 30 {
			return true
		}
	}
	return false
}

func (m *mixed) check(t *rapid.T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if errs := m.waitlistErrors(); len(errs) > 0 {
		t.Fatalf("the waitlist: %s", strings.Join(errs, "; "))
	}
	queues := map[string]int{}
	for uid, e := range m.claims {
		if e.claim == nil || e.state != Claimed || m.Ledger.jobs[uid] != e {
			t.Fatalf("%s has a claim that is none", e)
		}
		if queues[e.claim.assignment.ClusterQueue]++; queues[e.claim.assignment.ClusterQueue] > 1 {
			t.Fatalf("two claims in %s", e.claim.assignment.ClusterQueue)
		}
	}
	phantoms := 0
	for _, info := range m.plain.Dump().Nodes {
		for _, p := range info.Pods {
			if isClaimHold(p.GetPod()) {
				phantoms++
			}
		}
	}
	for _, e := range m.claims {
		phantoms -= len(e.claim.holds)
	}
	if phantoms != 0 {
		t.Fatalf("%d phantoms too many", phantoms)
	}
	for q, r := range m.reserved {
		if r.e.reservation != r || m.Ledger.jobs[r.e.job.Owner.UID] != r.e || r.queue != q {
			t.Fatalf("%s has a reservation that is none", r.e)
		}
	}
}

// stalled finds jobs that could start.
func (m *mixed) stalled(t *rapid.T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.waits.buckets {
		if b.cure.wait == behind || len(m.reserved) > 0 {
			continue
		}
		e := b.jobs.items[0]
		a, _, _ := m.look(e)
		_, no := m.quota.Assign(e.request(m.namespaces[e.job.Owner.Namespace]))
		if a == nil || no != nil {
			continue
		}
		if err := m.cycle.refresh(m.ctx); err != nil {
			t.Fatal(err)
		}
		classes := prototypes(e, a, m.quota)
		fw, snap, no, err := m.cycle.framework(classes)
		if err != nil || no != nil {
			t.Fatalf("%v %v", no, err)
		}
		plan, _, err := m.cycle.planner.Plan(m.ctx, fw, snap, gangOf(e.job.Owner.Name, e.job.Owner.UID, classes, sizes(classes)))
		if err != nil {
			t.Fatal(err)
		}
		if plan != nil {
			t.Fatalf("%s could start on %v, and waits (%d) for: %v; bar %v", e, plan, b.cure.wait, b.why, b.bar)
		}
	}
}
