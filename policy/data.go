package policy

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
)

// store is what policies read as data. Its content is replaced whole and never
// changed, so that reading takes no lock: who reads keeps what was there when it
// began. OPA's own store would have every evaluation wait for a writer that waits
// for the slowest of them.
type store struct {
	storage.WritesNotSupported
	storage.PolicyNotSupported
	storage.TriggersNotSupported
	current atomic.Pointer[contents]
}

// contents is one revision of data, and the transaction that reads it. OPA keeps what it is
// given in many times its size, and most policies look one namespace or queue up: so it is
// kept as it was handed in, and converted as far as it is read.
type contents struct {
	inventory reflect.Value
	revision  uint64
	// whole are converted parts that policies go through from end to end.
	mu    sync.Mutex
	whole map[string]ast.Value
}

// ID implements storage.Transaction.
func (c *contents) ID() uint64 { return c.revision }

func newStore() *store {
	s := &store{}
	s.current.Store(&contents{})
	return s
}

// replace makes inventory the content: a map or a struct with a JSON form, which nobody
// changes afterwards.
func (s *store) replace(inventory any) error {
	v := plainly(reflect.ValueOf(inventory))
	if v.Kind() != reflect.Map && v.Kind() != reflect.Struct {
		return fmt.Errorf("reading the inventory: it is a %T", inventory)
	}
	s.current.Store(&contents{inventory: v, revision: s.current.Load().revision + 1})
	return nil
}

// at is what is at a path. Parts of the inventory, and all of it, are converted once.
func (c *contents) at(path storage.Path) (ast.Value, error) {
	switch {
	case !c.inventory.IsValid() || (len(path) > 0 && path[0] != inventoryRoot):
		return nil, nil
	case len(path) == 0:
		all, err := c.at(storage.Path{inventoryRoot})
		if err != nil {
			return nil, err
		}
		return ast.NewObject(ast.Item(ast.StringTerm(inventoryRoot), ast.NewTerm(all))), nil
	}
	v := c.inventory
	for _, key := range path[1:] {
		if v = below(v, key); !v.IsValid() {
			return nil, nil
		}
	}
	if len(path) > 2 {
		return toValue(v)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := path.String()
	if known, found := c.whole[key]; found {
		return known, nil
	}
	value, err := toValue(v)
	if err != nil {
		return nil, err
	}
	if c.whole == nil {
		c.whole = map[string]ast.Value{}
	}
	c.whole[key] = value
	return value, nil
}

// below is what has the key in a value, invalid if there is nothing.
func below(v reflect.Value, key string) (none reflect.Value) {
	switch v = plainly(v); v.Kind() {
	case reflect.Map:
		if v.Type().Key().Kind() == reflect.String {
			return v.MapIndex(reflect.ValueOf(key).Convert(v.Type().Key()))
		}
	case reflect.Struct:
		for _, f := range fieldsOfType(v.Type()) {
			if field, present := f.of(v); f.name == key && present {
				return field
			}
		}
	case reflect.Slice:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < v.Len() {
			return v.Index(i)
		}
	}
	return none
}

// plainly is what a value points to.
func plainly(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v
}

// NewTransaction implements storage.Store.
func (s *store) NewTransaction(context.Context, ...storage.TransactionParams) (storage.Transaction, error) {
	return s.current.Load(), nil
}

// Read implements storage.Store.
func (s *store) Read(_ context.Context, txn storage.Transaction, path storage.Path) (any, error) {
	c, ok := txn.(*contents)
	if !ok {
		return nil, fmt.Errorf("a transaction %T of another store", txn)
	}
	value, err := c.at(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", path, err)
	case value == nil:
		return nil, &storage.Error{Code: storage.NotFoundErr, Message: path.String() + " is not there"}
	}
	return value, nil
}

// Commit implements storage.Store.
func (s *store) Commit(context.Context, storage.Transaction) error { return nil }

// Abort implements storage.Store.
func (s *store) Abort(context.Context, storage.Transaction) {}

// Truncate implements storage.Store.
func (s *store) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return s.Write(context.Background(), nil, storage.ReplaceOp, nil, nil)
}
