package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/testsandbox"
)

// What is in the cluster of BenchmarkWebhookMemory.
const (
	manyNamespaces = 5000
	manyQueues     = 1000
	manyGPUNodes   = 1000
	manyPolicies   = 100
)

// BenchmarkWebhookMemory says how much memory the webhook's process has in a large cluster
// with many policies: when it has read all, and after objects were created by the hundreds.
// GOMEMLIMIT and GOGC in the environment are the webhook's too.
func BenchmarkWebhookMemory(b *testing.B) {
	c := contestant{name: "webhook", with: []string{sandbox.WithWebhook}}.up(b)
	c.Cluster.Config.WarningHandler = rest.NoWarnings{}
	c.WithWatch = c.Cluster.Watching(b)
	fill(b, c)
	// It reads all anew, as after a restart.
	c.RestartNow(b, theWebhook)
	testsandbox.Eventually(b, 2*time.Minute, "the last policy to be asked", func(ctx context.Context) error {
		pod := gpuPod(0).(*corev1.Pod)
		pod.Name = fmt.Sprintf("bad-%d", manyPolicies-1)
		if err := c.Create(ctx, pod, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "is no name") {
			return fmt.Errorf("it is not: %v", err)
		}
		return nil
	})
	report := func(when string) {
		resident, most := c.memory(b)
		b.ReportMetric(resident, when+"-MiB")
		b.ReportMetric(most, when+"-peak-MiB")
	}
	report("read")
	k, err := kubernetes.NewForConfig(c.Cluster.Config)
	if err != nil {
		b.Fatal(err)
	}
	for _, kind := range createdKinds {
		c.createAll(b, k, kind)
	}
	report("asked")
	b.ReportMetric(0, "ns/op")
}

// fill makes the cluster large.
func fill(b *testing.B, c *cluster) {
	b.Helper()
	many := func(n int, of func(i int) client.Object) {
		if err := inParallel(b.Context(), creators, n, func(ctx context.Context, i int) error { return create(ctx, c.WithWatch, of(i)) }); err != nil {
			b.Fatal(err)
		}
	}
	team := func(i int) string { return fmt.Sprintf("team-%d", i) }
	many(manyNamespaces, func(i int) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team(i), Labels: map[string]string{"team": team(i), "tier": "research"}}}
	})
	many(manyQueues, func(i int) client.Object { return kueueShape(1).clusterQueue(team(i), "all") })
	many(manyQueues, func(i int) client.Object {
		return &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: team(i), Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(team(i))}}
	})
	many(manyGPUNodes, func(i int) client.Object {
		return &musterv1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("gpu-node-%d", i)}}
	})
	many(manyPolicies, func(i int) client.Object {
		p := &musterv1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("policy-%d", i)}}
		p.Spec.Rego = fmt.Sprintf(policyOfMany, i, i)
		return p
	})
	if err := create(b.Context(), c.WithWatch, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: createsTeam}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: createsTeam, Name: "default"}}); err != nil {
		b.Fatal(err)
	}
}

// policyOfMany reads all that policies usually read.
const policyOfMany = `package policy_%d

violation contains {"msg": msg, "details": {"key": container.name}} if {
	some container in input.workload.containers
	container.image == "team/bad"
	msg := sprintf("%%s has an image that may not be used", [container.name])
}

violation contains {"msg": msg} if {
	input.workload.gpus > data.inventory.queues[input.workload.namespace][input.workload.queue].reach
	msg := sprintf("%%d GPUs are more than the queue reaches", [input.workload.gpus])
}

violation contains {"msg": msg} if {
	input.request.object.metadata.name == "bad-%d"
	msg := sprintf("%%s is no name", [input.request.object.metadata.name])
}
`

// memory is the webhook's resident memory, and the most that it was, in MiB.
func (c *cluster) memory(b *testing.B) (resident, most float64) {
	b.Helper()
	state, err := c.State()
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range state.Components {
		if p.Name != theWebhook || p.Exit != "" {
			continue
		}
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.PID))
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			var name string
			var kib float64
			if n, _ := fmt.Sscan(line, &name, &kib); n != 2 {
				continue
			}
			switch name {
			case "VmRSS:":
				resident = kib / 1024
			case "VmHWM:":
				most = kib / 1024
			}
		}
		return resident, most
	}
	b.Fatal("the webhook does not run")
	return 0, 0
}
