package invariants

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestTheHistoryIsBoundedAndShowsTheNewest(t *testing.T) {
	for _, before := range []int{1, 50} {
		s := newStory(Options{History: 4})
		s.node("a", 8)
		for range before {
			s.add(plain("p", 1))
			remove[*corev1.Pod](s, "p")
		}
		s.add(plain("fat", 9))
		s.bind("fat", "a")
		v := s.checker.Violations()
		if len(v) != 1 || len(v[0].History) != 2 || !strings.Contains(v[0].History[1], "fat is bound to a") {
			t.Errorf("after %d pods the violations are %v", before, v)
		}
		if n := len(s.checker.history.lines); n > 8 {
			t.Errorf("%d lines are kept", n)
		}
	}
}

func TestEventsAreMergedInTheOrderOfTheirVersions(t *testing.T) {
	at := func(version string) Event {
		return Event{Type: watch.Added, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: version, ResourceVersion: version}}}
	}
	o := newOrder("pods", "nodes")
	push := func(stream string, versions ...string) {
		t.Helper()
		for _, v := range versions {
			if err := o.push(stream, at(v)); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := func(versions ...string) {
		t.Helper()
		var got []string
		for _, e := range o.ready() {
			got = append(got, e.version())
		}
		if strings.Join(got, " ") != strings.Join(versions, " ") {
			t.Errorf("ready are %q, want %q", got, versions)
		}
	}
	push("pods", "9", "11")
	// The nodes may still have something before.
	want()
	push("nodes", "8", "10")
	want("8", "9", "10")
	want()
	o.advance("nodes", "100")
	want("11")
	o.advance("nodes", "99")
	push("pods", "101")
	want()
	if err := o.push("pods", at("")); err == nil {
		t.Error("an event without a version is taken")
	}
}
