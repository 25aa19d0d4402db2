package testobject

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Change reads an object, of which name and namespace are given, and writes
// what change makes different. It is a patch: controllers write the same
// objects at any time, and an update would be refused after one of theirs.
func Change[T client.Object](t testing.TB, c client.Client, obj T, change func(T)) {
	t.Helper()
	before := read(t, c, obj)
	change(obj)
	// Clean-ups change objects too, when the context of the test has ended.
	if err := c.Patch(context.WithoutCancel(t.Context()), obj, client.MergeFrom(before)); err != nil {
		t.Fatalf("changing %T %s: %v", obj, obj.GetName(), err)
	}
}

// ChangeStatus is Change for what is in the status.
func ChangeStatus[T client.Object](t testing.TB, c client.Client, obj T, change func(T)) {
	t.Helper()
	before := read(t, c, obj)
	change(obj)
	if err := c.Status().Patch(context.WithoutCancel(t.Context()), obj, client.MergeFrom(before)); err != nil {
		t.Fatalf("changing the status of %T %s: %v", obj, obj.GetName(), err)
	}
}

// read brings an object up to date, and returns a copy of it.
func read[T client.Object](t testing.TB, c client.Client, obj T) client.Object {
	t.Helper()
	if err := c.Get(context.WithoutCancel(t.Context()), client.ObjectKeyFromObject(obj), obj); err != nil {
		t.Fatalf("reading %T %s: %v", obj, obj.GetName(), err)
	}
	return obj.DeepCopyObject().(client.Object)
}
