package holders

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// byUUID is an ID that has a UUID.
func byUUID(uuid string) ID { return ID{UUID: uuid, Minor: -1, GPUInstance: -1} }

func TestParseID(t *testing.T) {
	const uuid = "5c1c2b0e-3a0a-4d63-9a37-0b2a54bd1f0e"
	tests := map[string]struct {
		id      ID
		replica string
		wrong   bool
	}{
		"GPU-" + uuid:                 {id: byUUID("GPU-" + uuid)},
		"MIG-" + uuid:                 {id: byUUID("MIG-" + uuid)},
		"MIG-GPU-" + uuid + "/3/0":    {id: byUUID("MIG-GPU-" + uuid + "/3/0")},
		"GPU-" + uuid + "::0":         {id: byUUID("GPU-" + uuid), replica: "0"},
		"MIG-" + uuid + "::11":        {id: byUUID("MIG-" + uuid), replica: "11"},
		"nvidia0":                     {id: ID{Minor: 0, GPUInstance: -1}},
		"nvidia12/gi3":                {id: ID{Minor: 12, GPUInstance: 3}},
		"nvidia0/vgpu1":               {id: ID{Minor: 0, GPUInstance: -1}, replica: "1"},
		"nvidia0/gi3/vgpu0":           {id: ID{Minor: 0, GPUInstance: 3}, replica: "0"},
		"":                            {wrong: true},
		"GPU-":                        {wrong: true},
		"GPU-" + uuid + "::":          {wrong: true},
		"GPU-../../etc":               {wrong: true},
		"nvidia0/gi3/vgpu0/more":      {wrong: true},
		"nvidia99999":                 {wrong: true},
		"0":                           {wrong: true},
		strings.Repeat("GPU-", 1<<18): {wrong: true},
	}
	for text, test := range tests {
		id, replica, err := ParseID(text)
		if test.wrong {
			if err == nil {
				t.Errorf("%.40q is taken", text)
			} else if len(err.Error()) > 400 {
				t.Errorf("%.40q: the error has %d characters", text, len(err.Error()))
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if diff := cmp.Diff(test.id, id); diff != "" || replica != test.replica {
			t.Errorf("%q: replica %q, want %q; id (-want +got):\n%s", text, replica, test.replica, diff)
		}
	}
}
