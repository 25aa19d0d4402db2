package agent

import (
	"fmt"
	"strings"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/agent/holders"
	"github.com/muster-gpu/muster/agent/publish"
	"github.com/muster-gpu/muster/agent/reader"
	"github.com/muster-gpu/muster/agent/verdict"
)

// holding is one device that the driver knows in the hands of one pod.
type holding struct {
	holders.Allocation
	device device.Device
	owner  Owner
	// known: the API server has told of the pod.
	known bool
}

// holdings are the allocations of devices that were there when they were read last.
// The error counts those of which the driver knows no device.
func (a *Agent) holdings() ([]holding, error) {
	devices := make([]device.Device, len(a.readings))
	for i, r := range a.readings {
		devices[i] = r.Device
	}
	uuids := a.uuids()
	var all []holding
	var strays []string
	for _, allocation := range a.book.Allocations() {
		d, found := holders.Resolve(allocation.ID, devices, uuids)
		if !found {
			strays = append(strays, allocation.ID.String())
			continue
		}
		h := holding{Allocation: allocation, device: d}
		h.owner, h.known = a.owner(allocation.Pod)
		all = append(all, h)
	}
	if len(strays) > 0 {
		return all, fmt.Errorf("%d devices that pods hold are not among the driver's, as %.64s", len(strays), strays[0])
	}
	return all, nil
}

// key names the unit of a holding. It is the same whether or not the API server has told
// of the pod.
func (h holding) key() verdict.UnitKey {
	return verdict.UnitKey{Device: h.device.UUID, Pod: h.Pod.Namespace + "/" + h.Pod.Name, Container: strings.Join(h.Containers, ",")}
}

// units are what the verdicts are about. A pod of which the API server has not told has
// no age and no workload, so what it does is unknown; its time counts for its namespace.
func (a *Agent) units(holdings []holding) []verdict.Held {
	samples := map[string]device.Sample{}
	for _, r := range a.readings {
		samples[r.Device.UUID] = r.Sample
	}
	units := make([]verdict.Held, 0, len(holdings))
	for _, h := range holdings {
		sample := samples[h.device.UUID]
		if !h.known {
			sample = device.Sample{Failure: "the API server has not told of the pod"}
		}
		// An annotation that cannot be read asks for nothing.
		own, exemptUntil, _ := verdict.Asked(h.owner.Annotations)
		units = append(units, verdict.Held{
			Key:         h.key(),
			Share:       h.device.Share.Times(h.Share),
			Account:     verdict.Account{Namespace: h.Pod.Namespace, Queue: h.owner.Queue, Kind: h.owner.Kind},
			Job:         h.owner.WorkloadUID,
			Started:     h.owner.Started,
			ExemptUntil: exemptUntil,
			Rules:       a.settings.For(h.owner.Kind, h.owner.Queue, own),
			Sample:      sample,
		})
	}
	return units
}

// told is what is published of each device.
func told(readings []reader.Reading, holdings []holding, standings map[verdict.UnitKey]verdict.Standing) []publish.Device {
	devices := make([]publish.Device, len(readings))
	at := map[string]int{}
	for i, r := range readings {
		devices[i].Reading = r
		at[r.Device.UUID] = i
	}
	for _, h := range holdings {
		d := &devices[at[h.device.UUID]]
		holder := publish.Holder{
			Namespace:  h.Pod.Namespace,
			Pod:        h.Pod.Name,
			UID:        h.owner.UID,
			Containers: h.Containers,
			Share:      h.Share,
			Queue:      h.owner.Queue,
			Standing:   standings[h.key()],
		}
		if h.owner.Kind != "" {
			holder.Workload = h.owner.Kind + "/" + h.owner.Name
		}
		d.Holders = append(d.Holders, holder)
	}
	return devices
}
