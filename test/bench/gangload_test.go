package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// gangLoad is a load of equal gangs: PodGroups of scheduler-plugins, each with its
// pods, all in one namespace. Every pod asks for one GPU.
type gangLoad struct{ gangs, size int }

// gangNodes are the nodes for every load, of 8 GPUs each, so that a place is never
// what is missing.
const gangNodes = 500

// gangTeam names the namespace of all gangs, their LocalQueue and its ClusterQueue.
const gangTeam = "team"

func (l gangLoad) String() string { return fmt.Sprintf("%dx%d", l.gangs, l.size) }

func (l gangLoad) pods() int { return l.gangs * l.size }

// parseGangLoads reads loads as "100x20,4x500".
func parseGangLoads(s string) ([]gangLoad, error) {
	var out []gangLoad
	for one := range strings.SplitSeq(s, ",") {
		var l gangLoad
		if n, err := fmt.Sscanf(one, "%dx%d", &l.gangs, &l.size); n != 2 || err != nil || l.String() != one || l.gangs < 1 || l.size < 1 {
			return nil, fmt.Errorf("%q is no load of gangs, such as 100x20", one)
		}
		if l.pods() > 8*gangNodes {
			return nil, fmt.Errorf("%s are more pods than there are GPUs: %d", l, 8*gangNodes)
		}
		out = append(out, l)
	}
	return out, nil
}

// setUp creates the namespace, and the queue if somebody heeds it. Every GPU is in
// its quota.
func (l gangLoad) setUp(ctx context.Context, c client.Client, queued bool) error {
	err := create(ctx, c,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: gangTeam}},
		// Its controller does not run, and no pod is made without.
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: gangTeam, Name: "default"}},
	)
	if err != nil || !queued {
		return err
	}
	return create(ctx, c,
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavor}},
		&kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: gangTeam},
			Spec: kueue.ClusterQueueSpec{
				NamespaceSelector: &metav1.LabelSelector{},
				ResourceGroups: []kueue.ResourceGroup{{
					CoveredResources: []corev1.ResourceName{gpu},
					Flavors: []kueue.FlavorQuotas{{Name: flavor, Resources: []kueue.ResourceQuota{{
						Name: gpu, NominalQuota: *resource.NewQuantity(8*gangNodes, resource.DecimalSI),
					}}}},
				}},
			},
		},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: gangTeam, Name: gangTeam}, Spec: kueue.LocalQueueSpec{ClusterQueue: gangTeam}},
	)
}

const gpu corev1.ResourceName = "nvidia.com/gpu"

// submit creates the gangs, named after prefix, for a scheduler: first the
// PodGroups, then the pods, gang after gang.
func (l gangLoad) submit(ctx context.Context, c client.Client, prefix, scheduler string) error {
	if err := inParallel(ctx, submitters, l.gangs, func(ctx context.Context, i int) error {
		return create(ctx, c, l.podGroup(prefix, i))
	}); err != nil {
		return err
	}
	return inParallel(ctx, submitters, l.pods(), func(ctx context.Context, i int) error {
		return create(ctx, c, l.pod(prefix, i/l.size, i%l.size, scheduler))
	})
}

// submitters is how many objects are created at a time.
const submitters = 16

// inParallel does n things, workers at a time, and begins them in their order.
func inParallel(ctx context.Context, workers, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

func gangName(prefix string, gang int) string { return fmt.Sprintf("%s-%04d", prefix, gang) }

var gangQueue = map[string]string{"kueue.x-k8s.io/queue-name": gangTeam}

func (l gangLoad) podGroup(prefix string, gang int) client.Object {
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(l.size)}}}
	group.SetGroupVersionKind(workload.PodGroupGVK)
	group.SetNamespace(gangTeam)
	group.SetName(gangName(prefix, gang))
	group.SetLabels(gangQueue)
	return group
}

func (l gangLoad) pod(prefix string, gang, i int, scheduler string) *corev1.Pod {
	labels := map[string]string{workload.PodGroupLabel: gangName(prefix, gang)}
	for k, v := range gangQueue {
		labels[k] = v
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: gangTeam, Name: fmt.Sprintf("%s-%04d", gangName(prefix, gang), i), Labels: labels},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler, RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "train", Image: "example.com/train", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{gpu: *resource.NewQuantity(1, resource.DecimalSI)},
			}}},
		},
	}
}

func TestGangLoadsAreRead(t *testing.T) {
	for _, test := range []struct {
		text    string
		want    string
		refused bool
	}{
		{text: "100x20", want: "[100x20]"},
		{text: "667x3,1x2000", want: "[667x3 1x2000]"},
		{text: "100", refused: true},
		{text: "0x20", refused: true},
		{text: "100x20x3", refused: true},
		{text: "1000x20", refused: true},
	} {
		loads, err := parseGangLoads(test.text)
		if (err != nil) != test.refused {
			t.Errorf("%q: error %v, want one: %t", test.text, err, test.refused)
		}
		if err == nil && fmt.Sprint(loads) != test.want {
			t.Errorf("%q is read as %v, want %s", test.text, loads, test.want)
		}
	}
}
