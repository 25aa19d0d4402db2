package scheduling

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"

	"github.com/muster-gpu/muster/placement/inventory"
)

// doubtful are GPUs of nodes of which something cannot be believed, by node.
type doubtful map[string]string

func (d doubtful) Node(node *corev1.Node) (*inventory.Node, bool) {
	doubt, known := d[node.Name]
	return &inventory.Node{Doubt: doubt}, known
}

func TestNodesAreToldOnceWhatCannotBeTrueOfTheirGPUs(t *testing.T) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, name := range []string{"good", "bad", "unknown"} {
		if err := nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	clock, recorder := testclock.NewFakeClock(epoch0), record.NewFakeRecorder(10)
	r := &reporter{Jobs: &Jobs{clock: clock, recorder: recorder, nodes: corelisters.NewNodeLister(nodes), gpuNodes: newGPUNodes(clock)}}
	for _, step := range []struct {
		what  string
		after time.Duration
		gpus  doubtful
		// clock is how far that of an agent is ahead which writes just now.
		clock time.Duration
		want  []string
	}{
		{"the first look", 0, doubtful{"good": "", "bad": "odd"}, 0, []string{"Warning GPUsInDoubt odd; that does not count where pods are placed"}},
		{"the same", time.Minute, doubtful{"good": "", "bad": "odd"}, 0, nil},
		{"something else", time.Minute, doubtful{"bad": "worse"}, 0, []string{"Warning GPUsInDoubt worse; that does not count where pods are placed"}},
		{"too soon for another look", time.Second, doubtful{"bad": "odd"}, 0, nil},
		{"it is mended", time.Minute, doubtful{"bad": ""}, 0, nil},
		{"the clock of an agent is a minute behind", time.Minute, doubtful{}, -time.Minute, nil},
		{"it is an hour behind", time.Minute, doubtful{}, -time.Hour, []string{"Warning GPUsInDoubt the clock of its GPU agent is more than 3m0s behind the scheduler's; what it says of GPUs that idle does not count"}},
		{"it still is", time.Minute, doubtful{}, -time.Hour, nil},
		{"it is an hour ahead", time.Minute, doubtful{}, time.Hour, []string{"Warning GPUsInDoubt the clock of its GPU agent is more than 3m0s ahead of the scheduler's; what it says of GPUs that idle does not count"}},
		{"it is right", time.Minute, doubtful{}, 0, nil},
		{"something else comes again", time.Minute, doubtful{"bad": "worse"}, 0, []string{"Warning GPUsInDoubt worse; that does not count where pods are placed"}},
	} {
		clock.Step(step.after)
		r.gpus = step.gpus
		r.gpuNodes.set(gpuNodeOf("good", clock.Now().Add(step.clock)))
		if err := r.tellDoubts(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for len(recorder.Events) > 0 {
			got = append(got, <-recorder.Events)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: told (-want +got):\n%s", step.what, diff)
		}
	}
}
