package fragmentation

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const gib = 1 << 30

// mixOf is a mix of requests, each with the weight of its GPUs.
func mixOf(requests ...Request) *Mix {
	var h Histogram
	for _, r := range requests {
		h.Observe(r, 1)
	}
	return h.Mix()
}

func pod(gpus int32, cpus, memory int64) Request {
	return Request{Devices: gpus, MilliCPU: 1000 * cpus, Memory: memory * gib}
}

func share(milli uint16, cpus, memory int64) Request {
	return Request{Share: milli, MilliCPU: 1000 * cpus, Memory: memory * gib}
}

func node(gpus int32, cpus, memory int64, parts ...uint16) Free {
	f := Free{Pools: 1, Devices: gpus, MilliCPU: 1000 * cpus, Memory: memory * gib}
	for _, part := range parts {
		f.put(part)
	}
	return f
}

func TestFragment(t *testing.T) {
	for _, c := range []struct {
		name string
		node Free
		mix  *Mix
		want float64
	}{
		{"nothing is a fragment where all pods fit", node(8, 96, 960), mixOf(pod(8, 96, 960), pod(1, 12, 120)), 0},
		{"a node without free GPUs has no fragment", node(0, 96, 960), mixOf(pod(1, 12, 120)), 0},
		{"GPUs that are too few are a fragment for whom they are too few", node(3, 96, 960), mixOf(pod(4, 8, 80), pod(1, 8, 80), pod(1, 9, 80), pod(2, 8, 80)), 1750},
		{"GPUs that are left over by whole pods are a fragment", node(7, 96, 960), mixOf(pod(4, 8, 80)), 3000},
		{"all are a fragment without enough CPU for one pod", node(3, 7, 960), mixOf(pod(1, 8, 80)), 3000},
		{"all are a fragment without enough memory for one pod", node(3, 96, 79), mixOf(pod(1, 8, 80)), 3000},
		{"GPUs for which CPU will not last count in part", node(4, 12, 960), mixOf(pod(1, 6, 80)), 2000 * lasting},
		{"GPUs for which memory will not last count in part", node(4, 96, 80), mixOf(pod(2, 6, 80)), 2000 * lasting},
		{"a share that is too small is a fragment", node(0, 96, 960, 500, 190), mixOf(share(200, 1, 1)), 190},
		{"a share that is just large enough is none", node(0, 96, 960, 200), mixOf(share(200, 1, 1)), 0},
		{"shares are no use to who wants whole devices", node(1, 96, 960, 500), mixOf(pod(1, 1, 1)), 500},
		{"all are a fragment for pods of other nodes", node(2, 96, 960), mixOf(Request{Devices: 1, Pool: 3}, pod(3, 1, 1)), 2000},
		{"without a mix nothing is a fragment", node(2, 96, 960), (&Histogram{}).Mix(), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.mix.Fragment(c.node); math.Abs(got-c.want) > 1 {
				t.Errorf("fragment %.3f, want %.3f", got, c.want)
			}
		})
	}
}

func TestPlace(t *testing.T) {
	mix := mixOf(pod(8, 96, 960), pod(4, 48, 480), pod(2, 24, 240), pod(1, 12, 120), share(400, 4, 40))
	for _, c := range []struct {
		name          string
		pod           Request
		better, worse Free
	}{
		{"a pod goes where it takes all that is free", pod(4, 48, 480), node(4, 48, 480), node(8, 96, 960)},
		{"a pod goes to GPUs for which there is little CPU, if it needs little", pod(1, 1, 1), node(3, 6, 480), node(3, 48, 480)},
		{"a pod that needs much CPU goes where there is more than the GPUs need", pod(1, 24, 120), node(4, 96, 480), node(4, 48, 480)},
		{"a pod without GPUs goes where CPU is left over", pod(0, 12, 1), node(2, 48, 480), node(2, 24, 480)},
		{"a pod goes to a node that is broken up already", pod(1, 12, 120), node(7, 84, 840), node(8, 96, 960)},
		{"a share goes to a device that is broken up already", share(400, 4, 40), node(1, 48, 480, 400), node(2, 48, 480)},
		{"a pod goes to nodes that few may use", pod(1, 12, 120), Free{Devices: 8, MilliCPU: 96000, Memory: 960 * gib}, node(8, 96, 960)},
	} {
		t.Run(c.name, func(t *testing.T) {
			better, _ := mix.Place(&c.better, &c.pod)
			worse, _ := mix.Place(&c.worse, &c.pod)
			if better.Compare(worse) >= 0 || worse.Compare(better) <= 0 {
				t.Errorf("%+v is not better than %+v", better, worse)
			}
		})
	}
}

func TestPlaceChoosesTheDevice(t *testing.T) {
	mix := mixOf(pod(1, 1, 1), share(300, 1, 1), share(600, 1, 1))
	for _, c := range []struct {
		name string
		node Free
		want int
	}{
		{"that it fills", node(1, 96, 960, 700, 300), 1},
		{"that is in use rather than a whole one", node(1, 96, 960, 600), 0},
		{"that is whole if no other has enough", node(1, 96, 960, 200), Unused},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := share(300, 1, 1)
			if _, got := mix.Place(&c.node, &r); got != c.want {
				t.Errorf("device %d, want %d", got, c.want)
			}
		})
	}
}

func TestMemoForgetsAnotherMix(t *testing.T) {
	var memo Memo
	f, r := node(8, 96, 960), pod(1, 1, 1)
	for _, mix := range []*Mix{mixOf(pod(8, 1, 1)), mixOf(pod(1, 1, 1))} {
		want, _ := mix.Place(&f, &r)
		if got, _ := memo.Place(mix, &f, &r); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func drawRequest(t *rapid.T, label string) Request {
	r := Request{
		MilliCPU: rapid.Int64Range(0, 40).Draw(t, label+" CPU") * 500,
		Memory:   rapid.Int64Range(0, 40).Draw(t, label+" memory") * gib,
		Pool:     uint8(rapid.IntRange(0, 2).Draw(t, label+" pool")),
	}
	if rapid.Bool().Draw(t, label+" shares") {
		r.Share = uint16(100 * rapid.IntRange(1, 9).Draw(t, label+" share"))
	} else {
		r.Devices = rapid.Int32Range(0, 8).Draw(t, label+" GPUs")
	}
	return r
}

func drawFree(t *rapid.T) Free {
	f := Free{
		MilliCPU: rapid.Int64Range(0, 200).Draw(t, "free CPU") * 500,
		Memory:   rapid.Int64Range(0, 200).Draw(t, "free memory") * gib,
		Devices:  rapid.Int32Range(0, 8).Draw(t, "free GPUs"),
		Pools:    rapid.Uint64Range(0, 7).Draw(t, "pools"),
	}
	for range rapid.IntRange(0, 8).Draw(t, "devices in use") {
		f.put(uint16(100 * rapid.IntRange(0, 9).Draw(t, "left")))
	}
	return f
}

// devices are the free shares of all GPUs of a node, device by device.
func devices(f *Free) (out []float64) {
	for range f.Devices {
		out = append(out, 1000)
	}
	for _, part := range f.Parts {
		out = append(out, float64(part))
	}
	return out
}

// naiveFragment is Mix.Fragment device by device, of requests with the number of
// pods of each.
func naiveFragment(f *Free, pods map[Request]int) (fragment float64) {
	demand := 0.0
	for r, n := range pods {
		demand += float64(n) * (float64(r.Devices)*1000 + float64(r.Share))
	}
	for r, n := range pods {
		asked := float64(r.Devices)*1000 + float64(r.Share)
		each := float64(r.Share)
		if r.Devices > 0 {
			each = 1000
		}
		total, usable, count := 0.0, 0.0, int32(0)
		for _, left := range devices(f) {
			total += left
			if left >= each {
				usable += left
				count++
			}
		}
		if r.Devices > 0 {
			// Those left over by whole pods are no use.
			usable -= 1000 * float64(count%r.Devices)
		}
		pools := []bool{f.Pools%2 == 1, f.Pools/2%2 == 1, f.Pools/4%2 == 1}
		if !pools[r.Pool] || count < max(1, r.Devices) || f.MilliCPU < r.MilliCPU || f.Memory < r.Memory {
			usable = 0
		}
		// What each resource is enough for, in pods.
		lasts := usable / asked
		if r.MilliCPU > 0 {
			lasts = math.Min(lasts, float64(f.MilliCPU)/float64(r.MilliCPU))
		}
		if r.Memory > 0 {
			lasts = math.Min(lasts, float64(f.Memory)/float64(r.Memory))
		}
		fragment += float64(n) * asked / demand * (total - usable + lasting*(usable-lasts*asked))
	}
	return fragment
}

func TestFragmentIsThatOfTheFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := map[Request]int{}
		var h Histogram
		for range rapid.IntRange(1, 6).Draw(t, "kinds") {
			r := drawRequest(t, "request")
			if r.GPUs() > 0 {
				pods[r]++
				h.Observe(r, 1)
			}
		}
		f := drawFree(t)
		// Those observed later weigh a little more.
		got, want := h.Mix().Fragment(f), naiveFragment(&f, pods)
		if len(pods) == 0 {
			want = 0
		}
		if math.Abs(got-want) > 0.01*float64(f.GPUs()) {
			t.Fatalf("fragment %.3f, want %.3f", got, want)
		}
		if got < 0 || got > float64(f.GPUs())+1e-6 {
			t.Fatalf("fragment %.3f of %d", got, f.GPUs())
		}
	})
}

func TestPlaceIsTheLeastGrowth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mix := mixOf(drawRequest(t, "one"), drawRequest(t, "another"), pod(1, 4, 4))
		f, r := drawFree(t), drawRequest(t, "pod")
		if !f.Holds(&r) {
			return
		}
		score, device := mix.Place(&f, &r)
		var memo Memo
		for range 2 {
			if again, at := memo.Place(mix, &f, &r); again != score || at != device {
				t.Fatalf("remembered: %+v on device %d, want %+v on device %d", again, at, score, device)
			}
		}
		growth := func(device int) int64 {
			after := f.Less(&r, device)
			if got, want := after.GPUs(), f.GPUs()-r.GPUs(); got != want {
				t.Fatalf("%d of the GPUs are left, want %d", got, want)
			}
			for i := range MaxParts - 1 {
				if after.Parts[i] < after.Parts[i+1] {
					t.Fatalf("the shares are not in order: %v", after.Parts)
				}
			}
			return int64(math.Round((mix.Fragment(after) - mix.Fragment(f)) * 1000))
		}
		if want := growth(device); score.Growth != want {
			t.Fatalf("growth %d, want %d", score.Growth, want)
		}
		for at, part := range f.Parts {
			if r.Share > 0 && part >= r.Share && growth(at) < score.Growth {
				t.Fatalf("device %d is better than %d", at, device)
			}
		}
		if (r.Share == 0 || f.Devices > 0) && growth(Unused) < score.Growth {
			t.Fatalf("an unused device is better than %d", device)
		}
	})
}

// Single pods of 1, 2 and 4 GPUs must leave nodes of 8 whole, whether pods of 8
// are asked for or not.
func TestSmallPodsLeaveWholeNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := make([]Free, 8)
		for i := range nodes {
			nodes[i] = node(8, 96, 960)
		}
		r := newReplay(nodes)
		if rapid.Bool().Draw(t, "large ones are asked for") {
			r.observed.Observe(pod(8, 96, 960), 1)
		}
		for range rapid.IntRange(1, 16).Draw(t, "pods") {
			gpus := rapid.SampledFrom([]int32{1, 2, 4}).Draw(t, "GPUs")
			if r.used+int64(gpus)*Whole > 48*Whole {
				break
			}
			small := pod(gpus, 12*int64(gpus), 120*int64(gpus))
			if !r.place(&small) {
				t.Fatal("a pod has no node")
			}
		}
		whole := 0
		for i := range r.nodes {
			if r.nodes[i].Devices == 8 {
				whole++
			}
		}
		// Whatever the order, holes are in one node more than is needed.
		needed := int(r.used+8*Whole-1) / (8 * Whole)
		if whole < len(nodes)-needed-1 {
			t.Fatalf("%d GPUs are on %d nodes", r.used/Whole, len(nodes)-whole)
		}
	})
}

func TestHistogram(t *testing.T) {
	weights := func(h *Histogram) map[Request]float64 {
		out := map[Request]float64{}
		for _, k := range h.Mix().kinds {
			out[k.Request] = math.Round(k.weight*100) / 100
		}
		return out
	}
	t.Run("pods count by their GPUs", func(t *testing.T) {
		var h Histogram
		h.Observe(pod(8, 1, 1), 1)
		h.Observe(pod(1, 1, 1), 7)
		h.Observe(share(500, 1, 1), 2)
		h.Observe(pod(0, 1, 1), 100)
		want := map[Request]float64{pod(8, 1, 1): 0.5, pod(1, 1, 1): 0.44, share(500, 1, 1): 0.06}
		if diff := cmp.Diff(want, weights(&h)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("what was observed long ago counts less", func(t *testing.T) {
		var h Histogram
		h.Observe(pod(1, 1, 1), halfLife)
		for range halfLife {
			h.Observe(pod(0, 1, 1), 1)
			h.Observe(pod(2, 1, 1), 1)
		}
		// The sum of the later ones is that of a series that halves over its length.
		late := 2 * halfLife * 0.5 / math.Ln2
		want := math.Round(100*late/(late+halfLife*0.5)) / 100
		if got := weights(&h)[pod(2, 1, 1)]; got != want {
			t.Errorf("weight %.2f, want %.2f", got, want)
		}
	})
	t.Run("only the heaviest kinds are remembered", func(t *testing.T) {
		var h Histogram
		for i := range int64(3 * maxKinds) {
			h.Observe(pod(8, i, 1), 1)
			h.Observe(pod(1, i, 2), 1)
		}
		got := h.Mix().kinds
		if len(got) != maxKinds {
			t.Fatalf("%d kinds, want %d", len(got), maxKinds)
		}
		sum := 0.0
		for _, k := range got {
			sum += k.weight
			if k.Devices != 8 {
				t.Errorf("%+v is remembered", k)
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("the weights sum to %f", sum)
		}
	})
	t.Run("the mix stays the same until it differs", func(t *testing.T) {
		var h Histogram
		h.Observe(pod(1, 1, 1), 1000)
		before := h.Mix()
		h.Observe(pod(1, 1, 1), 1)
		if h.Mix() != before {
			t.Error("another mix after one more of a thousand")
		}
		h.Observe(pod(2, 1, 1), 500)
		if h.Mix() == before {
			t.Error("the same mix after half as many GPUs again")
		}
	})
	t.Run("weights stay numbers", func(t *testing.T) {
		var h Histogram
		for range 100 * halfLife {
			h.Observe(pod(1, 1, 1), 1)
		}
		h.Observe(pod(2, 1, 1), 1<<20)
		if got := weights(&h)[pod(2, 1, 1)]; got < 0.99 || got > 1 {
			t.Errorf("weight %f", got)
		}
	})
}

func TestMixAllocatesNothing(t *testing.T) {
	mix, f, r := mixOf(pod(8, 96, 960), pod(1, 12, 120), share(400, 4, 4)), node(3, 40, 400, 700, 500), share(300, 4, 4)
	var memo Memo
	if n := testing.AllocsPerRun(100, func() { mix.Place(&f, &r); memo.Place(mix, &f, &r) }); n > 0 {
		t.Errorf("%f allocations", n)
	}
}

// BenchmarkPlace scores one pod on a node of a cluster with a full mix.
func BenchmarkPlace(b *testing.B) {
	var h Histogram
	for i := range int64(maxKinds) {
		h.Observe(pod(int32(1+i%8), i, i), 1)
	}
	mix := h.Mix()
	nodes := make([]Free, 64)
	for i := range nodes {
		nodes[i] = node(int32(1+i%8), int64(12+i), int64(100+i))
	}
	r := pod(1, 12, 12)
	b.Run("anew", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			mix.Place(&nodes[i%len(nodes)], &r)
		}
	})
	b.Run("remembered", func(b *testing.B) {
		var memo Memo
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			memo.Place(mix, &nodes[i%len(nodes)], &r)
		}
	})
}
