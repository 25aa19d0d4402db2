package scheduling

import (
	"fmt"
	"testing"

	"github.com/muster-gpu/muster/api/reason"
)

func TestPodThatIsLargerThanAnyNodeSaysSoBeforeItSaysThatItWaitsForQuota(t *testing.T) {
	s := testScene(t, 16)
	for _, n := range []string{"node-0", "node-1"} {
		s.watched.AddNode(s.logger, node(n, 8))
	}
	s.admitted(job("runs", set("node", 0, 2, 8)), []string{"node-0", "node-1"})
	big := s.pending(job("big", set("node", 0, 1, 9)))
	s.pending(job("fits", set("node", 0, 1, 8)))
	says := func() (reason.Class, reason.Class, string) {
		t.Helper()
		var got []reason.Class
		message := ""
		lines, _ := s.picture(epoch0)
		for _, l := range lines {
			if l.job.Owner.Name == big.Owner.Name {
				message = l.why.Message
				if !l.needsNoNodes {
					t.Error("an autoscaler would be called for a job that lacks quota")
				}
			}
			got = append(got, l.why.Class)
		}
		if len(got) != 2 {
			t.Fatalf("told are %+v", lines)
		}
		return got[0], got[1], message
	}
	for _, j := range []string{"big", "fits"} {
		s.entry(job(j)).spot.bucket.why = reason.New(reason.WaitingForQuota, "the quota is used")
	}
	if a, b, message := says(); a != reason.ExceedsCluster || b != reason.WaitingForQuota || message != "needs 9 GPUs on one node; the largest node has 8" {
		t.Errorf("they say %s (%s) and %s", a, message, b)
	}
	s.watched.AddNode(s.logger, node("node-2", 16))
	if a, _, _ := says(); a != reason.WaitingForQuota {
		t.Errorf("when there is a larger node it says %s", a)
	}
	if err := s.watched.RemoveNode(s.logger, node("node-2", 16)); err != nil {
		t.Fatal(err)
	}
	if a, _, _ := says(); a != reason.ExceedsCluster {
		t.Errorf("when that is gone it says %s", a)
	}
}

func TestJobsFarBehindCallForNoNodesWhileSomeWereNotTried(t *testing.T) {
	s := testScene(t, 16)
	for i := range exactReasons + 5 {
		s.pending(job(fmt.Sprintf("job-%02d", i), set("node", 0, 1, 8)))
	}
	b := s.entry(job("job-00")).spot.bucket
	b.why = reason.New(reason.NoPlacement, "no node has 8")
	b.effort().progress = progresses{queues: s.waits.seen.queues, of: map[string]*progress{"": {}}}
	lines, _ := s.picture(epoch0)
	behind := 0
	for _, l := range lines {
		if l.why.Message == farBehind {
			behind++
		}
		if !l.needsNoNodes {
			t.Errorf("%s (%s) would call for nodes", l.job.Owner.Name, l.why.Message)
		}
	}
	if behind == 0 {
		t.Errorf("nobody is far behind: %v", lines)
	}
}
