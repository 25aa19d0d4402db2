package show

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// staleAfter is the age from which on what a node has said is not believed.
const staleAfter = 3 * time.Minute

// GPUOptions say which GPUs are shown.
type GPUOptions struct {
	Node, Queue string
	// Idle: those alone that a pod holds and does nothing with, stalled ones included.
	Idle bool
	// Summary: no GPUs, but sums by queue and namespace.
	Summary bool
	// Price of an hour of one GPU, 0 if it is not given; in whatever currency.
	Price float64
}

// GPU is one device, or one holder's share of it.
type GPU struct {
	Node    string `json:"node"`
	Minor   int32  `json:"minor"`
	UUID    string `json:"uuid"`
	Product string `json:"product,omitempty"`
	Profile string `json:"profile,omitempty"`
	// Healthy, or why it is not: Unhealthy has the reasons. Stale: the node's agent has
	// not been heard of for three minutes.
	Healthy   bool     `json:"healthy"`
	Unhealthy []string `json:"unhealthy,omitempty"`
	Stale     bool     `json:"stale,omitempty"`

	Namespace string              `json:"namespace,omitempty"`
	Pod       string              `json:"pod,omitempty"`
	Workload  string              `json:"workload,omitempty"`
	Queue     string              `json:"queue,omitempty"`
	Share     string              `json:"share,omitempty"`
	Verdict   v1alpha1.GPUVerdict `json:"verdict,omitempty"`
	Since     metav1.Time         `json:"since,omitzero"`
	// Reclaimable as far as the node knows.
	Reclaimable bool `json:"reclaimable,omitempty"`
}

// GPUSum is what one queue or namespace has. Parts of GPUs count as parts.
type GPUSum struct {
	// Queue is a ClusterQueue, "" for what is charged to none.
	Queue     string  `json:"queue"`
	Namespace string  `json:"namespace"`
	Allocated float64 `json:"allocated"`
	Active    float64 `json:"active"`
	Idle      float64 `json:"idle"`
	Stalled   float64 `json:"stalled"`
	Unknown   float64 `json:"unknown"`
	// IdleHours are the GPU-hours since those that are idle or stalled now became so,
	// Cost what they cost at the price that was given.
	IdleHours float64  `json:"idleHours"`
	Cost      *float64 `json:"cost,omitempty"`
}

// GPUReport is what GPUs are and who has them.
type GPUReport struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Free are healthy devices that nobody holds, of Devices in all.
	Devices   int `json:"devices"`
	Free      int `json:"free"`
	Unhealthy int `json:"unhealthy"`

	GPUs []GPU    `json:"gpus"`
	Sums []GPUSum `json:"sums"`
}

// ShowGPUs shows GPUs.
func (c *Cluster) ShowGPUs(ctx context.Context, o Output, q GPUOptions) error {
	r, err := c.GPUs(ctx, q)
	switch {
	case err != nil:
		return err
	case o.structured():
		return o.encode(r)
	case o.Format == "name":
		return o.names(namesOf(r.GPUs, func(g GPU) string { return g.UUID }))
	}
	if len(r.GPUs) == 0 {
		_, err := fmt.Fprintln(o.Out, "No GPUs to show.")
		return err
	}
	if !q.Summary {
		if err := o.table(gpuTable(r.GPUs, c.now())); err != nil {
			return err
		}
		if !o.NoHeaders {
			fmt.Fprintln(o.Out)
		}
	}
	if len(r.Sums) > 0 && (q.Summary || !o.NoHeaders) {
		if err := o.table(sumTable(r.Sums)); err != nil {
			return err
		}
	}
	if !o.NoHeaders && q.Node == "" && q.Queue == "" && !q.Idle {
		_, err = fmt.Fprintf(o.Out, "%d GPUs, %d free, %d unhealthy.\n", r.Devices, r.Free, r.Unhealthy)
	}
	return err
}

// GPUs reads what the GPU agents have written.
func (c *Cluster) GPUs(ctx context.Context, q GPUOptions) (*GPUReport, error) {
	r := &GPUReport{APIVersion: outputVersion, Kind: "GPUReport", GPUs: []GPU{}, Sums: []GPUSum{}}
	now := c.now()
	var nodes []string
	err := c.gpuNodes(ctx, func(n *v1alpha1.GPUNode) {
		nodes = append(nodes, n.Name)
		if q.Node == "" || n.Name == q.Node {
			r.add(n, q, now)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case len(nodes) == 0:
		return nil, fmt.Errorf("no GPUNodes: no GPU agent has written any")
	case q.Node != "" && !slices.Contains(nodes, q.Node):
		return nil, notFound("GPUNode", q.Node, nodes)
	}
	slices.SortStableFunc(r.GPUs, func(a, b GPU) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Minor, b.Minor)) })
	r.sum(now, q.Price)
	return r, nil
}

// add takes in the devices of a node.
func (r *GPUReport) add(n *v1alpha1.GPUNode, q GPUOptions, now time.Time) {
	stale := now.Sub(n.Status.LastHeartbeat.Time) > staleAfter
	cut := map[int32]bool{}
	for i := range n.Status.Devices {
		if d := &n.Status.Devices[i]; d.Profile != "" {
			cut[d.Minor] = true
		}
	}
	for i := range n.Status.Devices {
		d := &n.Status.Devices[i]
		if d.Profile == "" && cut[d.Minor] {
			// What is used of it are its MIG instances.
			continue
		}
		r.Devices++
		g := GPU{Node: n.Name, Minor: d.Minor, UUID: d.UUID, Product: d.Product, Profile: d.Profile, Healthy: len(d.Unhealthy) == 0, Unhealthy: d.Unhealthy, Stale: stale}
		if !g.Healthy {
			r.Unhealthy++
		}
		if len(d.Holders) == 0 {
			if g.Healthy && !stale {
				r.Free++
			}
			if q.Queue == "" && !q.Idle {
				r.GPUs = append(r.GPUs, g)
			}
		}
		for _, h := range d.Holders {
			of := g
			of.Namespace, of.Pod, of.Workload, of.Queue, of.Share = h.Namespace, h.Pod, h.Workload, h.Queue, h.Share
			of.Verdict, of.Since, of.Reclaimable = h.Verdict, h.Since, h.Reclaimable && !stale
			if stale {
				of.Verdict = v1alpha1.GPUUnknown
			}
			if (q.Queue == "" || h.Queue == q.Queue) && (!q.Idle || of.unused()) {
				r.GPUs = append(r.GPUs, of)
			}
		}
	}
}

// unused says that the holder does nothing with the device, as far as is known.
func (g *GPU) unused() bool { return g.Verdict == v1alpha1.GPUIdle || g.Verdict == v1alpha1.GPUStalled }

// part is how much of a device the holder has: all of it if it says nothing of that.
func (g *GPU) part() float64 {
	of, whole, _ := strings.Cut(g.Share, "/")
	n, err := strconv.ParseFloat(of, 64)
	m, err2 := strconv.ParseFloat(whole, 64)
	if err != nil || err2 != nil || m <= 0 {
		return 1
	}
	return n / m
}

func (r *GPUReport) sum(now time.Time, price float64) {
	sums := map[[2]string]*GPUSum{}
	for i := range r.GPUs {
		g := &r.GPUs[i]
		if g.Pod == "" {
			continue
		}
		key := [2]string{g.Queue, g.Namespace}
		s := sums[key]
		if s == nil {
			s = &GPUSum{Queue: g.Queue, Namespace: g.Namespace}
			sums[key] = s
		}
		s.add(g, now)
	}
	for _, s := range sums {
		if price > 0 {
			cost := s.IdleHours * price
			s.Cost = &cost
		}
		r.Sums = append(r.Sums, *s)
	}
	slices.SortFunc(r.Sums, func(a, b GPUSum) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Namespace, b.Namespace))
	})
}

func (s *GPUSum) add(g *GPU, now time.Time) {
	part := g.part()
	s.Allocated += part
	switch g.Verdict {
	case v1alpha1.GPUActive:
		s.Active += part
	case v1alpha1.GPUIdle:
		s.Idle += part
	case v1alpha1.GPUStalled:
		s.Stalled += part
	default:
		s.Unknown += part
	}
	if g.unused() && !g.Since.IsZero() {
		s.IdleHours += part * now.Sub(g.Since.Time).Hours()
	}
}

func gpuTable(gpus []GPU, now time.Time) *table {
	t := newTable("Node", "GPU", "UUID", "Product", "Health", "Holder", "Queue", "Verdict", "For", "|", "Profile", "Share", "Workload", "Reclaimable")
	for i := range gpus {
		g := &gpus[i]
		tone, health := plain, "Healthy"
		switch {
		case !g.Healthy:
			tone, health = bad, strings.Join(g.Unhealthy, ",")
		case g.Stale:
			tone, health = warning, "Unknown"
		}
		holder, verdict, age := none, "", ""
		if g.Pod != "" {
			holder, verdict = g.Namespace+"/"+g.Pod, string(g.Verdict)
			if !g.Since.IsZero() {
				age = since(g.Since.Time, now)
			}
			if g.unused() && tone == plain {
				tone = warning
			}
		}
		reclaimable := ""
		if g.Pod != "" {
			reclaimable = strconv.FormatBool(g.Reclaimable)
		}
		t.add(tone, g.Node, strconv.Itoa(int(g.Minor)), shortUUID(g.UUID), orNone(g.Product), health, holder, orNone(g.Queue), verdict, age, g.Profile, g.Share, g.Workload, reclaimable)
	}
	return t
}

// longUUID is from how many letters on a UUID is cut.
const longUUID = 20

// shortUUID is as much of a UUID as tells devices from each other: GPU-1a2b3c4d.
func shortUUID(uuid string) string {
	kind, rest, _ := strings.Cut(uuid, "-")
	first, _, found := strings.Cut(rest, "-")
	if len(uuid) < longUUID || !found {
		return uuid
	}
	return kind + "-" + first
}

func sumTable(sums []GPUSum) *table {
	columns := []string{"Queue", "Namespace", "Allocated", "Active", "Idle", "Stalled", "Unknown", "Idle-GPU-hours"}
	if len(sums) > 0 && sums[0].Cost != nil {
		columns = append(columns, "Idle-cost")
	}
	t := newTable(columns...)
	for _, s := range sums {
		tone := plain
		if s.Idle+s.Stalled > 0 {
			tone = warning
		}
		cells := []string{orNone(s.Queue), s.Namespace, count(s.Allocated), count(s.Active), count(s.Idle), count(s.Stalled), count(s.Unknown), fmt.Sprintf("%.1f", s.IdleHours)}
		if s.Cost != nil {
			cells = append(cells, fmt.Sprintf("%.2f", *s.Cost))
		}
		t.add(tone, cells...)
	}
	return t
}

// count writes a number of GPUs: "8", "0.25".
func count(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
