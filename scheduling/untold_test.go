package scheduling

import (
	"fmt"
	"testing"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// crowd are so many jobs that not all can be told at once, refused.
func crowd(s *scene, n int, class reason.Class) []*workload.Job {
	var out []*workload.Job
	for i := range n {
		out = append(out, s.pending(job(fmt.Sprintf("job-%04d", i), set("node", 0, 1, 8))))
	}
	s.refuseAs(out[0], class)
	return out
}

func (s *scene) refuseAs(j *workload.Job, class reason.Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.jobs[j.Owner.UID]
	s.refuse(e, e.version, s.waits.seen, cure{wait: forRoom, queue: "cq"}, reason.New(class, "no node has 8"))
}

// tellAll makes reports until nothing is left to tell, and returns what each
// job says and how many reports that took.
func (s *scene) tellAll(t *testing.T) (says map[string]reason.Reason, reports, longest int) {
	t.Helper()
	says = map[string]reason.Reason{}
	for more := true; more; reports++ {
		lines, counts := s.picture(epoch0)
		for _, l := range lines {
			says[l.job.Owner.Name] = l.why
		}
		longest = max(longest, len(lines))
		more = counts.more
		if reports > 1000 {
			t.Fatal("the reports never end")
		}
	}
	return says, reports, longest
}

func TestEveryJobIsToldItsReasonAFewAtATime(t *testing.T) {
	const n = exactReasons + 3*tellAtOnce + 1
	s := testScene(t, 8)
	jobs := crowd(s, n, reason.NoPlacement)
	says, _, longest := s.tellAll(t)
	if len(says) != n || longest > exactReasons+tellAtOnce {
		t.Errorf("%d of %d jobs are told, up to %d at once", len(says), n, longest)
	}
	first, last := says["job-0000"].Message, says[fmt.Sprintf("job-%04d", n-1)].Message
	if first != "no node has 8" || last != "behind the first 20 jobs of its queue" {
		t.Errorf("the first says %q, the last %q", first, last)
	}

	// Nothing has happened: only the first are told again.
	if lines, counts := s.picture(epoch0); len(lines) != exactReasons || counts.more {
		t.Errorf("%d jobs are told again, more to come: %v", len(lines), counts.more)
	}

	// Their class changes.
	s.touchLocked()
	s.refuseAs(jobs[0], reason.ExceedsCluster)
	says, _, _ = s.tellAll(t)
	for _, j := range jobs {
		if got := says[j.Owner.Name].Class; got != reason.ExceedsCluster {
			t.Fatalf("%s says %q", j.Owner.Name, got)
		}
	}
}

func TestJobThatFallsBehindTheFirstSaysSo(t *testing.T) {
	s := testScene(t, 8)
	jobs := crowd(s, exactReasons, reason.NoPlacement)
	s.tellAll(t)
	s.submitUrgent(job("urgent", set("node", 0, 1, 8)))
	says, _, _ := s.tellAll(t)
	if got := says[jobs[exactReasons-1].Owner.Name].Message; got != "behind the first 20 jobs of its queue" {
		t.Errorf("the last of the first says %q", got)
	}
	if got := says["urgent"].Message; got != "no node has 8" {
		t.Errorf("the urgent one says %q", got)
	}
}

func TestRefusedJobsAreTriedAgainForTheirReasonOnceASecondAtMost(t *testing.T) {
	s := testScene(t, 8)
	j := s.pending(job("a", set("node", 0, 1, 8)))
	s.refuseAs(j, reason.NoPlacement)
	renewals := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.renew()
		return len(s.waits.renewals)
	}
	if got := renewals(); got != 0 {
		t.Errorf("nothing has happened, and %d are tried again", got)
	}
	s.arrived(plainPod("p", "node-0", 0))
	s.arrived(plainPod("q", "node-0", 0))
	if got := renewals(); got != 1 {
		t.Errorf("pods came, and %d are tried again", got)
	}
}

func (s *scene) touchLocked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch()
}

func (s *scene) submitUrgent(j *workload.Job) {
	wl := s.workloadOfJob(j)
	wl.Spec.Priority = new(int32(1))
	s.read(j, wl, nil)
}
