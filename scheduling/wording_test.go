package scheduling

import "testing"

func TestNodeRange(t *testing.T) {
	tests := map[string]struct {
		nodes []string
		want  string
	}{
		"no node":                                  {nil, ""},
		"one node":                                 {[]string{"node-7"}, "node-7"},
		"a run is its ends":                        {[]string{"node-0", "node-1", "node-2"}, "node-0..node-2"},
		"a run counts over a digit more":           {[]string{"node-9", "node-10"}, "node-9..node-10"},
		"a gap begins another run":                 {[]string{"a1", "a2", "a4"}, "a1..a2, a4"},
		"another name is another run":              {[]string{"a1", "b2"}, "a1, b2"},
		"any order is written in order":            {[]string{"node-18", "left", "node-17", "node-2"}, "left, node-2, node-17..node-18"},
		"names without numbers stand alone":        {[]string{"left", "right"}, "left, right"},
		"numbers too long to count stand alone":    {[]string{"n99999999999999999998", "n99999999999999999999"}, "n99999999999999999998, n99999999999999999999"},
		"five items are all written":               {[]string{"a1", "a3", "a5", "a7", "a9"}, "a1, a3, a5, a7, a9"},
		"the sixth and further items are a number": {[]string{"a1", "a3", "a5", "a7", "a9", "a11", "a13"}, "a1, a3, a5, a7, a9, and 2 more"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := nodeRange(tc.nodes); got != tc.want {
				t.Errorf("nodeRange(%q) = %q, want %q", tc.nodes, got, tc.want)
			}
		})
	}
}

func TestAmount(t *testing.T) {
	tests := map[string]struct {
		gpus, pods int64
		want       string
	}{
		"one GPU":                   {1, 4, "1 GPU"},
		"more GPUs":                 {16, 4, "16 GPUs"},
		"a job without GPUs, alone": {0, 1, "1 pod"},
		"a job without GPUs":        {0, 4, "4 pods"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := amount(tc.gpus, tc.pods); got != tc.want {
				t.Errorf("amount(%d, %d) = %q, want %q", tc.gpus, tc.pods, got, tc.want)
			}
		})
	}
}
