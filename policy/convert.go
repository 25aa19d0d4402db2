package policy

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// lazily is a pointer to a struct with a JSON form as Rego sees it; nil of nil. What
// policies look at in most reviews is converted at once, straight from its fields: by way
// of JSON it would cost more than the policies. Structs that a map points to are large, and
// are converted field by field as far as they are looked at.
func lazily(value any) (ast.Value, error) {
	if value == nil {
		return nil, nil
	}
	of := reflect.Indirect(reflect.ValueOf(value))
	out := map[string]any{}
	for _, f := range fieldsOfType(of.Type()) {
		field, present := f.of(of)
		if !present {
			continue
		}
		if t := field.Type(); t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Pointer && !field.IsNil() {
			out[f.name] = structs(field)
			continue
		}
		v, err := toValue(field)
		if err != nil {
			return nil, err
		}
		out[f.name] = v
	}
	return ast.LazyObject(out), nil
}

// structs is a map of pointers to structs with a JSON form. OPA converts a field of one, by
// its JSON form, when it is looked at.
func structs(of reflect.Value) map[string]any {
	out := make(map[string]any, of.Len())
	for entries := of.MapRange(); entries.Next(); {
		of, fields := entries.Value().Elem(), map[string]any{}
		for _, f := range fieldsOfType(of.Type()) {
			if field, present := f.of(of); present {
				fields[f.name] = field.Interface()
			}
		}
		out[entries.Key().String()] = fields
	}
	return out
}

// toValue is what ast.InterfaceToValue makes of the value's JSON form. Maps have keys that
// are strings.
func toValue(v reflect.Value) (ast.Value, error) {
	if v.Type().Implements(marshaler) {
		return ast.InterfaceToValue(v.Interface())
	}
	switch v.Kind() {
	case reflect.String:
		return ast.InternedTerm(v.String()).Value, nil
	case reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64:
		if v.CanInt() {
			return ast.InterfaceToValue(v.Int())
		}
		return ast.InterfaceToValue(v.Bool())
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return ast.InternedNullValue, nil
		}
		return toValue(v.Elem())
	case reflect.Slice:
		if v.IsNil() {
			return ast.InternedNullValue, nil
		}
		items := make([]*ast.Term, v.Len())
		for i := range items {
			item, err := toValue(v.Index(i))
			if err != nil {
				return nil, err
			}
			items[i] = ast.NewTerm(item)
		}
		return ast.NewArray(items...), nil
	case reflect.Map:
		if v.IsNil() {
			return ast.InternedNullValue, nil
		}
		if texts, ok := v.Interface().(map[string]string); ok {
			return ast.InterfaceToValue(texts)
		}
		pairs := make([][2]*ast.Term, 0, v.Len())
		for entries := v.MapRange(); entries.Next(); {
			value, err := toValue(entries.Value())
			if err != nil {
				return nil, err
			}
			pairs = append(pairs, [2]*ast.Term{ast.InternedTerm(entries.Key().String()), ast.NewTerm(value)})
		}
		return ast.NewObject(pairs...), nil
	case reflect.Struct:
		fields := fieldsOfType(v.Type())
		pairs := make([][2]*ast.Term, 0, len(fields))
		for i := range fields {
			field, present := fields[i].of(v)
			if !present {
				continue
			}
			value, err := toValue(field)
			if err != nil {
				return nil, err
			}
			pairs = append(pairs, [2]*ast.Term{fields[i].key, ast.NewTerm(value)})
		}
		return ast.NewObject(pairs...), nil
	}
	return ast.InterfaceToValue(v.Interface())
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// jsonField is a field of a struct as its tag says.
type jsonField struct {
	name                string
	key                 *ast.Term
	index               int
	omitEmpty, omitZero bool
}

// of is the field's value, and whether JSON has it.
func (f *jsonField) of(v reflect.Value) (reflect.Value, bool) {
	field := v.Field(f.index)
	switch {
	case f.omitZero && field.IsZero():
		return field, false
	case !f.omitEmpty:
		return field, true
	}
	switch field.Kind() {
	case reflect.Map, reflect.Slice, reflect.String:
		return field, field.Len() > 0
	case reflect.Struct:
		return field, true
	}
	return field, !field.IsZero()
}

// jsonFields are the fields of each type that was converted.
var jsonFields sync.Map

// fieldsOfType are those of a struct in which none is embedded.
func fieldsOfType(t reflect.Type) []jsonField {
	if known, found := jsonFields.Load(t); found {
		return known.([]jsonField)
	}
	var out []jsonField
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		out = append(out, jsonField{
			name: name, key: ast.StringTerm(name), index: f.Index[0],
			omitEmpty: strings.Contains(options, "omitempty"), omitZero: strings.Contains(options, "omitzero"),
		})
	}
	jsonFields.Store(t, out)
	return out
}
