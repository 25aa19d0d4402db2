package invariants

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestWhatHappenedWhileAWatchWasLostIsNotJudged has a node grow while its watch
// is lost: the list that follows says that it has grown, and not when.
func TestWhatHappenedWhileAWatchWasLostIsNotJudged(t *testing.T) {
	w := &Watcher{order: newOrder("Node", "Pod"), checker: NewChecker(Options{})}
	stream := func(name string) *stream {
		s := newStream(nil, corev1.SchemeGroupVersion.WithKind(name), nil)
		s.push = func(e Event) { w.push(name, e) }
		s.advance = func(version string) { w.advance(name, version) }
		s.missed = w.miss
		return s
	}
	nodes, pods := stream("Node"), stream("Pod")
	at := func(version string, o client.Object) client.Object {
		o.SetUID(types.UID(o.GetName()))
		o.SetResourceVersion(version)
		return o
	}
	node := func(gpus int64) client.Object {
		s := newStory(Options{})
		s.node("node", gpus)
		return s.objects["*v1.Node node"]
	}
	bound := func(name string, gpus int64) client.Object {
		p := plain(name, gpus)
		p.Spec.NodeName = "node"
		return p
	}
	deliver := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	judged := func(want string) {
		t.Helper()
		switch err := w.judge(); {
		case want == "" && err != nil:
			t.Errorf("found %v, want nothing", err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("found %v, want what is wrong with %s", err, want)
		}
	}

	deliver(nodes.Replace([]any{at("1", node(4))}, "1"), pods.Replace(nil, "1"))
	// A list that says nothing new leaves nothing out.
	deliver(nodes.Replace([]any{at("1", node(4))}, "3"), pods.Add(at("2", plain("early", 8))), pods.Update(at("3", bound("early", 8))))
	judged("team/early")
	deliver(pods.Delete(at("4", bound("early", 8))))

	deliver(pods.Add(at("5", plain("meanwhile", 8))), pods.Update(at("6", bound("meanwhile", 8))))
	deliver(nodes.Replace([]any{at("7", node(8))}, "8"), pods.Bookmark("8"))
	judged("")

	deliver(pods.Add(at("9", plain("late", 1))), pods.Update(at("10", bound("late", 1))), nodes.Bookmark("10"))
	judged("team/late")
}
