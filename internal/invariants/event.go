package invariants

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Event is one change of one object: a Pod, Node, Workload, ClusterQueue, Cohort,
// JobSet, batch Job, or a TrainJob or training job as unstructured. Its resource version places it in the
// history; that of a deletion is the version of the deletion.
type Event struct {
	// Type is Added, Modified or Deleted.
	Type   watch.EventType
	Object client.Object
	// Seen is when the change was delivered. Bounds on time are counted with
	// it, because objects do not say when they were bound.
	Seen time.Time
}

// version is the resource version of the event.
func (e Event) version() string { return e.Object.GetResourceVersion() }

// checkVersion says why a resource version has no place in an order.
func checkVersion(version string) error {
	if _, err := resourceversion.CompareResourceVersion(version, version); err != nil {
		return fmt.Errorf("ordering by resource version: %w", err)
	}
	return nil
}

// later says that a is a later resource version than b. All resources that one
// etcd stores share one count of versions, so versions of different resources
// compare as well. The empty version is before all others.
func later(a, b string) bool {
	if a == "" || b == "" {
		return a != ""
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
