package scheduling

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// adds a node of flavor a to a rack.
func (c *contest) adds(rack string, k int, labels map[string]string) *corev1.Node {
	n := flavored(fmt.Sprintf("%s-%d", rack, k), "a", 8)
	maps.Copy(n.Labels, labels)
	n.Labels["block"], n.Labels["rack"] = "a", rack
	c.watched.AddNode(c.logger, n)
	return n
}

func workers(key string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "worker"}}}}
}

// refuses has a pod on a node that keeps workers off all nodes with the same label.
func (c *contest) refuses(node, key string) *corev1.Pod {
	pod := plainPod("off-"+node, node, 0, func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: workers(key)}}
	})
	if err := c.watched.AddPod(c.logger, pod); err != nil {
		c.t.Fatal(err)
	}
	return pod
}

// submitsWorkers has so many workers, or at least a part of them, want one rack.
func (c *contest) submitsWorkers(pods, least int32) *workload.Job {
	ps := asking(set("node", 0, pods, 1), kueue.PodSetTopologyRequest{Required: new("rack")})
	ps.Template.Labels = map[string]string{"app": "worker"}
	ps.Template.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: workers("rack")}}
	ps.MinCount = least
	j := job("j", ps)
	c.submit(j, 1)
	return j
}

// TestAJobOfWhichNotAllWasTriedGoesOn: nobody is stopped for a job as long as not all
// racks were tried, and it starts in the one that it fits into.
func TestAJobOfWhichNotAllWasTriedGoesOn(t *testing.T) {
	for name, test := range map[string]struct{ pods, least int32 }{
		"whole":   {16, 0},
		"in part": {32, 16},
	} {
		t.Run(name, func(t *testing.T) { goesOn(t, test.pods, test.least) })
	}
}

// goesOn has a job of so many pods, which can do with least, tried in racks of 16 GPUs.
func goesOn(t *testing.T, pods, least int32) {
	t.Helper()
	levels := []string{"block", "rack", corev1.LabelHostname}
	c := newCloseChoice(t, [2]int64{5000, 0}, []int{2}, nil, [2][]string{levels, levels}, preempts)
	c.runs(one("low-0", 8), 0)
	c.runs(one("low-1", 8), 0)
	const vain = 200
	for i := 1; i <= vain+1; i++ {
		for k := range 2 {
			n := c.adds(fmt.Sprintf("a-%d", i), k, nil)
			if k == 1 && i <= vain {
				c.refuses(n.Name, corev1.LabelHostname)
			}
		}
	}
	j := c.submitsWorkers(pods, least)
	c.pass()
	if why := c.why(j).String(); least == 0 && !strings.Contains(why, "of the 201 domains of rack that are large enough were tried, the others are tried next") {
		t.Fatalf("it waits because it %s", why)
	}
	if wanted := c.wantNodes(c.clock.Now()); len(wanted) > 0 {
		t.Error("nodes are asked for a job that was not tried on all that there are")
	}
	for n := 0; c.state(j) == Pending; n++ {
		if n == 50 {
			t.Fatalf("it still waits because it %s", c.why(j))
		}
		c.wantLeaving()
		c.renew()
		c.pass()
	}
	if got := c.placed(j); !strings.HasPrefix(got, fmt.Sprintf("a-%d-", vain+1)) {
		t.Errorf("it is on %s", got)
	}
}

// TestAJobOfWhichAllWasTriedIsTriedAgain: what has changed on other nodes, after a plan
// had tried a rack in vain, is what the rack lacked.
func TestAJobOfWhichAllWasTriedIsTriedAgain(t *testing.T) {
	levels := []string{"block", "rack", corev1.LabelHostname}
	c := newCloseChoice(t, [2]int64{5000, 0}, nil, nil, [2][]string{levels, levels})
	zone := map[string]string{"zone": "z"}
	far := c.refuses(c.adds("far", 0, zone).Name, "zone")
	c.adds("a-0", 0, nil)
	c.adds("a-0", 1, zone)
	for i := 1; i <= 200; i++ {
		c.adds(fmt.Sprintf("a-%d", i), 0, nil)
		c.refuses(c.adds(fmt.Sprintf("a-%d", i), 1, nil).Name, corev1.LabelHostname)
	}
	j := c.submitsWorkers(16, 0)
	c.pass()
	if why := c.why(j).String(); !strings.Contains(why, "of the 201 domains of rack that are large enough were tried, the others are tried next") {
		t.Fatalf("it waits because it %s", why)
	}
	if err := c.watched.RemovePod(c.logger, far); err != nil {
		t.Fatal(err)
	}
	if wanted := c.wantNodes(c.clock.Now()); len(wanted) > 0 {
		t.Error("nodes are asked for a job that was not tried on all that there are")
	}
	for n := 0; c.state(j) == Pending; n++ {
		if n == 50 {
			t.Fatalf("it still waits because it %s", c.why(j))
		}
		c.renew()
		c.pass()
	}
	if got := c.placed(j); !strings.HasPrefix(got, "a-0-") {
		t.Errorf("it is on %s", got)
	}
}
