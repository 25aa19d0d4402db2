package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/agent/holders"
	"github.com/muster-gpu/muster/agent/publish"
	"github.com/muster-gpu/muster/agent/reader"
	"github.com/muster-gpu/muster/agent/verdict"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

// Kubelet says which devices the pods of the node hold; see holders.Client.
type Kubelet interface {
	List(ctx context.Context) (allocations []holders.Allocation, answered bool, err error)
}

// Owner is what is known of a pod from the API server.
type Owner struct {
	UID string
	// Started is when its containers started.
	Started time.Time
	// Running: it has started and has not ended.
	Running bool
	// Kind and Name of the workload that it is of, and its UID.
	Kind, Name, WorkloadUID string
	// Queue is the ClusterQueue that it is charged to, "" if none.
	Queue string
	// Annotations of the workload.
	Annotations map[string]string
}

// Agent knows the GPUs of one node. It is not safe for concurrent use.
type Agent struct {
	poller    *reader.Poller
	kubelet   Kubelet
	owner     func(holders.Pod) (Owner, bool)
	uuids     func() map[holders.ID]string
	settings  verdict.Settings
	publisher *publish.Publisher

	book    *holders.Book
	tracker *verdict.Tracker
	// readings are those of the last tick.
	readings []reader.Reading
	// devices is what was told of them then.
	devices    []publish.Device
	conditions conditions
}

// Sources are what an Agent asks.
type Sources struct {
	Driver  reader.Driver
	Kubelet Kubelet
	// Owner is false for a pod that the API server has not told of.
	Owner func(holders.Pod) (Owner, bool)
	// UUIDs of devices of resource claims, as ResourceSlices say.
	UUIDs func() map[holders.ID]string
}

// New makes the Agent of that node.
func New(node string, from Sources, settings verdict.Settings, to publish.Writer) *Agent {
	return &Agent{
		poller:    reader.NewPoller(from.Driver, reader.DefaultPeriods()),
		kubelet:   from.Kubelet,
		owner:     from.Owner,
		uuids:     from.UUIDs,
		settings:  settings,
		publisher: publish.New(node, to),
		book:      holders.NewBook(),
		tracker:   verdict.NewTracker(),
	}
}

// Tick looks once at everything. The time since the tick before is counted, and the
// GPUNode is written if it is time. It returns after the kubelet's and the driver's
// deadlines at the latest. The error has all that is wrong; the Agent goes on, but for
// reader.ErrRestart, after which the program must end.
func (a *Agent) Tick(ctx context.Context, now verdict.Instant) error {
	list, answered, kubeletErr := a.kubelet.List(ctx)
	if answered {
		a.book.Take(list, func(p holders.Pod) bool {
			owner, known := a.owner(p)
			return known && owner.Running
		})
	}
	held := map[string]bool{}
	before, _ := a.holdings()
	for _, h := range before {
		held[h.device.UUID] = true
	}
	readings, driverErr := a.poller.Poll(ctx, held)
	a.readings = readings
	holdings, strays := a.holdings()
	standings := a.tracker.Observe(now, a.units(holdings))
	a.conditions.set(v1alpha1.GPUNodeDriverReady, driverErr, now.Wall)
	a.conditions.set(v1alpha1.GPUNodeHoldersKnown, errors.Join(kubeletErr, strays), now.Wall)
	a.devices = told(readings, holdings, standings)
	status := publish.Status(a.devices, a.conditions.all...)
	return errors.Join(kubeletErr, driverErr, strays, a.publisher.Publish(ctx, now, status))
}

// Devices is what the last tick has found of each device. It is not changed later.
func (a *Agent) Devices() []publish.Device { return a.devices }

// Conditions are those of the GPUNode after the last tick, also where it could not be
// written. They are not changed later.
func (a *Agent) Conditions() []metav1.Condition { return slices.Clone(a.conditions.all) }

// Spent is the time that was counted for each account.
func (a *Agent) Spent() map[verdict.Account]verdict.Spent { return a.tracker.Spent() }
