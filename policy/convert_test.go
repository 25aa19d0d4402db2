package policy

import (
	"reflect"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// sample has a field of every kind that a description or an inventory has.
type sample struct {
	Text     string            `json:"text"`
	Number   int64             `json:"number"`
	Small    int32             `json:"small,omitempty"`
	Truth    bool              `json:"truth"`
	Part     float64           `json:"part"`
	Absent   *int64            `json:"absent"`
	Left     *sample           `json:"left,omitempty"`
	List     []string          `json:"list"`
	No       []string          `json:"no,omitempty"`
	None     []sample          `json:"none"`
	Labels   map[string]string `json:"labels"`
	Any      map[string]any    `json:"any,omitempty"`
	At       time.Time         `json:"at,omitzero"`
	Quantity resource.Quantity `json:"quantity"`
	Untagged string
	Hidden   string `json:"-"`
	private  string
	Specs    map[string]*corev1.PodSpec `json:"specs"`
}

func samples() []sample {
	n := int64(7)
	return []sample{
		{},
		{
			Text: "a", Number: -3, Small: 4, Truth: true, Part: 1.5, Absent: &n, Left: &sample{Text: "b"}, List: []string{}, No: []string{"x", ""},
			None: []sample{{Text: "c"}}, Labels: map[string]string{"k": "v", "w": ""}, Untagged: "u", Hidden: "h", private: "p",
			Any: map[string]any{"deep": []any{int64(1), "two", nil, map[string]any{"x": true, "y": 0.5}}, "nothing": nil},
			At:  time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Quantity: resource.MustParse("1500m"),
			Specs: map[string]*corev1.PodSpec{
				"main": {NodeName: "n", Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
				}}}},
				"empty": {},
			},
		},
	}
}

func TestPoliciesSeeTheJSONFormOfWhatIsKnown(t *testing.T) {
	for _, s := range samples() {
		want, err := ast.InterfaceToValue(s)
		if err != nil {
			t.Fatal(err)
		}
		for name, convert := range map[string]func() (ast.Value, error){
			"at once": func() (ast.Value, error) { return toValue(reflect.ValueOf(s)) },
			"lazily":  func() (ast.Value, error) { return lazily(&s) },
		} {
			got, err := convert()
			if err != nil {
				t.Fatal(err)
			}
			if got.Compare(want) != 0 {
				t.Errorf("%s:\n%v\nwant\n%v", name, got, want)
			}
		}
		// And by the way of one field, which is converted alone.
		lazy, err := lazily(&s)
		if err != nil {
			t.Fatal(err)
		}
		path := ast.MustParseRef("x.specs.main.containers[0].resources.limits")[1:]
		field, failed := lazy.Find(path)
		other, none := want.Find(path)
		if (failed == nil) != (none == nil) || (none == nil && field.Compare(other) != 0) {
			t.Errorf("one field: %v, %v; want %v, %v", field, failed, other, none)
		}
	}
}

func TestReadingAPartOfTheInventoryIsReadingThatPartOfItsJSONForm(t *testing.T) {
	inventory := map[string]any{"samples": samples(), "byName": map[string]sample{"a": samples()[1]}, "pointer": &samples()[1], "labels": map[string]string{"k": "v"}}
	s := newStore()
	if err := s.replace(inventory); err != nil {
		t.Fatal(err)
	}
	want, err := ast.InterfaceToValue(map[string]any{inventoryRoot: inventory})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"/", "/inventory", "/inventory/byName", "/inventory/byName/a/text", "/inventory/byName/b", "/inventory/byName/a/small", "/inventory/byName/a/Hidden",
		"/inventory/samples/1/none/0/text", "/inventory/samples/2", "/inventory/samples/-1", "/inventory/samples/x", "/inventory/samples/0/small",
		"/inventory/pointer/left/text", "/inventory/pointer/any/deep/3/y", "/inventory/pointer/any/nothing", "/inventory/pointer/any/nothing/more",
		"/inventory/pointer/text/more", "/inventory/pointer/at", "/inventory/labels/k", "/inventory/labels/l", "/other",
	} {
		path := storage.MustParsePath(text)
		ref := path.Ref(ast.DefaultRootDocument)[1:]
		for i := range ref {
			// In a list, a path's step is a number.
			if prefix, err := want.Find(ref[:i]); err == nil {
				if list, ok := prefix.(*ast.Array); ok {
					for at := range list.Len() {
						if ref[i].Equal(ast.StringTerm(string(rune('0' + at)))) {
							ref[i] = ast.InternedTerm(at)
						}
					}
				}
			}
		}
		expected, none := want.Find(ref)
		for range 2 {
			got, err := s.Read(t.Context(), s.current.Load(), path)
			if none != nil {
				if !storage.IsNotFound(err) {
					t.Errorf("%s: %v, %v; want nothing", text, got, err)
				}
				continue
			}
			if err != nil || got.(ast.Value).Compare(expected) != 0 {
				t.Errorf("%s: %v, %v; want %v", text, got, err, expected)
			}
		}
	}
}
