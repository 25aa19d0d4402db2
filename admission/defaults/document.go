package defaults

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Document is an object as the API server has sent it, and the JSON patch of the
// changes that were made to it. Changes are made by path, so that fields of which
// this program does not know stay as they are.
type Document struct {
	root  map[string]any
	patch []jsonpatch.Operation
}

// Read reads an object's JSON. Names of fields are case-sensitive, as they are for
// the API server.
func Read(raw []byte) (*Document, error) {
	d := &Document{}
	if err := utiljson.Unmarshal(raw, &d.root); err != nil {
		return nil, fmt.Errorf("reading an object: %w", err)
	}
	return d, nil
}

// Patch is what was changed so far, in order.
func (d *Document) Patch() []jsonpatch.Operation { return d.patch }

// path is a way from the root, by names of fields and indexes of lists.
type path []string

// to returns the path that goes on with more steps.
func (p path) to(steps ...string) path { return slices.Concat(p, steps) }

// at goes on with an index.
func (p path) at(i int) path { return p.to(strconv.Itoa(i)) }

// escape writes a step as a JSON pointer does. Making one costs more than all else
// that an answer needs.
var escape = strings.NewReplacer("~", "~0", "/", "~1")

// pointer is the path as RFC 6901 writes it.
func (p path) pointer() string {
	var b strings.Builder
	for _, step := range p {
		b.WriteByte('/')
		b.WriteString(escape.Replace(step))
	}
	return b.String()
}

// get returns what is at the path, and whether it is there and not null.
func (d *Document) get(p path) (any, bool) {
	var node any = d.root
	for _, step := range p {
		switch parent := node.(type) {
		case map[string]any:
			node = parent[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(parent) {
				return nil, false
			}
			node = parent[i]
		default:
			return nil, false
		}
	}
	return node, node != nil
}

// set gives the field at the path a value, together with the maps above it that
// are not there: a patch below a missing parent fails, and one that fails refuses
// the object whatever the failure policy says.
func (d *Document) set(p path, value any) {
	value = plain(value)
	for i := 1; i < len(p); i++ {
		if _, found := d.get(p[:i]); found {
			continue
		}
		for _, step := range slices.Backward(p[i:]) {
			value = map[string]any{step: value}
		}
		p = p[:i]
		break
	}
	parent, _ := d.get(p[:len(p)-1])
	parent.(map[string]any)[p[len(p)-1]] = value
	// A copy, so that a later change does not reach into the patch.
	d.patch = append(d.patch, jsonpatch.NewOperation("add", p.pointer(), runtime.DeepCopyJSONValue(value)))
}

// extend adds items to the end of the list at the path.
func (d *Document) extend(p path, items ...any) {
	if len(items) == 0 {
		return
	}
	there, _ := d.get(p)
	list, _ := there.([]any)
	if len(list) == 0 {
		d.set(p, items)
		return
	}
	end := p.pointer() + "/-"
	for _, item := range items {
		item = plain(item)
		list = append(list, item)
		d.patch = append(d.patch, jsonpatch.NewOperation("add", end, runtime.DeepCopyJSONValue(item)))
	}
	parent, _ := d.get(p[:len(p)-1])
	parent.(map[string]any)[p[len(p)-1]] = list
}

// remove takes a field out, if it is there.
func (d *Document) remove(p path) {
	parent, _ := d.get(p[:len(p)-1])
	fields, _ := parent.(map[string]any)
	if _, found := fields[p[len(p)-1]]; !found {
		return
	}
	delete(fields, p[len(p)-1])
	d.patch = append(d.patch, jsonpatch.NewOperation("remove", p.pointer(), nil))
}

// plain is a value in the form in which JSON is decoded; a map must be so already.
func plain(value any) any {
	switch value := value.(type) {
	case string, int64, bool:
		return value
	case map[string]any:
		return value
	case []any:
		out := make([]any, len(value))
		for i := range value {
			out[i] = plain(value[i])
		}
		return out
	}
	var out any
	data, err := json.Marshal(value)
	if err == nil {
		err = utiljson.Unmarshal(data, &out)
	}
	if err != nil {
		panic(fmt.Sprintf("a %T is no JSON: %v", value, err)) // only types of the API come here
	}
	return out
}
