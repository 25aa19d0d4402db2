package scheduling

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestOfAKindThatIsNotServedThereIsNothingToRead(t *testing.T) {
	pods := corev1.SchemeGroupVersion.WithKind("Pod")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
	c := fake.NewClientBuilder().WithObjects(p).Build()
	k := newAPIKinds(&fakeDiscovery{kinds: map[string][]string{"v1": {"Pod"}}}, testclock.NewFakeClock(epoch0))
	r := presentReader{Reader: c, kinds: k, scheme: c.Scheme()}
	// read is whether the pod is found by its name, and how many are listed.
	type read struct {
		Found  bool
		Listed int
	}
	look := func() read {
		t.Helper()
		err := r.Get(t.Context(), client.ObjectKeyFromObject(p), &corev1.Pod{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		var list corev1.PodList
		if err := r.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		return read{err == nil, len(list.Items)}
	}
	if diff := cmp.Diff(read{true, 1}, look()); diff != "" {
		t.Errorf("of a kind of which nothing is known (-want +got):\n%s", diff)
	}
	k.lost(pods)
	if diff := cmp.Diff(read{}, look()); diff != "" {
		t.Errorf("of a kind that is gone (-want +got):\n%s", diff)
	}
	if _, err := k.serves(t.Context(), pods); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(read{true, 1}, look()); diff != "" {
		t.Errorf("of a kind that is there again (-want +got):\n%s", diff)
	}
}

// TestAReadFromTheCacheEnds: whoever reads would wait for a watch that never begins.
func TestAReadFromTheCacheEnds(t *testing.T) {
	for name, read := range map[string]func(context.Context, client.Reader) error{
		"of one object": func(ctx context.Context, r client.Reader) error {
			return r.Get(ctx, client.ObjectKey{Name: "p"}, &corev1.Pod{})
		},
		"of all": func(ctx context.Context, r client.Reader) error { return r.List(ctx, &corev1.PodList{}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				forEver := func(ctx context.Context) error {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(time.Hour):
						return errors.New("it took an hour")
					}
				}
				c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
					Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
						return forEver(ctx)
					},
					List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
						return forEver(ctx)
					},
				}).Build()
				r := presentReader{Reader: c, kinds: newAPIKinds(&fakeDiscovery{}, testclock.NewFakeClock(epoch0)), scheme: c.Scheme()}
				if err := read(t.Context(), r); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("it ends with %v, want its time to be over", err)
				}
			})
		})
	}
}
