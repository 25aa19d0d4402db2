package islands

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestOfProduct(t *testing.T) {
	tests := []struct {
		product string
		want    Arrangement
	}{
		{"NVIDIA-H100-80GB-HBM3", Switch},
		{"NVIDIA H200", Switch},
		{"NVIDIA-B200", Switch},
		{"NVIDIA-A100-SXM4-80GB", Switch},
		{"NVIDIA-GB200", Switch},
		{"Tesla-V100-SXM2-32GB", CubeMesh},
		{"Tesla-V100-SXM3-32GB-H", Switch},
		{"NVIDIA-A100-80GB-PCIe", PCIePairs},
		{"NVIDIA-H100-PCIe", PCIePairs},
		{"NVIDIA-H100-NVL", Bridges},
		{"NVIDIA-L40S", PCIePairs},
		{"Tesla-T4", PCIePairs},
		{"NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", Alike},
		{"NVIDIA-L40S-SHARED", Alike},
	}
	for _, tt := range tests {
		if got, ok := OfProduct(tt.product); !ok || got != tt.want {
			t.Errorf("%s is %s, want %s (known: %v)", tt.product, got, tt.want, ok)
		}
	}
	if a, ok := OfProduct("Some-Accelerator"); ok {
		t.Errorf("an unknown product is %s", a)
	}
}

func TestArrangementsHaveTheirNumbersOfGPUs(t *testing.T) {
	for _, a := range Arrangements() {
		for n := range MaxDevices + 2 {
			s, err := a.Shape(n)
			if wrong := n > MaxDevices || (a == CubeMesh && n != 4 && n != 8); (err != nil) != wrong {
				t.Errorf("%d GPUs in %s: %v", n, a, err)
			}
			if uniform := n < 2 || a == Switch || a == Alike || (n == 2 && a != CubeMesh); err == nil && s.Uniform() != uniform {
				t.Errorf("%d GPUs in %s are joined alike: %v", n, a, s.Uniform())
			}
		}
	}
	if _, err := Arrangement("ring").Shape(4); err == nil {
		t.Error("an unknown arrangement has a shape")
	}
	if _, err := New(2, Join{NVLinks, SetOf(1, 2)}); err == nil {
		t.Error("a GPU is joined that is not there")
	}
	if got := slices.Collect(SetOf(1, 3).subsets(1)); !slices.Equal(got, []Set{SetOf(1), SetOf(3)}) {
		t.Errorf("each of two GPUs is one of %v", got)
	}
}

// TestReady: nobody waits for the tables of a Shape of many GPUs.
func TestReady(t *testing.T) {
	for _, gpus := range []int{2, 8, quick} {
		if s, err := PCIePairs.Shape(gpus); err != nil || !s.Ready() {
			t.Errorf("%d GPUs are not ready at once (%v)", gpus, err)
		}
	}
	if s, err := Switch.Shape(MaxDevices); err != nil || !s.Ready() {
		t.Errorf("GPUs that are all alike are not ready at once (%v)", err)
	}
	s, err := PCIePairs.Shape(MaxDevices)
	if err != nil || s.Ready() {
		t.Fatalf("all sets of %d GPUs are known at once (%v)", MaxDevices, err)
	}
	for deadline := time.Now().Add(time.Minute); !s.Ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not ready within a minute")
		}
	}
	if c, ok := s.Choose(First(MaxDevices), 2); !ok || c.Link != PCIe {
		t.Errorf("two of all GPUs are %v", c)
	}
}

// The first question about a Shape, and further ones.
func BenchmarkShape(b *testing.B) {
	for _, gpus := range []int{8, 16} {
		b.Run(fmt.Sprintf("first of %d GPUs", gpus), func(b *testing.B) {
			for b.Loop() {
				s, err := PCIePairs.Shape(gpus)
				if err != nil {
					b.Fatal(err)
				}
				s.Likely(gpus/2, 2, 1)
			}
		})
		b.Run(fmt.Sprintf("whether %d GPUs are ready", gpus), func(b *testing.B) {
			s, err := PCIePairs.Shape(gpus)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s.Ready()
			}
		})
	}
}
