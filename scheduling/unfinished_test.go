package scheduling

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

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
	worker := func(key string) []corev1.PodAffinityTerm {
		return []corev1.PodAffinityTerm{{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "worker"}}}}
	}
	levels := []string{"block", "rack", corev1.LabelHostname}
	c := newCloseChoice(t, [2]int64{5000, 0}, []int{2}, nil, [2][]string{levels, levels}, preempts)
	c.runs(one("low-0", 8), 0)
	c.runs(one("low-1", 8), 0)
	const vain = 200
	for i := 1; i <= vain+1; i++ {
		for k := range 2 {
			n := flavored(fmt.Sprintf("a-%d-%d", i, k), "a", 8)
			n.Labels["block"], n.Labels["rack"] = "a", fmt.Sprintf("a-%d", i)
			c.watched.AddNode(c.logger, n)
			if k == 1 && i <= vain {
				other := plainPod("off-"+n.Name, n.Name, 0, func(p *corev1.Pod) {
					p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: worker(corev1.LabelHostname)}}
				})
				if err := c.watched.AddPod(c.logger, other); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	ps := asking(set("node", 0, pods, 1), kueue.PodSetTopologyRequest{Required: new("rack")})
	ps.Template.Labels = map[string]string{"app": "worker"}
	ps.Template.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: worker("rack")}}
	ps.MinCount = least
	j := job("j", ps)
	c.submit(j, 1)
	c.pass()
	if why := c.why(j).String(); least == 0 && !strings.Contains(why, "of the 201 domains of rack that are large enough were tried, the others are tried next") {
		t.Fatalf("it waits because it %s", why)
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
