package placement

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkPlanRefused plans gangs of 1,000 pods with one GPU each on 5,000 nodes, all of
// which have room for the tree of domains, and few of which the Filter plugins let them
// have: what is tried in vain is bounded.
func BenchmarkPlanRefused(b *testing.B) {
	for _, bench := range []struct {
		name string
		gang func() Gang
		// refusing: one node of each rack refuses the pods.
		refusing bool
	}{
		{name: "domain-by-domain", refusing: true, gang: func() Gang {
			return gangOf(close(class(makePod("worker", 1, near("worker", "rack")), 1000), requiring("rack")))
		}},
		{name: "by-affinity", refusing: true, gang: func() Gang {
			return gangOf(class(makePod("worker", 1, near("worker", "rack")), 1000))
		}},
		{name: "choice-by-choice", gang: func() Gang {
			rack := requiring("rack")
			var gang Gang
			for i := range 100 {
				// Replicas keep off each other's nodes.
				pod := makePod(fmt.Sprintf("replica-%d", i), 1, offOthers(fmt.Sprintf("replica-%d", i), "job"))
				gang.Classes = append(gang.Classes, close(class(pod, 10), rack))
			}
			gang.Name, gang.UID = "job", "job-uid"
			return gang
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			nodes := makeNodes(5000, 8)
			var running []*v1.Pod
			for i, n := range nodes {
				n.Labels["block"], n.Labels["rack"] = "x", fmt.Sprint(i/125)
				if bench.refusing && i%125 == 0 {
					running = append(running, makePod("other-"+n.Name, 0, apart("worker", v1.LabelHostname), on(n.Name)))
				}
			}
			c := newCluster(b, nodes, running...)
			gang := bench.gang()
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// offOthers has pods of a replica of the job keep off nodes with pods of others.
func offOthers(replica, job string) podOption {
	return func(p *v1.Pod) {
		p.Labels["job"], p.Labels["replica"] = job, replica
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			TopologyKey: v1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{
				MatchLabels:      map[string]string{"job": job},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "replica", Operator: metav1.LabelSelectorOpNotIn, Values: []string{replica}}},
			},
		}}}}
	}
}
