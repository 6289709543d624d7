package consumer

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// A state of the exhaustive search holds values of shipped types, whose fields
// are not exported and change. So states are copied and compared by a walk over
// whatever fields the types have: a new field of Partition is copied, and tells
// states apart, without anybody thinking of it. What does not tell states apart
// is listed in ignored.

// shape knows how to copy and to encode the values of one type. It is made once
// for each type.
type shape struct {
	typ reflect.Type
	// deepen replaces, in a value that was copied as it is, what it shares with
	// the original; nil: nothing that changes.
	deepen func(c *copier, p unsafe.Pointer)
	encode func(e *encoder, p unsafe.Pointer)
}

// shapes are those made so far, by type.
type shapes map[reflect.Type]*shape

// ignored are fields that do not tell two states apart, as type.field. All else
// being equal, two states that differ in them have the same future.
var ignored = map[string]string{
	"consumer.Partition.opt":       "never changes",
	"consumer.Partition.retry":     "how long the next wait is; the search lets every wait end at any time",
	"consumer.reading.allowance":   "never changes here",
	"consumer.reading.lookAt":      "Options.Quiet is 0: it is always time to look",
	"consumer.DoFetch.Bytes":       "the search delivers as few messages as it likes",
	"consumer.rowCache.recent":     "rows are never dropped here",
	"consumer.exOwner.now":         "times are encoded relative to it",
	"batcher.Batcher.start":        "Limits.MaxAge is 0: everything is due at once",
	"batcher.Batcher.now":          "as start",
	"batcher.Batcher.peak":         "the size of a map",
	"batcher.Batcher.limits":       "never changes",
	"batcher.held.added":           "as start",
	"batcher.held.read":            "Limits.MaxDistance is never reached",
	"batcher.Batcher.read":         "as held.read",
	"lobwriter.Document.CreatedAt": "nobody compares it",
	"lobwriter.Document.UpdatedAt": "nobody compares it",
}

// names are fields that are only ever compared with each other. They are encoded
// by the order in which they are met first, so that a state is the same after
// two claims as after twenty.
var names = map[string]bool{"Epoch": true, "epoch": true, "ClaimID": true, "claimID": true, "MemberID": true, "memberID": true, "consumerName": true}

// immutable are types that nobody changes once they are made: copies share them.
var immutable = map[reflect.Type]bool{
	reflect.TypeFor[[]byte]():           true,
	reflect.TypeFor[*lobwriter.Flush](): true,
	reflect.TypeFor[lobtest.Snapshot](): true,
	reflect.TypeFor[time.Time]():        true,
}

// of returns the shape of a type.
func (all shapes) of(t reflect.Type) *shape {
	if s := all[t]; s != nil {
		return s
	}
	s := &shape{typ: t}
	all[t] = s // before its parts: types refer to themselves
	switch t {
	case reflect.TypeFor[Turn]():
		s.encode = func(*encoder, unsafe.Pointer) {} // answers to old turns are not kept
	case reflect.TypeFor[time.Time]():
		s.encode = func(e *encoder, p unsafe.Pointer) { e.time(*(*time.Time)(p)) }
	case reflect.TypeFor[Look]():
		// Of the look before, only its leaders matter, and here there are none.
		s.encode = func(e *encoder, p unsafe.Pointer) {
			l := (*Look)(p)
			e.bool(l.Created != 0)
		}
	case reflect.TypeFor[rowCache]():
		s.deepen = func(_ *copier, p unsafe.Pointer) { c := (*rowCache)(p); *c = c.clone() }
		s.encode = func(e *encoder, p unsafe.Pointer) { all.rows(e, (*rowCache)(p)) }
	default:
		all.make(s)
	}
	if immutable[t] {
		s.deepen = nil
	}
	return s
}

func (all shapes) make(s *shape) {
	t := s.typ
	switch t.Kind() {
	case reflect.Bool, reflect.Uint8:
		s.encode = func(e *encoder, p unsafe.Pointer) { e.buf = append(e.buf, *(*byte)(p)) }
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		s.encode = func(e *encoder, p unsafe.Pointer) { e.int(reflect.NewAt(t, p).Elem().Int()) }
		if t.Size() == 8 {
			s.encode = func(e *encoder, p unsafe.Pointer) { e.int(*(*int64)(p)) }
		}
	case reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		s.encode = func(e *encoder, p unsafe.Pointer) { e.int(int64(reflect.NewAt(t, p).Elem().Uint())) }
	case reflect.String:
		s.encode = func(e *encoder, p unsafe.Pointer) { e.text(*(*string)(p)) }
	case reflect.Pointer:
		all.pointer(s)
	case reflect.Slice:
		all.slice(s)
	case reflect.Array:
		all.array(s)
	case reflect.Map:
		all.table(s)
	case reflect.Struct:
		all.fields(s)
	case reflect.Interface:
		all.dynamic(s)
	default:
		panic(fmt.Sprintf("the exhaustive search cannot copy a %s", t))
	}
}

func (all shapes) pointer(s *shape) {
	t := s.typ.Elem()
	var to *shape // below: a type may refer to itself, and has to know then that pointers are deepened
	s.deepen = func(c *copier, p unsafe.Pointer) {
		old := *(*unsafe.Pointer)(p)
		if old == nil {
			return
		}
		if copied, ok := c.copied[old]; ok {
			*(*unsafe.Pointer)(p) = copied
			return
		}
		v := reflect.New(t)
		v.Elem().Set(reflect.NewAt(t, old).Elem())
		copied := v.UnsafePointer()
		c.copied[old] = copied
		*(*unsafe.Pointer)(p) = copied
		if to.deepen != nil {
			to.deepen(c, copied)
		}
	}
	s.encode = func(e *encoder, p unsafe.Pointer) {
		at := *(*unsafe.Pointer)(p)
		if at == nil {
			e.int(0)
			return
		}
		if n, ok := e.met[at]; ok {
			e.int(n)
			return
		}
		e.met[at] = int64(len(e.met) + 1)
		e.int(-1)
		to.encode(e, at)
	}
	to = all.of(t)
}

// sliceHeader is what a slice is to the runtime.
type sliceHeader struct {
	data     unsafe.Pointer
	len, cap int
}

func (all shapes) slice(s *shape) {
	t := s.typ.Elem()
	of := all.of(t)
	s.deepen = func(c *copier, p unsafe.Pointer) {
		v := reflect.NewAt(s.typ, p).Elem()
		if v.Len() == 0 {
			v.SetZero()
			return
		}
		fresh := reflect.MakeSlice(s.typ, v.Len(), v.Len())
		reflect.Copy(fresh, v)
		v.Set(fresh)
		if of.deepen != nil {
			h := (*sliceHeader)(p)
			for i := range h.len {
				of.deepen(c, unsafe.Add(h.data, uintptr(i)*t.Size()))
			}
		}
	}
	s.encode = func(e *encoder, p unsafe.Pointer) {
		h := (*sliceHeader)(p)
		e.int(int64(h.len))
		for i := range h.len {
			of.encode(e, unsafe.Add(h.data, uintptr(i)*t.Size()))
		}
	}
}

func (all shapes) array(s *shape) {
	t, n := s.typ.Elem(), s.typ.Len()
	of := all.of(t)
	if of.deepen != nil {
		s.deepen = func(c *copier, p unsafe.Pointer) {
			for i := range n {
				of.deepen(c, unsafe.Add(p, uintptr(i)*t.Size()))
			}
		}
	}
	s.encode = func(e *encoder, p unsafe.Pointer) {
		for i := range n {
			of.encode(e, unsafe.Add(p, uintptr(i)*t.Size()))
		}
	}
}

func (all shapes) table(s *shape) {
	key, value := all.of(s.typ.Key()), all.of(s.typ.Elem())
	s.deepen = func(c *copier, p unsafe.Pointer) {
		v := reflect.NewAt(s.typ, p).Elem()
		if v.IsNil() {
			return
		}
		fresh := reflect.MakeMapWithSize(s.typ, v.Len())
		for i := v.MapRange(); i.Next(); {
			one := reflect.New(value.typ)
			one.Elem().Set(i.Value())
			if value.deepen != nil {
				value.deepen(c, one.UnsafePointer())
			}
			fresh.SetMapIndex(i.Key(), one.Elem())
		}
		v.Set(fresh)
	}
	s.encode = func(e *encoder, p unsafe.Pointer) {
		v := reflect.NewAt(s.typ, p).Elem()
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int {
			if a.Kind() == reflect.String {
				return cmp.Compare(a.String(), b.String())
			}
			return cmp.Compare(a.Int(), b.Int())
		})
		e.int(int64(len(keys)))
		for _, k := range keys {
			for _, part := range []struct {
				of *shape
				v  reflect.Value
			}{{key, k}, {value, v.MapIndex(k)}} {
				one := reflect.New(part.of.typ)
				one.Elem().Set(part.v)
				part.of.encode(e, one.UnsafePointer())
			}
		}
	}
}

func (all shapes) fields(s *shape) {
	type field struct {
		*shape
		offset uintptr
	}
	var deep, told []field
	for i := range s.typ.NumField() {
		f := s.typ.Field(i)
		one := field{all.of(f.Type), f.Offset}
		if one.deepen != nil {
			deep = append(deep, one)
		}
		switch full := s.typ.String() + "." + f.Name; {
		case ignored[full] != "":
			continue
		case names[f.Name] && f.Type.Kind() == reflect.String:
			one.shape = &shape{encode: func(e *encoder, p unsafe.Pointer) { e.name(*(*string)(p)) }}
		case names[f.Name]:
			one.shape = &shape{encode: func(e *encoder, p unsafe.Pointer) { e.epoch(*(*int64)(p)) }}
		case full == "consumer.exPull.owner":
			one.shape = &shape{encode: func(e *encoder, p unsafe.Pointer) { e.int(int64(*(*int)(p) ^ e.first)) }}
		case full == "lobtest.lease.until", full == "consumer.exClaim.until":
			one.shape = &shape{encode: func(e *encoder, p unsafe.Pointer) { e.bool(*(*int64)(p) > e.databaseNow) }}
		}
		told = append(told, one)
	}
	if len(deep) > 0 {
		s.deepen = func(c *copier, p unsafe.Pointer) {
			for i := range deep {
				deep[i].deepen(c, unsafe.Add(p, deep[i].offset))
			}
		}
	}
	s.encode = func(e *encoder, p unsafe.Pointer) {
		for i := range told {
			told[i].encode(e, unsafe.Add(p, told[i].offset))
		}
	}
}

// dynamic is an action or an error, both immutable.
func (all shapes) dynamic(s *shape) {
	s.encode = func(e *encoder, p unsafe.Pointer) {
		v := reflect.NewAt(s.typ, p).Elem()
		if v.IsNil() {
			e.int(0)
			return
		}
		v = v.Elem()
		e.text(v.Type().String())
		one := reflect.New(v.Type())
		one.Elem().Set(v)
		all.of(v.Type()).encode(e, one.UnsafePointer())
	}
}

// rows encodes what a cache knows.
func (all shapes) rows(e *encoder, c *rowCache) {
	row := all.of(reflect.TypeFor[lobwriter.Row]())
	keys := make([]string, 0, len(c.rows))
	for k := range c.rows {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	e.int(int64(len(keys)))
	for _, k := range keys {
		e.text(k)
		row.encode(e, unsafe.Pointer(&c.rows[k].Value.(*cachedRow).row))
	}
}

func (c *rowCache) clone() rowCache {
	out := newRowCache(c.limit)
	for i := c.recent.Back(); i != nil; i = i.Prev() {
		r := i.Value.(*cachedRow)
		out.put(r.key, r.row)
	}
	return out
}

// copier copies values. What is shared within one copy stays shared.
type copier struct {
	shapes shapes
	copied map[unsafe.Pointer]unsafe.Pointer
}

func deepCopy[T any](c *copier, from *T) *T {
	clear(c.copied)
	out := new(T)
	*out = *from
	if s := c.shapes.of(reflect.TypeFor[T]()); s.deepen != nil {
		s.deepen(c, unsafe.Pointer(out))
	}
	return out
}

// encoder writes a value down so that equal bytes mean an equal future.
type encoder struct {
	shapes      shapes
	buf         []byte
	met         map[unsafe.Pointer]int64
	named       map[string]int64
	epochs      map[int64]int64
	now         time.Time // of the owner whose Partition is being encoded
	databaseNow int64
	first       int // the owner that comes first
}

func newEncoder(all shapes) *encoder {
	return &encoder{shapes: all, met: map[unsafe.Pointer]int64{}, named: map[string]int64{}, epochs: map[int64]int64{}}
}

func (e *encoder) reset() {
	e.buf = e.buf[:0]
	clear(e.met)
	clear(e.named)
	clear(e.epochs)
}

func encode[T any](e *encoder, p *T) {
	e.shapes.of(reflect.TypeFor[T]()).encode(e, unsafe.Pointer(p))
}

func (e *encoder) int(n int64)   { e.buf = binary.AppendVarint(e.buf, n) }
func (e *encoder) text(s string) { e.int(int64(len(s))); e.buf = append(e.buf, s...) }

func (e *encoder) bool(b bool) {
	if b {
		e.int(1)
	} else {
		e.int(0)
	}
}

func (e *encoder) name(s string) {
	n, ok := e.named[s]
	if !ok && s != "" {
		n = int64(len(e.named) + 1)
		e.named[s] = n
	}
	e.int(n)
}

func (e *encoder) epoch(epoch int64) {
	n, ok := e.epochs[epoch]
	if !ok && epoch != 0 {
		n = int64(len(e.epochs) + 1)
		e.epochs[epoch] = n
	}
	e.int(n)
}

// time tells no more than whether a time is set and has come: the search itself
// decides which of those to come is next.
func (e *encoder) time(t time.Time) {
	switch {
	case t.IsZero():
		e.int(0)
	case t.After(e.now):
		e.int(2)
	default:
		e.int(1)
	}
}
